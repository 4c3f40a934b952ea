from __future__ import annotations

from pathlib import Path

import pytest

from satl.labels.atomic import atomic_path


def test_success_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.txt"
    for text in ("one", "two"):
        with atomic_path(target) as temporary:
            temporary.write_text(text)
            assert temporary.parent == target.parent
            assert temporary.suffix == ".txt"
        assert target.read_text() == text
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_keeps_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "file.txt"
    target.write_text("old")

    def write() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_removes_a_temporary_folder(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_path(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / "part").write_text("half")
            raise ValueError

    with pytest.raises(ValueError):
        write()
    assert list(tmp_path.iterdir()) == []
