"""``satl review`` and ``satl merge`` as a user calls them."""

from __future__ import annotations

import io
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from review.synthetic import Completed, draw_table, small_folder, write_folder
from satl.images import ArrayImages, pack_images
from satl.labels import read_table, write_table
from satl.review.database import DecisionRequest, ReviewStore

Satl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def completed(tmp_path: Path) -> Completed:
    done = small_folder(tmp_path / "out")
    write_table(done.table, tmp_path / "labels.csv")
    return done


def refused(satl: Satl, *arguments: object, parts: tuple[str, ...]) -> None:
    code, out, err = satl(*arguments)
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_merge_says_what_it_did(satl: Satl, completed: Completed, tmp_path: Path) -> None:
    rows = [row for row in completed.rows if row[6] == "model"][:5]
    with ReviewStore(completed.out) as store:
        store.refresh()
        for i, row in enumerate(rows):
            store.decide("t", str(i), [DecisionRequest(row[0], row[1], 0 if i == 4 else int(row[2]), None)])
    code, out, err = satl("merge", completed.out, tmp_path / "labels.csv", "-o", tmp_path / "new.csv")
    assert (code, err) == (0, "")
    present = sum(row[2] == "1" for row in rows[:4])
    assert (
        f"{present} present, {4 - present} absent (0 more were known already, 0 overwritten, 1 skipped)"
        in out
    )
    assert out.endswith(f"Table  {tmp_path / 'new.csv'}\n")
    merged = read_table(tmp_path / "new.csv")
    assert merged.known.sum() == completed.table.known.sum() + 4
    accepted = sum(row[5] == "accepted" for row in completed.rows)
    code, out, err = satl(
        *(
            "merge",
            completed.out,
            tmp_path / "labels.csv",
            "-o",
            tmp_path / "all.csv",
            "--include",
            "accepted",
        )
    )
    assert f"Accepted by certificate: {accepted}" in out
    assert read_table(tmp_path / "all.csv").known.sum() == merged.known.sum() + accepted


def test_merge_asks_before_it_overwrites_what_is_known(
    satl: Satl, completed: Completed, tmp_path: Path
) -> None:
    row = next(row for row in completed.rows if row[6] == "label-error")
    with ReviewStore(completed.out) as store:
        store.refresh()
        store.decide("t", "1", [DecisionRequest(row[0], row[1], int(row[2]), None)])
    table, new = tmp_path / "labels.csv", tmp_path / "new.csv"
    parts = (row[0], row[1], "is known to be", "--replace-known")
    refused(satl, "merge", completed.out, table, "-o", new, parts=parts)
    refused(satl, "merge", completed.out, table, "-o", new, "--force", parts=parts)
    assert not new.exists()
    code, out, _ = satl("merge", completed.out, table, "-o", new, "--replace-known")
    assert code == 0
    assert "1 overwritten" in out
    merged = read_table(new)
    assert merged.cells[merged.images.index(row[0]), merged.classes.index(row[1])] == int(row[2])


def test_merge_asks_before_it_overwrites_a_file(satl: Satl, completed: Completed, tmp_path: Path) -> None:
    row = next(row for row in completed.rows if row[6] == "model")
    with ReviewStore(completed.out) as store:
        store.refresh()
        store.decide("t", "1", [DecisionRequest(row[0], row[1], int(row[2]), None)])
    table, new = tmp_path / "labels.npz", tmp_path / "new.csv"
    write_table(completed.table.with_truth(completed.table.cells, encoding="signed"), table)
    for precious in (new, tmp_path / "new.truth.csv"):
        precious.write_text("precious")
        parts = (f"{precious}: exists already", "--force")
        refused(satl, "merge", completed.out, table, "-o", new, parts=parts)
        assert precious.read_text() == "precious"
        precious.unlink()
    new.write_text("precious")
    assert satl("merge", completed.out, table, "-o", new, "--force")[0] == 0
    assert read_table(new).known.sum() == completed.table.known.sum() + 1
    before = table.read_bytes()
    refused(satl, "merge", completed.out, table, "-o", table, "--force", parts=("belongs to the inputs",))
    assert table.read_bytes() == before


def test_merge_names_decisions_that_found_no_place(satl: Satl, completed: Completed, tmp_path: Path) -> None:
    with ReviewStore(completed.out) as store:
        store.refresh()
        for i, row in enumerate(completed.rows[:12]):
            store.decide(
                "t",
                str(i),
                [DecisionRequest(row[0], row[1], 0 if row[6] == "label-error" else int(row[2]), None)],
            )
    images = sorted({row[0] for row in completed.rows[:12]})
    keep = [i for i, name in enumerate(completed.table.images) if name != images[0]]
    write_table(completed.table.select(keep), tmp_path / "less.csv")
    code, _, err = satl("merge", completed.out, tmp_path / "less.csv", "-o", tmp_path / "new.csv")
    assert code == 0
    assert err.startswith("Left out: ")
    assert images[0] in err


def test_wrong_uses_end_in_one_sentence(satl: Satl, completed: Completed, tmp_path: Path) -> None:
    table, new = tmp_path / "labels.csv", tmp_path / "new.csv"
    refused(satl, "review", tmp_path / "nowhere", parts=("nowhere", "is not a folder", "satl complete"))
    refused(satl, "review", tmp_path, parts=("has no report.json", "satl complete"))
    refused(
        satl, "review", completed.out, "--images", tmp_path / "no", parts=("no: does not exist", "--images")
    )
    refused(satl, "review", completed.out, "--host", "0.0.0.0", parts=("every network", "such as 192.168"))
    refused(
        satl, "review", completed.out, "--host", "no.such.host.invalid", parts=("not an address", "127.0.0.1")
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(
            satl, "review", completed.out, "--port", port, parts=(f"--port {port}: is taken", "leave it out")
        )
    refused(satl, "merge", completed.out, table, "-o", new, parts=("holds no decision", "satl review"))
    refused(satl, "merge", completed.out, table, "-o", new, "--include", "all", parts=("--include accepted",))


def test_without_the_extra_the_way_to_install_it_is_told(
    satl: Satl, completed: Completed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    refused(satl, "review", completed.out, parts=("'uvicorn'", "pip install 'satl[web]'"))


def test_the_server_prints_its_address_and_lets_one_browser_in(completed: Completed) -> None:
    command = [sys.executable, "-m", "satl", "review", str(completed.out), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        lines = [server.stdout.readline() for _ in range(3)]
        assert lines[0] == f"{len(completed.rows)} suggestions in {completed.out}\n"
        address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", lines[1])
        assert address is not None
        home = address[0].partition("?")[0]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(home)
        answer = urllib.request.urlopen(address[0])
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert answer.headers["server"] is None
        assert server.stdout.readline().startswith("Opened. For another browser: http://127.0.0.1:")
        page = urllib.request.urlopen(urllib.request.Request(home, headers={"cookie": cookie}))
        assert b"satl review" in page.read()
        server.send_signal(signal.SIGINT)
        assert (
            server.stdout.read()
            == f"Stopped. Write the decisions back: satl merge {completed.out} TABLE -o NEW\n"
        )
        assert server.wait() == 0


def test_a_completion_of_packed_images_shows_them_without_an_option(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
    table = draw_table([f"{i}.jpg" for i in range(6)], ["boat"], known=0.0)
    pack_images(ArrayImages(pixels), table.images, tmp_path / "photos.store", kind="raw")
    completed = write_folder(tmp_path / "out", table, images="photos.store")
    command = [sys.executable, "-m", "satl", "review", str(completed.out), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        home, _, token = server.stdout.readline().split()[1].partition("?")
        cookie = urllib.request.urlopen(f"{home}?{token}").headers["set-cookie"].partition(";")[0]
        asked = urllib.request.Request(f"{home}image?name={completed.rows[0][0]}", headers={"cookie": cookie})
        answer = urllib.request.urlopen(asked)
        assert answer.headers["content-type"] == "image/png"
        shown = np.asarray(Image.open(io.BytesIO(answer.read())))
        np.testing.assert_array_equal(shown, pixels[table.images.index(completed.rows[0][0])])
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0


def test_a_store_that_cannot_be_opened_ends_in_one_sentence(
    satl: Satl, completed: Completed, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "journal.jsonl").write_text("")
    refused(
        satl,
        "review",
        completed.out,
        "--images",
        tmp_path / "store",
        parts=("is not finished", "pack the same table again"),
    )


def test_merge_tells_how_far_annotators_agree_and_what_it_left_out(satl: Satl, tmp_path: Path) -> None:
    images = [f"{i:02d}.png" for i in range(50)]
    table = draw_table(images, ["boat", "cat"], known=0.0)
    rows = [(i, c, "1", "0.6", "", "review", "model", "") for c in table.classes for i in images]
    out = write_folder(tmp_path / "out", table, rows=rows).out
    write_table(table, tmp_path / "t.npz")
    with ReviewStore(out) as store:
        store.refresh()
        for who in ("ann", "bob"):
            # They differ on every tenth boat and on every fifth cat.
            cells = [
                DecisionRequest(i, c, (1, -1)[n % 2] * (-1 if who == "bob" and n % every == 0 else 1), None)
                for c, every in (("boat", 10), ("cat", 5))
                for n, i in enumerate(images)
            ]
            store.decide("t", who, cells, who)
    code, text, err = satl("merge", out, tmp_path / "t.npz", "-o", tmp_path / "new.npz")
    assert code == 0
    assert "Agreement of ann and bob: 85.0 % of 100 cells that both decided, kappa 0.70" in text
    assert "lowest for class 'cat': 0.60 of 50 cells" in text
    assert err.startswith(
        "Left out: 15 cells that annotators disagree about (such as image '00.png', class 'boat')"
    )
    assert "--disagreements latest" in err
    assert read_table(tmp_path / "new.npz").known.sum() == 85
    code, _, err = satl(
        "merge", out, tmp_path / "t.npz", "-o", tmp_path / "all.npz", "--disagreements", "latest"
    )
    assert (code, err) == (0, "")
    assert read_table(tmp_path / "all.npz").known.sum() == 100
    refused(
        satl, "merge", out, tmp_path / "t.npz", "-o", tmp_path / "no.npz", "--disagreements", "coin",
        parts=("--disagreements coin", "leave, latest, majority"),
    )  # fmt: skip
    assert not (tmp_path / "no.npz").exists()


def test_a_name_that_is_none_is_refused(satl: Satl, completed: Completed) -> None:
    for name in (" ", "x" * 65):
        refused(satl, "review", completed.out, "--annotator", name, parts=("--annotator", "give a name"))
    refused(satl, "review", completed.out, "--annotator", "ann", "--ask-name", parts=("give one of the two",))
