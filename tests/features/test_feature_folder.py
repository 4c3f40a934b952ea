"""The folder of features: complete or resumable, the same bytes however often it was cut off, never quietly wrong."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from satl.errors import ArrayError, ConfigError, TableError
from satl.features import FeatureFolder, FeatureWriter, read_features

IDS = [f"{number}.jpg" for number in range(10)]
FEATURES = np.random.default_rng(0).normal(size=(10, 2, 3)).astype(np.float32)
MADE_BY = {"backbone": "resnet50", "size": [224, 224]}


def writer(path: Path, ids: list[str] = IDS, **changed: object) -> FeatureWriter:
    options: dict[str, object] = {"dim": 3, "views": 2, "made_by": MADE_BY, "part_rows": 4, **changed}
    return FeatureWriter(path, ids, **options)  # type: ignore[arg-type]


def write_parts(target: FeatureWriter, numbers: list[int]) -> None:
    for number in numbers:
        rows = slice(4 * number, 4 * number + 4)
        target.write_part(number, IDS[rows], FEATURES[rows])


def digests(path: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(path.iterdir())}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = FeatureFolder.write(tmp_path / "f", IDS, FEATURES, MADE_BY, part_rows=4)
    assert (folder.rows, folder.views, folder.dim, len(folder.parts)) == (10, 2, 3, 3)
    assert folder.read_ids() == tuple(IDS)
    assert folder.made_by == MADE_BY
    folder.verify()
    np.testing.assert_array_equal(np.concatenate(list(folder.arrays())), FEATURES.astype(np.float16))
    table = read_features(tmp_path / "f")
    assert table.made_by == MADE_BY
    assert sorted(file.name for file in folder.path.iterdir()) == [
        *("features-00000.npy", "features-00001.npy", "features-00002.npy"),
        *("features.json", "ids.txt"),
    ]


def test_resumed_work_ends_with_the_same_bytes(tmp_path: Path) -> None:
    FeatureFolder.write(tmp_path / "whole", IDS, FEATURES, MADE_BY, part_rows=4)
    first = writer(tmp_path / "cut")
    write_parts(first, [2, 0])
    with pytest.raises(TableError, match="the features are not complete; run the same embed"):
        read_features(tmp_path / "cut")
    # A process that was killed while it wrote leaves a hidden file, or an array without its list.
    (tmp_path / "cut" / ".features-00001.ab.partial.npy").write_bytes(b"half")
    np.save(tmp_path / "cut" / "features-00001.npy", np.zeros((4, 2, 3), dtype=np.float16))
    second = writer(tmp_path / "cut")
    assert second.missing() == [1]
    write_parts(second, [1])
    second.finish()
    (tmp_path / "cut" / ".features-00001.ab.partial.npy").unlink()
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")
    third = writer(tmp_path / "cut")
    assert third.finished
    assert third.missing() == []
    assert third.finish().rows == 10


def test_a_kill_between_record_and_clean_up_loses_nothing(tmp_path: Path) -> None:
    target = writer(tmp_path / "f")
    write_parts(target, [0, 1, 2])
    kept = {file.name: file.read_bytes() for file in (tmp_path / "f").iterdir()}
    target.finish()
    for name, content in kept.items():
        (tmp_path / "f" / name).write_bytes(content)
    assert len(read_features(tmp_path / "f")) == 10
    assert writer(tmp_path / "f").missing() == []


def test_broken_pictures_are_listed_and_left_out(tmp_path: Path) -> None:
    target = writer(tmp_path / "f")
    target.write_part(0, IDS[1:4], FEATURES[1:4], broken=[(IDS[0], "is cut off, at byte 7")])
    target.write_part(1, [], np.empty((0, 2, 3)), broken=[(name, "is no picture") for name in IDS[4:8]])
    write_parts(target, [2])
    folder = target.finish()
    assert folder.read_ids() == (*IDS[1:4], *IDS[8:])
    assert [part.rows for part in folder.parts] == [3, 2]
    assert (tmp_path / "f" / "broken.csv").read_text().splitlines()[:2] == [
        "image,reason",
        '0.jpg,"is cut off, at byte 7"',
    ]
    np.testing.assert_array_equal(
        read_features(tmp_path / "f", ["9", "2"]).take(np.arange(2)), FEATURES[[9, 2]].astype(np.float16)
    )
    with pytest.raises(TableError, match="1 of 2 images have no features"):
        read_features(tmp_path / "f", ["1.jpg", "0.jpg"])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"made_by": {"backbone": "vit"}}, "made in another way"),
        ({"ids": IDS[:9]}, "of other pictures"),
        ({"dim": 4}, "of another size"),
        ({"views": 1}, "with another number of views"),
        ({"part_rows": 5}, "in parts of another size"),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_other_features_are_not_mixed_in(
    changed: dict[str, object], told: str, finished: bool, tmp_path: Path
) -> None:
    target = writer(tmp_path / "f")
    write_parts(target, [0, 1, 2])
    if finished:
        target.finish()
    with pytest.raises(ConfigError, match=f"holds features {told}; give another folder, or pass force=True"):
        writer(tmp_path / "f", **changed)  # type: ignore[arg-type]
    again = writer(tmp_path / "f", force=True, **changed)  # type: ignore[arg-type]
    assert again.missing() == list(range(again.num_parts))


def test_other_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(ConfigError, match="has other files in it"):
            writer(tmp_path, force=force)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_wrong_arrays_are_not_written(tmp_path: Path) -> None:
    target = writer(tmp_path / "f")
    with pytest.raises(ArrayError, match=r"have the shape \(4, 1, 3\)"):
        target.write_part(0, IDS[:4], FEATURES[:4, :1])
    wrong = FEATURES[:4].copy()
    wrong[2, 1, 0] = 70_000
    with pytest.raises(TableError, match=r"row 3 \(image '2.jpg'\): number 4 is 70000, and half precision"):
        target.write_part(0, IDS[:4], wrong)
    assert target.missing() == [0, 1, 2]
    with pytest.raises(TableError, match="is no single line"):
        writer(tmp_path / "g", ids=["a\nb"])
    with pytest.raises(TableError, match="rows 1 and 2 are both about image 'a'"):
        FeatureFolder.write(tmp_path / "h", ["a", "a"], FEATURES[:2])
    assert not (tmp_path / "h").exists()


def test_damage_is_found(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        return FeatureFolder.write(tmp_path / name, IDS, FEATURES, MADE_BY, part_rows=4).path

    path = fresh("bits")
    content = bytearray((path / "features-00001.npy").read_bytes())
    content[-1] ^= 1
    (path / "features-00001.npy").write_bytes(bytes(content))
    with pytest.raises(TableError, match=r"features-00001.npy: was changed .* its checksum differs"):
        read_features(path)

    path = fresh("missing")
    (path / "features-00002.npy").unlink()
    with pytest.raises(TableError, match=r"features-00002\.npy: is missing"):
        FeatureFolder.open(path)

    path = fresh("ids")
    (path / "ids.txt").write_text("\n".join(reversed(IDS)) + "\n")
    with pytest.raises(TableError, match=r"ids\.txt: is not the list of ids"):
        read_features(path)

    for number, (change, told) in enumerate(
        (
            ({"rows": 11}, "contradicts itself"),
            ({"dim": 4}, "but the record says float16"),
            ({"format": 2}, "has the format 2"),
            ({"parts": "none"}, "is not the record"),
            ({"dim": "x"}, "is not the record"),
        )
    ):
        path = fresh(f"record{number}")
        record = json.loads((path / "features.json").read_text())
        (path / "features.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(TableError, match=told):
            FeatureFolder.open(path)
    (path / "features.json").write_text("{")
    with pytest.raises(TableError, match="cannot be read"):
        FeatureFolder.open(path)


def test_a_kill_while_features_are_replaced_leaves_a_folder_that_can_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FeatureFolder.write(tmp_path / "f", IDS, FEATURES, {"backbone": "old"}, part_rows=4)
    unlink = Path.unlink

    def killed(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".npy":
            raise KeyboardInterrupt
        unlink(self, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            writer(tmp_path / "f", force=True)
    with pytest.raises(TableError, match="not complete"):
        FeatureFolder.open(tmp_path / "f")
    with pytest.raises(ConfigError, match=r"pass force=True to replace them"):
        writer(tmp_path / "f")
    FeatureFolder.write(tmp_path / "f", IDS, FEATURES, MADE_BY, part_rows=4, force=True)
    FeatureFolder.write(tmp_path / "alone", IDS, FEATURES, MADE_BY, part_rows=4)
    assert digests(tmp_path / "f") == digests(tmp_path / "alone")


def test_a_kill_after_the_record_leaves_nothing_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FeatureFolder.write(tmp_path / "alone", IDS, FEATURES, MADE_BY, part_rows=4)
    target = writer(tmp_path / "f")
    write_parts(target, [0, 1, 2])

    unlink = Path.unlink

    def killed(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".json":
            raise KeyboardInterrupt
        unlink(self, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            target.finish()
    assert (tmp_path / "f" / "features-00000.json").is_file()
    writer(tmp_path / "f").finish()
    assert digests(tmp_path / "f") == digests(tmp_path / "alone")
