"""A completed folder, its store, and a browser without a screen that has signed in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from review.synthetic import Completed, small_folder
from satl.review.database import ReviewStore
from satl.review.served_images import ReviewImageFiles
from satl.review.server import create_app

HOME = "http://127.0.0.1:8484"
POST = {"origin": HOME, "x-satl-review": "1", "sec-fetch-site": "same-origin"}


@pytest.fixture
def completed(tmp_path: Path) -> Completed:
    return small_folder(tmp_path / "out")


@pytest.fixture
def store(completed: Completed) -> Iterator[ReviewStore]:
    with ReviewStore(completed.out) as opened:
        opened.refresh()
        yield opened


@pytest.fixture
def client(store: ReviewStore) -> Iterator[TestClient]:
    """A client that holds the cookie and sends what the page sends."""
    gate = create_app(store, ReviewImageFiles(None, "No image folder is known."))
    with TestClient(gate, base_url=HOME, headers=POST) as signed_in:
        assert signed_in.get("/", params={"token": gate.token}).status_code == 200
        yield signed_in
