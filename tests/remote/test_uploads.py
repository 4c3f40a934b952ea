from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from satl.errors import SatlError, Stopped
from satl.features.feature_folder import RECORD
from satl.files import CHECKSUMS
from satl.images.store import HEADER
from satl.remote import copies
from satl.remote.addresses import RemoteError, RemotePath
from satl.remote.storage import Storage
from satl.remote.uploads import COMPLETES, uploaded
from satl.scores.prediction_folder import MANIFEST

FILE, FOLDER = RemotePath("memory://bucket/out/table.csv"), RemotePath("memory://bucket/out/store")
HOW: dict[str, Any] = {"replace": False, "resumes": False, "remedy": "give another address"}


@pytest.fixture
def uploads(memory: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the names of every call that uploads, as they come."""
    calls: list[list[str]] = []
    original = Storage.upload

    def upload(self: Storage, files: Any) -> None:
        calls.append(list(files))
        original(self, files)

    monkeypatch.setattr(Storage, "upload", upload)
    return calls


def write(place: Path, names: tuple[str, ...], content: str = "new") -> None:
    for name in names:
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def fail(place: Path, name: str, what: str) -> None:
    write(place.parent, (name,))
    raise SatlError(what, where=place)


def there(memory: Any) -> dict[str, str]:
    return {name.removeprefix("/bucket/"): memory.cat(name).decode() for name in memory.find("/bucket")}


def left_here(cache: Path) -> list[str]:
    return sorted(file.name for file in cache.rglob("*") if file.is_file() and file.name != ".lock")


def test_what_makes_a_folder_whole_is_what_the_writers_call_it() -> None:
    assert set(COMPLETES) == {HEADER, RECORD, MANIFEST, CHECKSUMS}


def test_a_file_is_uploaded_when_it_is_written(memory: Any, uploads: list[list[str]], cache: Path) -> None:
    with uploaded(FILE, **HOW) as place:
        assert place.name == "table.csv"
        place.write_text("new")
        assert there(memory) == {}
    assert there(memory) == {"out/table.csv": "new"}
    assert left_here(cache) == []


def test_files_beside_it_go_first(memory: Any, uploads: list[list[str]]) -> None:
    with uploaded(FILE, **HOW) as place:
        write(place.parent, ("table.csv", "table.truth.csv", ".hidden"))
    assert uploads == [["table.truth.csv"], ["table.csv"]]
    assert there(memory) == {"out/table.csv": "new", "out/table.truth.csv": "new"}


def test_a_folder_is_whole_last(memory: Any, uploads: list[list[str]]) -> None:
    with uploaded(FOLDER, **HOW) as place:
        write(place, (HEADER, "pixels.bin", "deep/index.npz"))
    assert uploads == [["deep/index.npz", "pixels.bin"], [HEADER]]
    assert sorted(there(memory)) == [
        "out/store/deep/index.npz",
        "out/store/pixels.bin",
        f"out/store/{HEADER}",
    ]


def test_nothing_is_uploaded_after_an_error(memory: Any, uploads: list[list[str]], cache: Path) -> None:
    with (
        pytest.raises(SatlError, match=r"^memory://bucket/out/table\.csv: wrong$"),
        uploaded(FILE, **HOW) as place,
    ):
        fail(place, place.name, "wrong")
    assert (there(memory), uploads, left_here(cache)) == ({}, [], [])


def test_a_command_that_resumes_finds_what_it_left(memory: Any, cache: Path) -> None:
    how = {**HOW, "resumes": True}
    with pytest.raises(SatlError, match=str(cache)), uploaded(FOLDER, **how) as place:
        fail(place, "store/journal.jsonl", "stopped")  # what is left is here, and the message says so
    assert there(memory) == {}
    with uploaded(FOLDER, **how) as place:
        assert (place / "journal.jsonl").is_file()
        (place / "journal.jsonl").unlink()
        write(place, (HEADER,))
    assert there(memory) == {f"out/store/{HEADER}": "new"}


@pytest.mark.parametrize("address", [FILE, FOLDER])
def test_nothing_is_replaced_unasked(memory: Any, uploads: list[list[str]], address: RemotePath) -> None:
    memory.pipe("/bucket/out/table.csv", b"old")
    memory.pipe("/bucket/out/store/a", b"old")
    before = there(memory)
    with pytest.raises(RemoteError, match=f"^{address}: exists already; give another address"):
        uploaded(address, **HOW).__enter__()
    assert there(memory) == before


def test_nothing_beside_a_file_is_replaced_unasked(memory: Any, cache: Path) -> None:
    memory.pipe("/bucket/out/table.truth.csv", b"old")
    with (
        pytest.raises(
            RemoteError, match=r"table\.truth\.csv exists already beside it; what was to be uploaded is in"
        ),
        uploaded(FILE, **HOW) as place,
    ):
        write(place.parent, ("table.csv", "table.truth.csv"))
    assert there(memory) == {"out/table.truth.csv": "old"}
    assert left_here(cache) == ["table.csv", "table.truth.csv"]


def test_replacing_a_folder_leaves_no_part_of_the_old_one(memory: Any) -> None:
    for name in (RECORD, "part-000000.npy", "part-000001.npy", "notes.txt"):
        memory.pipe(f"/bucket/out/store/{name}", b"old")
    with uploaded(FOLDER, **{**HOW, "replace": True}) as place:
        write(place, (RECORD, "part-000000.npy"))
    found = {name.rpartition("/")[2]: content for name, content in there(memory).items()}
    assert found == {RECORD: "new", "part-000000.npy": "new", "notes.txt": "old"}


def test_a_folder_of_other_files_is_not_replaced(memory: Any, cache: Path) -> None:
    memory.pipe("/bucket/out/store/part-of-my-thesis.tex", b"old")
    with (
        pytest.raises(RemoteError, match="holds other files; what was to be uploaded is in"),
        uploaded(FOLDER, **{**HOW, "replace": True}) as place,
    ):
        write(place, (RECORD,))
    assert there(memory) == {"out/store/part-of-my-thesis.tex": "old"}


@pytest.mark.parametrize("fails_at", range(3))
@pytest.mark.parametrize("error", [ConnectionResetError("reset"), KeyboardInterrupt()])
def test_an_upload_that_fails_leaves_nothing_there_and_all_of_it_here(
    memory: Any, cache: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int, error: BaseException
) -> None:
    monkeypatch.setattr("satl.remote.uploads._FILES_AT_ONCE", 1)
    original, calls = memory.put, iter(range(10))

    def put(*arguments: Any) -> None:
        if next(calls) == fails_at:
            raise error
        original(*arguments)

    monkeypatch.setattr(memory, "put", put)
    kind = Stopped if isinstance(error, KeyboardInterrupt) else RemoteError
    reason = "the upload was stopped" if kind is Stopped else r"cannot be reached \(reset\)"
    with (
        pytest.raises(
            kind, match=rf"^{FOLDER}: {reason}; what was to be uploaded is in {cache}.*/store: copy it"
        ),
        uploaded(FOLDER, **HOW) as place,
    ):
        write(place, (HEADER, "index.npz", "pixels.bin"))
    assert there(memory) == {}
    assert left_here(cache) == ["index.npz", "pixels.bin", HEADER]


def test_a_file_that_cannot_replace_the_old_one_leaves_it(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/bucket/out/table.csv", b"old")

    def put(*arguments: Any) -> None:
        raise PermissionError("read only")

    monkeypatch.setattr(memory, "put", put)
    with (
        pytest.raises(RemoteError, match="access is denied"),
        uploaded(FILE, **{**HOW, "replace": True}) as place,
    ):
        place.write_text("new")
    assert there(memory) == {"out/table.csv": "old"}


def test_two_processes_do_not_write_to_one_address(memory: Any) -> None:
    with uploaded(FILE, **HOW) as place:
        with pytest.raises(RemoteError, match="another process on this machine is writing to it; wait until"):
            uploaded(FILE, **HOW).__enter__()
        place.write_text("new")
    assert copies.show is copies.no_bar
