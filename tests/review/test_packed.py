"""A review of images that are in a packed store, over HTTP as a browser would."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from review.conftest import HOME, POST
from review.synthetic import draw_table, write_folder
from satl.cli.wording import shell_words
from satl.errors import ImageError
from satl.images import ArrayImages, pack_images
from satl.images.store import HEADER, INDEX, JOURNAL, PIXELS, Kind, open_store
from satl.review.database import ReviewStore
from satl.review.served_images import ReviewImages, ReviewImageStore, open_review_images
from satl.review.server import create_app

IDS = ("a.png", "deep/é ü.jpg", "no extension", "../up.png")
NOT_PACKED = ("gone.png", PIXELS, HEADER, f"../{PIXELS}", "a")


class Review(NamedTuple):
    """A page that has signed in, the store behind it, and the pixels that were packed."""

    client: TestClient
    packed: Path
    pixels: np.ndarray

    def ask(self, name: str, **headers: str):
        return self.client.get("/image", params={"name": name}, headers=headers)


def draw(count: int = len(IDS), size: int = 24) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def packed(folder: Path, kind: Kind) -> Path:
    pack_images(ArrayImages(draw()), IDS, folder, kind=kind)
    return folder


def reviewed(tmp_path: Path, pictures: ReviewImages) -> Iterator[TestClient]:
    table = draw_table((*IDS, *NOT_PACKED), ["boat"], known=0.0)
    rows = [(name, "boat", "1", "0.6", "", "review", "model", "") for name in table.images]
    with ReviewStore(write_folder(tmp_path / "out", table, rows=rows).out) as store:
        store.refresh()
        gate = create_app(store, pictures, words=shell_words)
        with TestClient(gate, base_url=HOME, headers=POST) as client:
            client.get("/", params={"token": gate.token})
            yield client


@pytest.fixture(params=["jpeg", "raw"])
def review(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Review]:
    """A review of the images of a store of either kind."""
    folder = packed(tmp_path / "store", request.param)
    for client in reviewed(tmp_path, open_review_images(tmp_path / "out", str(folder), None)):
        yield Review(client, folder, draw())


@pytest.fixture
def jpegs(tmp_path: Path) -> Iterator[Review]:
    """A review of the images of a JPEG store."""
    folder = packed(tmp_path / "store", "jpeg")
    for client in reviewed(tmp_path, ReviewImageStore(folder)):
        yield Review(client, folder, draw())


def test_every_packed_image_is_shown(review: Review) -> None:
    start = review.client.get("/api/start").json()
    assert (start["has_images"], start["images_message"]) == (True, "")
    raw = open_store(review.packed).kind == "raw"
    for name, pixels in zip(IDS, review.pixels, strict=True):
        answer = review.ask(name)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == ("image/png" if raw else "image/jpeg")
        assert answer.headers["cache-control"] == "private, max-age=600"
        assert answer.headers["x-content-type-options"] == "nosniff"
        seen = np.asarray(Image.open(io.BytesIO(answer.content)))
        assert seen.shape == pixels.shape
        assert not raw or np.array_equal(seen, pixels)


def test_jpegs_are_sent_as_they_are_stored(jpegs: Review) -> None:
    store, content = open_store(jpegs.packed), (jpegs.packed / PIXELS).read_bytes()
    for name, begin, length in zip(IDS, store.offsets, store.lengths, strict=True):
        assert jpegs.ask(name).content == content[begin : begin + length]


def test_a_browser_that_has_the_image_is_not_sent_it_again(review: Review) -> None:
    tags = {name: review.ask(name).headers["etag"] for name in IDS}
    assert len(set(tags.values())) == len(IDS)
    for known in (tags["a.png"], f'"other", W/{tags["a.png"]}'):
        answer = review.ask("a.png", **{"if-none-match": known})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == tags["a.png"]
        assert answer.headers["cache-control"].startswith("private")
    assert review.ask("a.png", **{"if-none-match": tags["no extension"]}).status_code == 200


@pytest.mark.parametrize("name", NOT_PACKED)
def test_what_the_store_lacks_is_said_and_no_file_of_it_is_served(review: Review, name: str) -> None:
    answer = review.ask(name)
    assert answer.status_code == 404
    assert answer.json()["error"] == f"'{name}' is not in the packed store '{review.packed}'."


def test_only_images_under_review_can_be_asked_for(tmp_path: Path) -> None:
    pack_images(ArrayImages(draw(1)), ["private.png"], tmp_path / "store")
    for client in reviewed(tmp_path, ReviewImageStore(tmp_path / "store")):
        answer = client.get("/image", params={"name": "private.png"})
        assert answer.status_code == 404
        assert "no suggestion is about" in answer.json()["error"]


def test_a_damaged_image_is_named_and_the_others_are_shown(review: Review) -> None:
    content = bytearray((review.packed / PIXELS).read_bytes())
    content[40] ^= 16
    (review.packed / PIXELS).write_bytes(content)
    answer = review.ask("a.png")
    assert answer.status_code == 404
    assert answer.json()["error"].startswith(
        f"image 'a.png' of packed store '{review.packed}' is damaged, its checksum is wrong; run `satl pack --check"
    )
    assert review.ask("../up.png").status_code == 200


def test_a_store_that_shrinks_or_vanishes_does_not_end_the_server(review: Review) -> None:
    content = (review.packed / PIXELS).read_bytes()
    (review.packed / PIXELS).write_bytes(content[:-100])
    answer = review.ask("../up.png")
    assert answer.status_code == 404
    assert "its checksum is wrong" in answer.json()["error"]
    assert review.ask("a.png").status_code == 200
    (review.packed / PIXELS).unlink()
    answer = review.ask("a.png")
    assert answer.status_code == 404
    assert answer.json()["error"] == "'a.png' cannot be read (No such file or directory)."


def test_bytes_that_are_no_image_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satl.images.pack._jpeg", lambda quality: lambda pixels: b"<script>private</script>")
    folder = packed(tmp_path / "store", "jpeg")
    for client in reviewed(tmp_path, ReviewImageStore(folder)):
        answer = client.get("/image", params={"name": "a.png"})
        assert answer.status_code == 404
        assert "is not an image" in answer.json()["error"]
        assert "private" not in answer.text


def test_a_store_that_is_not_finished_is_told_and_the_rest_still_works(tmp_path: Path) -> None:
    folder = packed(tmp_path / "store", "jpeg")
    (folder / HEADER).rename(folder / JOURNAL)
    with pytest.raises(ImageError, match="is not finished; pack the same table again to resume"):
        open_review_images(tmp_path / "out", None, folder)
    pictures = open_review_images(tmp_path / "out", "store", None)
    for client in reviewed(tmp_path, pictures):
        start = client.get("/api/start").json()
        assert start["has_images"] is False
        assert start["images_message"].startswith("The images cannot be shown: packed store")
        assert "is not finished" in start["images_message"]
        assert client.get("/image", params={"name": "a.png"}).json()["error"] == start["images_message"]


def test_a_header_of_another_store_is_noticed(tmp_path: Path) -> None:
    folder = packed(tmp_path / "store", "raw")
    header = (folder / HEADER).read_text()
    (folder / HEADER).write_text(header.replace('"size": 24', '"size": 25'))
    with pytest.raises(ImageError, match=f"{HEADER} does not fit {INDEX}; delete the folder"):
        ReviewImageStore(folder)


def test_where_the_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = packed(tmp_path / "project" / "photos.store", "jpeg")
    other = packed(tmp_path / "other.store", "raw")
    out = tmp_path / "project" / "out"
    for place in (tmp_path, tmp_path / "project"):
        monkeypatch.chdir(place)
        found = open_review_images(out, "photos.store", None)
        assert found.image("a.png").read() == ReviewImageStore(folder).image("a.png").read()
    assert open_review_images(out, "photos.store", other).image("a.png").read()[1] == "image/png"
