"""The client of S3 against a server that speaks S3: moto, in this process. `make test-remote` has what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from satl.remote.addresses import RemoteError, RemotePath
from satl.remote.copies import fill, local_copy, picture_folder
from satl.remote.storage import Storage
from satl.remote.uploads import uploaded

pytest.importorskip("s3fs", reason="make test-remote")
server = pytest.importorskip("moto.server", reason="make test-remote")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Return the address of an empty server."""
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def bucket(endpoint: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the client of a server with an empty bucket that is called ``bucket``."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    import boto3
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    for item in client.list_objects_v2(Bucket="bucket").get("Contents", ()):
        client.delete_object(Bucket="bucket", Key=item["Key"])
    return client


def put(client: Any, key: str, body: bytes) -> None:
    client.put_object(Bucket="bucket", Key=key, Body=body)


def test_a_file_is_fetched_again_only_when_it_changed(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bucket, "data/labels.csv", b"one")
    assert local_copy("s3://bucket/data/labels.csv").read_bytes() == b"one"
    with monkeypatch.context() as patched:
        patched.delattr(Storage, "fetch")
        assert local_copy("s3://bucket/data/labels.csv").read_bytes() == b"one"
    put(bucket, "data/labels.csv", b"two")
    assert local_copy("s3://bucket/data/labels.csv").read_bytes() == b"two"


def test_pictures_are_listed_and_fetched_by_name(bucket: Any) -> None:
    for number in range(1100):  # more than one page of a listing
        put(bucket, f"photos/{number:04d}.jpg", b"%d" % number)
    put(bucket, "photos/", b"")  # what some programs make for a folder
    folder = picture_folder("s3://bucket/photos/")
    fill(folder, ["0007.jpg", "1099", "none.jpg"])
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        "0007.jpg": b"7",
        "1099.jpg": b"1099",
    }


@pytest.mark.parametrize(
    "address", ["s3://nobucket/a.csv", "s3://bucket/none.csv", "s3://bucket/photos/none"]
)
def test_what_is_not_there(bucket: Any, address: str) -> None:
    with pytest.raises(RemoteError, match=f"^{address}: does not exist; check the address"):
        local_copy(address)


def test_no_credentials(bucket: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(RemoteError, match=r"no credentials are found .*; set up the credentials"):
        local_copy("s3://bucket/a.csv")


def test_no_network(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(RemoteError, match=r"cannot be reached .*; check the network"):
        local_copy("s3://bucket/a.csv")


def test_denied_access(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    async def denied(*arguments: Any, **further: Any) -> None:
        raise s3fs.errors.translate_boto_error(_forbidden())

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", denied)
    with pytest.raises(RemoteError, match=r"access is denied \(.*\); set up the credentials"):
        local_copy("s3://bucket/a.csv")


def write_store(place: Path) -> None:
    place.mkdir()
    (place / "pixels.bin").write_bytes(bytes(12 << 20))
    (place / "store.json").write_text("{}")


def keys(client: Any) -> list[str]:
    return [item["Key"] for item in client.list_objects_v2(Bucket="bucket").get("Contents", ())]


def test_a_folder_is_uploaded_and_read_back(bucket: Any) -> None:
    address = RemotePath("s3://bucket/out/store")
    with uploaded(address, replace=False, resumes=False, remedy="") as place:
        write_store(place)
        assert keys(bucket) == []
    assert keys(bucket) == ["out/store/pixels.bin", "out/store/store.json"]
    assert (local_copy(address) / "pixels.bin").stat().st_size == 12 << 20
    with pytest.raises(RemoteError, match="exists already; another"):
        uploaded(address, replace=False, resumes=False, remedy="another").__enter__()


def test_an_upload_that_is_cut_off_leaves_nothing(
    bucket: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    original = s3fs.S3FileSystem._call_s3

    async def cut(self: Any, method: str, *arguments: Any, **further: Any) -> Any:
        if further.get("Key", "").endswith("store.json") and method == "put_object":
            raise ConnectionResetError("reset by peer")
        return await original(self, method, *arguments, **further)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", cut)
    with (
        pytest.raises(
            RemoteError, match=r"cannot be reached \(reset by peer\); what was to be uploaded is in"
        ),
        uploaded(RemotePath("s3://bucket/out"), replace=False, resumes=True, remedy="") as place,
    ):
        write_store(place)
    assert keys(bucket) == []
    assert (place / "store.json").is_file()


def test_a_bucket_that_is_not_there_is_told_before_the_work(bucket: Any) -> None:
    with pytest.raises(RemoteError, match=r"^s3://nobucket/a\.csv: does not exist"):
        uploaded(RemotePath("s3://nobucket/a.csv"), replace=False, resumes=False, remedy="").__enter__()


def _forbidden() -> Exception:
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, "HeadObject")
