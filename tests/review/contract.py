"""What the review server may answer: its own OpenAPI document, with the answers that its functions build by hand.

The server does not publish the document. Parameters and bodies in it come from the application; FastAPI cannot know
the answers, so they stand here, one entry for each operation.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from satl.labels.bands import BANDS
from satl.review.gate import Gate

INTEGER, STRING, BOOLEAN, NUMBER = ({"type": kind} for kind in ("integer", "string", "boolean", "number"))


def optional(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def listed(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def record(**properties: dict[str, Any]) -> dict[str, Any]:
    """An object with these entries and no others."""
    names = {name.rstrip("_"): schema for name, schema in properties.items()}
    return {
        "type": "object",
        "properties": names,
        "required": list(names),
        "additionalProperties": False,
    }


VALUE = {"enum": [1, -1, 0]}
TALLIES = {
    "type": "object",
    "additionalProperties": {
        **listed({**listed(INTEGER), "minItems": 4, "maxItems": 4}),
        **{"minItems": len(BANDS), "maxItems": len(BANDS)},
    },
}
ERROR = record(error=STRING)
OUTCOME = {
    "cells": listed(record(image=STRING, label=STRING, value=optional(VALUE), number=optional(INTEGER))),
    "last": INTEGER,
    "tallies": TALLIES,
}
SUGGESTION = record(
    label=STRING, value={"enum": [1, -1]}, score=NUMBER, threshold=optional(NUMBER), bound=optional(NUMBER),
    band={"enum": list(BANDS)}, source=STRING, decided=optional(VALUE), number=optional(INTEGER),
    votes=listed(record(annotator=STRING, value=VALUE)),
)  # fmt: skip
ITEM = record(
    key=INTEGER,
    image=STRING,
    known=record(present=listed(STRING), absent=listed(STRING), absent_count=INTEGER),
    more=BOOLEAN,
    suggestions=listed(SUGGESTION),
)
QUEUE = record(items=listed(ITEM), next=optional(INTEGER), count=optional(INTEGER), exact=BOOLEAN)
CHANGES = record(
    generation=INTEGER,
    last=INTEGER,
    more=BOOLEAN,
    decisions=listed(
        record(
            sequence=INTEGER,
            image=STRING,
            label=STRING,
            value=optional(VALUE),
            number=optional(INTEGER),
            final={"enum": [0, 1]},
        )
    ),
    disagreements=INTEGER,
    tallies=TALLIES,
)
START = {
    "type": "object",
    "required": [
        *("id", "generation", "last", "bands", "classes", "sources", "statement"),
        *("folder", "merge_command", "has_images", "images_message"),
        *("annotator", "named_by_server", "ask_name", "annotators", "disagreements"),
    ],
    "properties": {"generation": INTEGER, "last": INTEGER, "has_images": BOOLEAN, "bands": listed(STRING)},
}
AGREEMENT = record(
    annotators={"type": "object", "additionalProperties": INTEGER},
    pairs=listed(
        record(
            first=STRING,
            second=STRING,
            label=optional(STRING),
            cells=INTEGER,
            agreed=INTEGER,
            kappa=optional(NUMBER),
        )
    ),
    enough=INTEGER,
)
GALLERY = {
    "type": "object",
    "required": ["items", "next", "count", "exact"],
    "properties": {
        "items": listed(
            record(
                image=STRING,
                label=STRING,
                value={"enum": [1, -1]},
                score=NUMBER,
                band={"enum": list(BANDS)},
                source=STRING,
                decided=optional(VALUE),
                number=optional(INTEGER),
                votes=listed(record(annotator=STRING, value=VALUE)),
            )
        ),
        "next": optional(record(key=NUMBER, id=INTEGER)),
        "count": optional(INTEGER),
        "exact": BOOLEAN,
    },
}
CLASS = {"type": "object", "required": ["name", "histogram", "present", "absent"]}
DECIDED = {"200": record(**OUTCOME), "404": ERROR, "409": record(error=STRING, **OUTCOME)}

ANSWERS: dict[tuple[str, str], dict[str, Any]] = {
    ("/", "get"): {"200": "text/html"},
    ("/static/{name}", "get"): {
        "200": ("text/html", "text/css", "text/javascript", "image/svg+xml"),
        "404": ERROR,
    },
    ("/image", "get"): {"200": ("image/png", "image/jpeg"), "304": None, "404": ERROR},
    ("/thumbnail", "get"): {"200": "image/jpeg", "404": ERROR},
    ("/api/start", "get"): {"200": START},
    ("/api/agreement", "get"): {"200": AGREEMENT},
    ("/api/gallery", "get"): {"200": GALLERY},
    ("/api/class", "get"): {"200": CLASS, "404": ERROR},
    ("/api/queue", "get"): {"200": QUEUE},
    ("/api/item", "get"): {"200": ITEM, "404": ERROR},
    ("/api/changes", "get"): {"200": CHANGES},
    ("/api/decide", "post"): DECIDED,
    ("/api/undo", "post"): DECIDED,
}
REFUSED_BY_THE_GATE = ("403", "405", "411", "413", "415", "421")


def document(gate: Gate) -> dict[str, Any]:
    """The OpenAPI document of the application behind a gate."""
    app = gate._app
    assert isinstance(app, FastAPI)
    assert app.openapi_url is None
    found = app.openapi()
    operations = {(path, method) for path, methods in found["paths"].items() for method in methods}
    assert operations == set(ANSWERS), "an operation without a contract, or a contract without its operation"
    for (path, method), answers in ANSWERS.items():
        stated = {status: _content(answer) for status, answer in answers.items()}
        refusals = dict.fromkeys(("400", "422", *REFUSED_BY_THE_GATE), _content(ERROR))
        found["paths"][path][method]["responses"] = {**refusals, **stated}
    return found


def _content(answer: Any) -> dict[str, Any]:
    if answer is None:
        return {"description": "no content"}
    if isinstance(answer, dict):
        return {"description": "JSON", "content": {"application/json": {"schema": answer}}}
    kinds = (answer,) if isinstance(answer, str) else answer
    return {"description": "a file", "content": {kind: {} for kind in kinds}}
