"""The review page: a FastAPI application that hands out suggestions and images and takes decisions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, StrictBool
from starlette.exceptions import HTTPException

from satl.errors import ImageError, Wording, in_shell
from satl.labels.bands import REVIEW
from satl.review.agreement import ENOUGH_CELLS, pair_agreement
from satl.review.annotators import LONGEST_NAME, annotator_name
from satl.review.database import Conflict, CurrentDecisions, DecisionRequest, ReviewStore
from satl.review.gallery import GalleryOrder, GalleryPlace
from satl.review.gate import Gate
from satl.review.questions import Filter
from satl.review.served_images import ReviewImages, ServedImage
from satl.review.thumbnails import Thumbnails

MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
LARGEST_PAGE = 50
LARGEST_GALLERY = 200
CACHED = "private, max-age=600"


def _stored_text(text: str) -> str:
    """Refuse half of a surrogate pair, which JSON can name and no file can hold."""
    text.encode()
    return text


Name = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_stored_text)]
ImageName = Annotated[str, Query(max_length=4096)]
Key = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_stored_text)]
Number = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
"""What SQLite can hold."""
Annotator = Annotated[
    str, Field(max_length=LONGEST_NAME), AfterValidator(_stored_text), AfterValidator(annotator_name)
]
"""Who asks or decides; empty for a person without a name."""
State = Literal["open", "unseen", "decided", "skipped", "disagreed", "resolved", "any"]


class CellBody(BaseModel):
    """A decision about one cell, and the decision that the person saw there."""

    image: Name
    label: Name
    value: Literal[1, -1, 0]
    based_on: Number | None


class DecideBody(BaseModel):
    """Decisions that a person made with one key."""

    tab: Key
    request: Key
    cells: Annotated[list[CellBody], Field(min_length=1, max_length=5000)]
    annotator: Annotator = ""
    final: StrictBool = False


class UndoBody(BaseModel):
    """Take back the last request of a tab."""

    tab: Key
    request: Key
    annotator: Annotator = ""


class FilterQuery(BaseModel):
    """The filter of a page, as it stands in an address."""

    label: str | None = None
    band: list[Literal["accepted", "review", "left"]] = []
    source: str | None = None
    state: State = "open"
    value: Number | None = None
    low: float | None = None
    high: float | None = None
    annotator: Annotator = ""

    def wanted(self) -> Filter:
        """Return it as the store takes it; without a band, what is for review."""
        bands = tuple(dict.fromkeys(self.band)) or (REVIEW,)  # each is a question to the store: none twice
        return Filter(
            self.label, bands, self.source, self.state, self.value, self.low, self.high, self.annotator
        )


class QueueQuery(FilterQuery):
    """The next suggestions, one by one or image by image."""

    mode: Literal["class", "image"] = "class"
    after: Number = 0
    limit: Annotated[int, Field(ge=1, le=LARGEST_PAGE)] = 20


class GalleryQuery(FilterQuery):
    """The next suggestions of one class; ``after_key`` and ``after`` are the place where the last page ended."""

    label: str
    order: GalleryOrder = "highest"
    after_key: FiniteFloat | None = None
    after: Number | None = None
    limit: Annotated[int, Field(ge=1, le=LARGEST_GALLERY)] = 48


def create_app(
    store: ReviewStore,
    images: ReviewImages,
    host: str = "127.0.0.1",
    opened: Callable[[str], object] | None = None,
    words: Wording = str,
    *,
    annotator: str | None = None,
    ask_name: bool = False,
) -> Gate:
    """Return the application behind its gate; ``gate.token`` opens it for the first browser.

    Args:
        store: suggestions and decisions.
        images: shown beside them.
        host: address of the page.
        opened: called with a new token when the last one was used.
        words: how errors word arguments and tasks on the page.
        annotator: the name under which the page decides; None lets people name themselves.
        ask_name: let nobody begin without a name.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.exception_handler(RequestValidationError)(_refuse_request)
    app.exception_handler(HTTPException)(_refuse_in_one_form)
    _add_files(app, images, store, words)
    _add_start(app, images, store, annotator, ask_name)
    _add_questions(app, store)
    _add_decisions(app, store, ask_name)
    return Gate(app, store, host, opened)


async def _refuse_request(_: Request, error: Exception) -> Response:
    """Say which part of a request is wrong, without what it holds: that may be nothing JSON can say."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]).encode("ascii", "replace").decode()
    return _json({"error": f"{place[:100]}: {first['msg'][:200]}".encode("ascii", "replace").decode()}, 422)


async def _refuse_in_one_form(_: Request, error: Exception) -> Response:
    """Answer what the framework itself refuses like everything else: an unknown path, a body that is not text."""
    assert isinstance(error, HTTPException)
    return _json({"error": str(error.detail)}, error.status_code)


def _add_files(app: FastAPI, images: ReviewImages, store: ReviewStore, words: Wording) -> None:
    # The files are read once: the page is small, and no request can name any other file.
    folder = resources.files("satl.review") / "static"
    files = {
        entry.name: (entry.read_bytes(), MEDIA_TYPES[Path(entry.name).suffix])
        for entry in folder.iterdir()
        if Path(entry.name).suffix in MEDIA_TYPES
    }

    @app.get("/")
    def page() -> Response:
        return _file(files, "index.html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        return _file(files, name)

    thumbnails = Thumbnails()

    @app.get("/image")
    def image(name: ImageName, if_none_match: Annotated[str, Header()] = "") -> Response:
        return _found(name, lambda found: _answer_image(found, if_none_match))

    @app.get("/thumbnail")
    def thumbnail(name: ImageName) -> Response:
        headers = {"cache-control": CACHED}
        return _found(
            name,
            lambda found: Response(thumbnails.make(name, found), media_type="image/jpeg", headers=headers),
        )

    def _found(name: str, answer: Callable[[ServedImage], Response]) -> Response:
        # Only what is under review can be asked for, and of that only what lies among the images.
        if not store.has_image(name):
            return _json({"error": f"no suggestion is about an image called '{name}'."}, 404)
        try:
            return answer(images.image(name))
        except ImageError as error:
            return _json({"error": error.worded(words)}, 404)
        except OSError as error:
            return _json({"error": f"'{name}' cannot be read ({error.strerror})."}, 404)


def _answer_image(image: ServedImage, known_tags: str) -> Response:
    """Answer with an image, or with the news that the browser has it already."""
    headers = {"cache-control": CACHED}
    if image.tag is not None:
        headers["etag"] = image.tag
        if image.tag in known_tags:
            return Response(status_code=304, headers=headers)
    content, kind = image.read()
    if isinstance(content, Path):
        return FileResponse(content, media_type=kind, headers=headers)
    return Response(content, media_type=kind, headers=headers)


def _add_start(
    app: FastAPI, images: ReviewImages, store: ReviewStore, fixed: str | None, ask_name: bool
) -> None:
    @app.get("/api/start")
    def start(annotator: Annotated[Annotator, Query()] = "") -> Response:
        folder = str(store.folder.path)
        name = annotator if fixed is None else fixed
        facts = {
            "folder": folder,
            "merge_command": f"satl merge {in_shell(folder)} TABLE -o NEW",
            "has_images": images.shown,
            "images_message": images.message,
            "annotator": name,
            "named_by_server": fixed is not None,
            "ask_name": ask_name,
        }
        return _json({**store.overview(name), **facts})

    @app.get("/api/agreement")
    def agreement() -> Response:
        pairs = [pair._asdict() for pair in pair_agreement(store.votes())]
        return _json({"annotators": store.annotators(), "pairs": pairs, "enough": ENOUGH_CELLS})


def _add_questions(app: FastAPI, store: ReviewStore) -> None:
    @app.get("/api/class")
    def class_report(name: str) -> Response:
        report = store.class_report(name)
        return _json({"error": f"there is no class '{name}'."}, 404) if report is None else _json(report)

    @app.get("/api/queue")
    def queue(asked: Annotated[QueueQuery, Query()]) -> Response:
        return _json(store.queue(asked.wanted(), asked.mode == "image", asked.after, asked.limit))

    @app.get("/api/gallery")
    def gallery(asked: Annotated[GalleryQuery, Query()]) -> Response:
        if (asked.after is None) != (asked.after_key is None):
            return _json({"error": "a place in the gallery is a key and a number."}, 422)
        place = None
        if asked.after is not None and asked.after_key is not None:
            place = GalleryPlace(asked.after_key, asked.after)
        return _json(store.gallery(asked.wanted(), asked.order, place, asked.limit))

    @app.get("/api/item")
    def item(
        image: str,
        label: str | None = None,
        annotator: Annotated[Annotator, Query()] = "",
        final: bool = False,
    ) -> Response:
        found = store.item(image, label, annotator, final)
        return _json({"error": "there is no such suggestion."}, 404) if found is None else _json(found)

    @app.get("/api/changes")
    def changes(since: Number, annotator: Annotated[Annotator, Query()] = "") -> Response:
        return _json(store.changes(since, annotator))


def _add_decisions(app: FastAPI, store: ReviewStore, ask_name: bool) -> None:
    @app.post("/api/decide")
    def decide(body: DecideBody) -> Response:
        wanted = [DecisionRequest(cell.image, cell.label, cell.value, cell.based_on) for cell in body.cells]
        if len({(cell.image, cell.label) for cell in wanted}) < len(wanted):
            return _json({"error": "a request may decide each cell once."}, 422)
        if ask_name and not body.annotator:
            return _json({"error": "give your name first: this page is for several people."}, 422)
        return _stored(
            store,
            body.annotator,
            lambda: store.decide(body.tab, body.request, wanted, body.annotator, body.final),
        )

    @app.post("/api/undo")
    def undo(body: UndoBody) -> Response:
        return _stored(store, body.annotator, lambda: store.undo(body.tab, body.request, body.annotator))


def _stored(store: ReviewStore, annotator: str, action: Callable[[], CurrentDecisions]) -> Response:
    """Answer 200 only when the decisions are on disk."""
    try:
        outcome = action()
    except Conflict as conflict:
        return _json({"error": "decided meanwhile", **_facts(store, annotator, conflict.outcome)}, 409)
    except KeyError as error:
        return _json({"error": str(error.args[0])}, 404)
    except sqlite3.Error as error:
        return _json({"error": f"{store.path} could not be written ({error})."}, 503)
    return _json(_facts(store, annotator, outcome))


def _facts(store: ReviewStore, annotator: str, outcome: CurrentDecisions) -> dict[str, Any]:
    return {
        "cells": [cell._asdict() for cell in outcome.cells],
        "last": outcome.last,
        "tallies": store.tallies({cell.label for cell in outcome.cells}, annotator),
    }


def _file(files: dict[str, tuple[bytes, str]], name: str) -> Response:
    if name not in files:
        return _json({"error": "there is no such file."}, 404)
    content, kind = files[name]
    return Response(content, media_type=kind)


def _json(content: Any, status: int = 200) -> Response:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status, media_type="application/json")
