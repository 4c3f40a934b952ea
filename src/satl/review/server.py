"""The review page: a FastAPI application that hands out suggestions and images and takes decisions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Header, Query
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel, Field

from satl.errors import ImageError, Wording, in_shell
from satl.labels.bands import BANDS
from satl.review.database import Conflict, CurrentDecisions, DecisionRequest, ReviewStore
from satl.review.gate import Gate
from satl.review.questions import STATES, Filter
from satl.review.served_images import ReviewImages, ServedImage

MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
LARGEST_PAGE = 50
Name = Annotated[str, Field(min_length=1, max_length=4096)]
Key = Annotated[str, Field(min_length=1, max_length=64)]


class CellBody(BaseModel):
    """A decision about one cell, and the decision that the person saw there."""

    image: Name
    label: Name
    value: Literal[1, -1, 0]
    based_on: int | None


class DecideBody(BaseModel):
    """Decisions that a person made with one key."""

    tab: Key
    request: Key
    cells: Annotated[list[CellBody], Field(min_length=1, max_length=5000)]


class UndoBody(BaseModel):
    """Take back the last request of a tab."""

    tab: Key
    request: Key


def create_app(
    store: ReviewStore,
    images: ReviewImages,
    host: str = "127.0.0.1",
    opened: Callable[[str], object] | None = None,
    words: Wording = str,
) -> Gate:
    """Return the application behind its gate; ``gate.token`` opens it for the first browser.

    Args:
        store: suggestions and decisions.
        images: shown beside them.
        host: address of the page.
        opened: called with a new token when the last one was used.
        words: how errors word arguments and tasks on the page.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _add_files(app, images, store, words)
    _add_questions(app, images, store)
    _add_decisions(app, store)
    return Gate(app, store, host, opened)


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

    @app.get("/image")
    def image(
        name: Annotated[str, Query(max_length=4096)], if_none_match: Annotated[str, Header()] = ""
    ) -> Response:
        # Only what is under review can be asked for, and of that only what lies among the images.
        if not store.has_image(name):
            return _json({"error": f"no suggestion is about an image called '{name}'."}, 404)
        try:
            return _answer_image(images.image(name), if_none_match)
        except ImageError as error:
            return _json({"error": error.worded(words)}, 404)
        except OSError as error:
            return _json({"error": f"'{name}' cannot be read ({error.strerror})."}, 404)


def _answer_image(image: ServedImage, known_tags: str) -> Response:
    """Answer with an image, or with the news that the browser has it already."""
    headers = {"cache-control": "private, max-age=600"}
    if image.tag is not None:
        headers["etag"] = image.tag
        if image.tag in known_tags:
            return Response(status_code=304, headers=headers)
    content, kind = image.read()
    if isinstance(content, Path):
        return FileResponse(content, media_type=kind, headers=headers)
    return Response(content, media_type=kind, headers=headers)


def _add_questions(app: FastAPI, images: ReviewImages, store: ReviewStore) -> None:
    @app.get("/api/start")
    def start() -> Response:
        folder = str(store.folder.path)
        facts = {
            "folder": folder,
            "merge_command": f"satl merge {in_shell(folder)} TABLE -o NEW",
            "has_images": images.shown,
            "images_message": images.message,
        }
        return _json({**store.overview(), **facts})

    @app.get("/api/class")
    def class_report(name: str) -> Response:
        report = store.class_report(name)
        return _json({"error": f"there is no class '{name}'."}, 404) if report is None else _json(report)

    @app.get("/api/queue")
    def queue(
        mode: Literal["class", "image"] = "class",
        label: str | None = None,
        band: Annotated[list[str] | None, Query()] = None,
        source: str | None = None,
        state: str = "open",
        value: int | None = None,
        low: float | None = None,
        high: float | None = None,
        after: int = 0,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 20,
    ) -> Response:
        bands = tuple(band or ("review",))
        if state not in STATES or not set(bands) <= set(BANDS):
            return _json({"error": "there is no such state or band."}, 422)
        wanted = Filter(label, bands, source, state, value, low, high)
        return _json(store.queue(wanted, mode == "image", after, limit))

    @app.get("/api/item")
    def item(image: str, label: str | None = None) -> Response:
        found = store.item(image, label)
        return _json({"error": "there is no such suggestion."}, 404) if found is None else _json(found)

    @app.get("/api/changes")
    def changes(since: int) -> Response:
        return _json(store.changes(since))


def _add_decisions(app: FastAPI, store: ReviewStore) -> None:
    @app.post("/api/decide")
    def decide(body: DecideBody) -> Response:
        wanted = [DecisionRequest(cell.image, cell.label, cell.value, cell.based_on) for cell in body.cells]
        return _stored(store, lambda: store.decide(body.tab, body.request, wanted))

    @app.post("/api/undo")
    def undo(body: UndoBody) -> Response:
        return _stored(store, lambda: store.undo(body.tab, body.request))


def _stored(store: ReviewStore, action: Callable[[], CurrentDecisions]) -> Response:
    """Answer 200 only when the decisions are on disk."""
    try:
        outcome = action()
    except Conflict as conflict:
        return _json({"error": "decided meanwhile", **_facts(store, conflict.outcome)}, 409)
    except KeyError as error:
        return _json({"error": str(error.args[0])}, 404)
    except sqlite3.Error as error:
        return _json({"error": f"{store.path} could not be written ({error})."}, 503)
    return _json(_facts(store, outcome))


def _facts(store: ReviewStore, outcome: CurrentDecisions) -> dict[str, Any]:
    return {
        "cells": [cell._asdict() for cell in outcome.cells],
        "last": outcome.last,
        "tallies": store.tallies({cell.label for cell in outcome.cells}),
    }


def _file(files: dict[str, tuple[bytes, str]], name: str) -> Response:
    if name not in files:
        return _json({"error": "there is no such file."}, 404)
    content, kind = files[name]
    return Response(content, media_type=kind)


def _json(content: Any, status: int = 200) -> Response:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status, media_type="application/json")
