from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from satl.images.store import HEADER, JOURNAL
from satl.remote import copies
from satl.remote.addresses import RemoteError, RemotePath
from satl.remote.copies import STORE_FILES, Mirror, fill, local_copy, picture_folder
from satl.remote.storage import Storage

Fetched = list[list[str]]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    """Return the names of every call that fetches, as they come."""
    calls: Fetched = []
    original = Storage.fetch

    def fetch(self: Storage, files: Any) -> None:
        calls.append(list(files))
        original(self, files)

    monkeypatch.setattr(Storage, "fetch", fetch)
    return calls


def test_a_file_is_fetched_once_and_again_when_it_changed(memory: Any, fetched: Fetched) -> None:
    memory.pipe("/bucket/labels.csv", b"one")
    for _ in range(2):
        assert local_copy("memory://bucket/labels.csv").read_bytes() == b"one"
    assert fetched == [["labels.csv"]]
    memory.pipe("/bucket/labels.csv", b"two")
    assert local_copy("memory://bucket/labels.csv").read_bytes() == b"two"
    assert len(fetched) == 2


def test_a_copy_that_was_cut_here_is_fetched_again(memory: Any, fetched: Fetched) -> None:
    memory.pipe("/bucket/labels.csv", b"whole")
    copy = local_copy("memory://bucket/labels.csv")
    copy.write_bytes(b"who")
    assert local_copy("memory://bucket/labels.csv").read_bytes() == b"whole"


def test_local_paths_are_left_alone(cache: Path, tmp_path: Path) -> None:
    assert local_copy(tmp_path / "a.csv") == picture_folder(tmp_path / "a.csv") == tmp_path / "a.csv"
    fill(tmp_path, ["a.jpg"])
    assert not cache.exists()


def test_only_pictures_that_a_table_names_are_fetched(memory: Any, fetched: Fetched) -> None:
    for name in ("a.jpg", "deep/b.png", "c.jpg", "notes.txt"):
        memory.pipe(f"/bucket/photos/{name}", name.encode())
    folder = picture_folder("memory://bucket/photos")
    assert fetched == []
    fill(folder, ["./a.jpg", "deep/b", "missing.jpg", "../notes.txt"])
    assert sorted(fetched[0]) == ["a.jpg", "deep/b.png"]
    assert sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.*")) == [
        "a.jpg",
        "deep/b.png",
    ]
    fill(folder, ["a.jpg", "c.jpg"])
    assert fetched[1:] == [["c.jpg"]]


def test_what_is_gone_behind_the_address_is_gone_here(memory: Any) -> None:
    for name in ("a.jpg", "b.jpg"):
        memory.pipe(f"/photos/{name}", b"x")
    folder = local_copy("memory://photos")
    memory.rm("/photos/a.jpg")
    assert local_copy("memory://photos") == folder
    assert [file.name for file in folder.iterdir()] == ["b.jpg"]
    memory.rm("/photos/b.jpg")
    memory.pipe("/photos/c.jpg", b"x")
    fill(picture_folder("memory://photos"), ["b.jpg", "c.jpg"])
    assert [file.name for file in folder.iterdir()] == ["c.jpg"]


def test_a_packed_store_is_fetched_as_a_whole(memory: Any) -> None:
    assert STORE_FILES == (HEADER, JOURNAL)
    for name in (HEADER, "pixels.bin"):
        memory.pipe(f"/bucket/store/{name}", b"{}")
    folder = picture_folder("memory://bucket/store")
    assert sorted(file.name for file in folder.iterdir()) == ["pixels.bin", HEADER]


def test_names_that_lead_elsewhere_are_left_out(memory: Any, cache: Path) -> None:
    memory.store["/bucket/../../evil.txt"] = memory.store["/bucket/a.txt"] = _file(memory)
    folder = local_copy("memory://bucket")
    assert [file.name for file in folder.iterdir()] == ["a.txt"]
    assert not list(cache.rglob("evil*"))


def _file(memory: Any) -> Any:
    memory.pipe("/made", b"x")
    return memory.store.pop("/made")


def test_ids_beside_an_array_come_along(memory: Any) -> None:
    memory.pipe("/bucket/vectors.npy", b"x")
    memory.pipe("/bucket/vectors.txt", b"a.jpg")
    assert local_copy("memory://bucket/vectors.npy").with_suffix(".txt").read_bytes() == b"a.jpg"


@pytest.mark.parametrize("reach", [0, 2])
def test_what_is_cut_off_leaves_nothing(memory: Any, monkeypatch: pytest.MonkeyPatch, reach: int) -> None:
    memory.pipe("/bucket/labels.csv", b"whole")

    def cut(self: Storage, files: dict[str, Path]) -> None:
        for place in files.values():
            place.write_bytes(b"whole"[:reach])

    monkeypatch.setattr(Storage, "fetch", cut)
    with pytest.raises(
        RemoteError, match=r"^memory://bucket/labels\.csv: was cut off .*; run the command again\.$"
    ):
        local_copy("memory://bucket/labels.csv")
    mirror = Mirror("memory://bucket")
    assert not mirror.at("labels.csv").exists()
    assert not mirror.knows("labels.csv")
    assert not list(mirror.place.parent.glob("incoming-*"))


def test_a_file_that_changes_while_it_is_read_is_refused(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/bucket/labels.csv", b"one")
    original = Storage.fetch

    def change(self: Storage, files: dict[str, Path]) -> None:
        original(self, files)
        memory.pipe("/bucket/labels.csv", b"two")

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "fetch", change)
        with pytest.raises(RemoteError, match="was changed while it was read"):
            local_copy("memory://bucket/labels.csv")
    assert local_copy("memory://bucket/labels.csv").read_bytes() == b"two"


def test_one_process_at_a_time_changes_a_mirror(memory: Any, fetched: Fetched) -> None:
    memory.pipe("/bucket/labels.csv", b"one")
    with Mirror("memory://bucket")._locked():
        other = threading.Thread(target=local_copy, args=("memory://bucket/labels.csv",))
        other.start()
        other.join(0.5)
        assert other.is_alive()
        assert fetched == []
    other.join()
    assert fetched == [["labels.csv"]]


def test_without_a_cache_copies_last_as_long_as_the_process(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATL_CACHE", "off")
    copies.remote_folder.cache_clear()
    memory.pipe("/bucket/labels.csv", b"one")
    assert local_copy("memory://bucket/labels.csv").read_bytes() == b"one"


def test_too_little_room_is_told_before_anything_is_fetched(
    memory: Any, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/bucket/labels.csv", b"one")
    usage = type("Usage", (), {"free": 2})
    monkeypatch.setattr(copies.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(RemoteError, match=r"has room for .*; make room, or name a folder .* in SATL_CACHE"):
        local_copy("memory://bucket/labels.csv")
    assert fetched == []


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("memory://bucket/none.csv", "does not exist; check the address: bucket, folders and name"),
        (
            "nowhere://bucket/a.csv",
            "cannot be opened (Protocol not known: nowhere); check the address and try again.",
        ),
        ("http://127.0.0.1:9/a.csv", "cannot be reached (Cannot connect to host 127.0.0.1:9"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(memory: Any, address: str, message: str) -> None:
    with pytest.raises(RemoteError) as error:
        local_copy(address)
    assert str(error.value).startswith(f"{address}: {message}")


def test_a_missing_client_is_named_with_its_extra(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(address: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(
        RemoteError, match=r"a package that is missing \(Install s3fs .*\); install 'satl\[remote\]'"
    ):
        local_copy("s3://bucket/a.csv")


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (PermissionError("Forbidden"), r"access is denied \(Forbidden\); set up the credentials"),
        (type("NoCredentialsError", (Exception,), {})("none"), r"no credentials are found \(none\); set up"),
        (ConnectionResetError("reset"), r"cannot be reached \(reset\); check the network"),
        (TimeoutError(), r"cannot be reached \(TimeoutError\); check the network"),
        (ValueError("odd\nand long"), r"cannot be read \(odd\); check the address"),
    ],
)
def test_errors_of_clients_are_told_in_one_sentence(
    memory: Any, monkeypatch: pytest.MonkeyPatch, raised: Exception, message: str
) -> None:
    def fail(path: str) -> None:
        raise raised

    monkeypatch.setattr(memory, "info", fail)
    with pytest.raises(RemoteError, match=f"^memory://bucket/a.csv: {message}"):
        local_copy("memory://bucket/a.csv")


def test_a_full_disk_here_stays_an_error_of_the_disk(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/bucket/a.csv", b"x")

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(memory, "get", full)
    with pytest.raises(OSError, match="No space left"):
        local_copy("memory://bucket/a.csv")


def test_errors_name_the_address_and_not_the_copy(memory: Any) -> None:
    from satl.errors import TableError

    memory.pipe("/bucket/a.csv", b"x")
    copy = local_copy("memory://bucket/a.csv")
    assert str(TableError("row 3 is empty", where=copy)) == "memory://bucket/a.csv: row 3 is empty"


def test_web_servers_are_read_too(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,cat\n")
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        copy = local_copy(f"{base}/labels.csv?token=secret")
        assert (copy.name, copy.read_text()) == ("labels.csv", "image,cat\n")
        with pytest.raises(RemoteError, match="does not exist"):
            local_copy(f"{base}/none.csv")
        server.shutdown()


@pytest.mark.parametrize(
    "use", [Path.exists, Path.is_dir, Path.read_bytes, lambda path: path.mkdir(parents=True), open]
)
def test_an_address_is_never_taken_for_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Any], Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RemoteError, match="is not on this machine"):
        use(RemotePath("s3://bucket/a/b"))
    assert list(tmp_path.iterdir()) == []
