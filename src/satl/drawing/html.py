"""Self-contained HTML pages: figures, images and style are written into the file."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from satl.drawing import style

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

_HEX = {colour.light.lower(): f"var(--{colour.name}, {colour.light})" for colour in style.COLOURS}


@style.styled
def inline_svg(figure: Figure, key: str, label: str) -> Markup:
    """Return a figure as an SVG element for a page.

    Its colours become CSS variables and its text stays text, so it follows the reader's light or dark setting
    and can be searched and read aloud. The same figure gives the same characters.

    Args:
        figure: from :mod:`satl.reports.figures`.
        key: unique in the page; put before every id.
        label: what the figure shows, for those who cannot see it.
    """
    from markupsafe import Markup, escape

    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    # Only what is referred to needs an id; the groups' own ("axes_1") would clash between figures.
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    # Tags alone: the name of a class may look like an attribute.
    text = re.sub(r"<[^>]*>", lambda tag: _fit_tag(tag[0], key, used), text)
    text = re.sub(r"\n\s*", "\n", text)
    head = re.search(r"<svg[^>]*>", text)
    assert head is not None
    box = re.search(r'viewBox="([^"]*)"', head[0])
    assert box is not None
    opened = f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(label)}">'
    return Markup(opened + text[head.end() :].strip())


def _fit_tag(tag: str, key: str, used: set[str]) -> str:
    """Return a tag of matplotlib's SVG as it fits into a page: ids of its own, colours and letters of the page."""
    tag = re.sub(r' id="([^"]+)"', lambda m: f' id="{key}-{m[1]}"' if m[1] in used else "", tag)
    tag = re.sub(r'xlink:href="#', f'href="#{key}-', tag)
    tag = re.sub(r"url\(#", f"url(#{key}-", tag)
    tag = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", tag)
    # One property or several, depending on matplotlib's version.
    tag = re.sub(r"(font(?:-family)?: [^;\"]*?)'DejaVu Sans'[^;\"]*", r"\1var(--sans, sans-serif)", tag)
    tag = re.sub(r"#[0-9a-fA-F]{6}\b", lambda m: _HEX.get(m[0].lower(), m[0]), tag)
    # Two decimals of a point are finer than any screen.
    return re.sub(r' (?:d|x|y|transform|points)="[^"]*"', lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), tag)


def image_uri(pixels: npt.NDArray[np.uint8]) -> str:
    """Return an image, uint8 (H, W, 3), as a ``data:`` address.

    >>> image_uri(np.zeros((8, 8, 3), dtype=np.uint8)).startswith("data:image/jpeg;base64,")
    True
    """
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="JPEG", quality=88)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def render(
    package: str, template: str, filters: Mapping[str, Callable[[Any], Any]] | None = None, **content: Any
) -> str:
    """Fill a template in the folder ``templates`` of a package; whatever comes from data is escaped.

    A name that the template uses and that is not given is an error, not a blank. All pages share ``style.css.j2``.

    Args:
        package: such as ``satl.reports``.
        template: name of the file.
        filters: what the template uses beside ``percent`` and ``unbroken``.
        content: the names that the template uses.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("satl.drawing")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["unbroken"] = lambda text: text.replace(" %", "\u00a0%")
    environment.filters.update(filters or {})
    return environment.get_template(template).render(
        light=style.css_variables(dark=False), dark=style.css_variables(dark=True), **content
    )


def percent(value: float | None, digits: int = 1) -> str:
    """Write a share of one as per cent, or a dash where there is none.

    >>> percent(0.1234), percent(None), percent(float("nan"))
    ('12.3', '–', '–')
    """
    return "\u2013" if value is None or math.isnan(value) else f"{100 * value:.{digits}f}"
