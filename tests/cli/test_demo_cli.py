from __future__ import annotations

import os
import subprocess
import sys

TINY = (
    "data.scenes={train: 32, val: 16, test: 16, size: 32}",
    "images={size: 32, crop_sizes: [32]}",
    "warm_up={pictures: 40, epochs: 1, batch_size: 16}",
    "model.backbone_kwargs={widths: [8, 8, 8]}",
    "model.feature_dim=8",
    "model.attention_dim=8",
    "model.pair_dim=4",
    "model.pair_hidden=4",
    "model.embedding_dim=4",
    "training={epochs: 2, stage1_epochs: 1, batch_size: 16, lr: 0.001, device: cpu}",
)


def _satl(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, "-m", "satl", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        check=False,
        timeout=600,
    )


def test_demo_from_end_to_end(tmp_path):
    out = tmp_path / "demo"
    settings = [part for setting in TINY for part in ("--set", setting)]
    done = _satl("demo", "--out", str(out), "--seed", "1", *settings)
    assert done.returncode == 0, done.stderr
    for name in ("ignore", "sst", "sst+satl"):
        assert sum(f" {name} " in line for line in done.stdout.splitlines()) == 1
    for column in ("mAP", "OF1", "CF1", "precision", "recall", "seconds"):
        assert column in done.stdout
    assert f"Report:      {out / 'report.html'}" in done.stdout
    assert f"satl review {out / 'completed'}" in done.stdout
    assert (out / "report.html").stat().st_size < 4_000_000
    assert "epoch  2  stage 2" in done.stderr
    assert "Warming up: 40 pictures of single objects" in done.stderr
    assert "learned first from 40 drawn pictures of one object each" in done.stdout


def test_a_folder_of_somebody_else_ends_in_one_sentence_and_code_2(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    refused = _satl("demo", "--out", str(tmp_path))
    assert refused.returncode == 2
    assert "mine.txt" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]
