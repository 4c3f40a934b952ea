"""Files to begin with: they are read as their programs read them, and start what their page says.

What they call is compared with the command line in test_code_blocks.py.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from programs import ROOT

PAGE = ROOT / "docs" / "howto" / "several_machines.md"
SLURM = ROOT / "examples" / "slurm" / "train.sbatch"
KUBERNETES = ROOT / "examples" / "kubernetes" / "job.yaml"
STAND_INS = {
    "torchrun": 'printf "%s\\n" "$@"',
    "srun": 'test "$SRUN_CPUS_PER_TASK" = 32 && exec "$@"',
    "scontrol": 'test "$*" = "show hostnames node[1-2]" && printf "node1\\nnode2\\n"',
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with programs in place of those of a cluster; torchrun prints its arguments."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, line in STAND_INS.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def arguments(command: list[str], programs: Path, folder: Path, **environment: str) -> dict[str, str]:
    """Return the options of torchrun that an example starts in a folder, and as ``satl`` what follows them."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    before, satl = done.stdout.split("-m\nsatl\n")
    words = before.splitlines()
    return dict(zip(words[::2], words[1::2], strict=True)) | {"satl": " ".join(satl.splitlines())}


def assert_begins_and_resumes(command: list[str], programs: Path, folder: Path, **environment: str) -> None:
    new = arguments(command, programs, folder, **environment)
    assert new["satl"] == "train run.yaml --out runs/first --quiet"
    (folder / "runs" / "first").mkdir(parents=True)
    (folder / "runs" / "first" / "config.yaml").touch()
    resumed = arguments(command, programs, folder, **environment)
    assert resumed["satl"] == "train --resume runs/first --quiet"
    assert {**resumed, "satl": ""} == {**new, "satl": ""}  # the same processes


def documents() -> tuple[dict[str, Any], dict[str, Any]]:
    service, job = yaml.safe_load_all(KUBERNETES.read_text(encoding="utf-8"))
    return service, job


def container() -> dict[str, Any]:
    (one,) = documents()[1]["spec"]["template"]["spec"]["containers"]
    return dict(one)


def test_the_slurm_script_is_a_script() -> None:
    done = subprocess.run(["bash", "-n", str(SLURM)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = SLURM.read_text(encoding="utf-8").splitlines()
    options = [number for number, line in enumerate(lines) if line.startswith("#SBATCH ")]
    first_command = next(n for n, line in enumerate(lines) if line and not line.startswith("#"))
    assert max(options) < first_command  # sbatch reads no further


def test_the_slurm_script_begins_a_run_and_goes_on_with_it(programs: Path, tmp_path: Path) -> None:
    job = {"SLURM_JOB_ID": "123456", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node[1-2]"}
    job |= {"SLURM_CPUS_PER_TASK": "32"}
    command = ["bash", str(SLURM)]
    found = arguments(command, programs, tmp_path, **job)
    assert (found["--nnodes"], found["--nproc-per-node"]) == ("2", "4")
    assert (found["--rdzv-backend"], found["--rdzv-endpoint"]) == ("c10d", "node1:23456")
    assert_begins_and_resumes(command, programs, tmp_path, **job)


def test_the_parts_of_the_kubernetes_job_fit_together() -> None:
    service, job = documents()
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    pod = job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert job["spec"]["completionMode"] == "Indexed"
    environment = {one["name"]: one["value"] for one in container()["env"]}
    assert str(job["spec"]["completions"]) == str(job["spec"]["parallelism"]) == environment["NODES"]
    assert str(container()["resources"]["limits"]["nvidia.com/gpu"]) == environment["GPUS_PER_NODE"]
    mounted = {one["name"] for one in container()["volumeMounts"]}
    assert mounted == {one["name"] for one in pod["volumes"]}


def test_the_kubernetes_job_begins_a_run_and_goes_on_with_it(programs: Path, tmp_path: Path) -> None:
    service, job = documents()
    environment = {one["name"]: one["value"] for one in container()["env"]} | {"JOB_COMPLETION_INDEX": "0"}
    command = [*container()["command"], *container()["args"]]
    found = arguments(command, programs, tmp_path, **environment)
    assert (found["--nnodes"], found["--nproc-per-node"]) == ("2", "4")
    first = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert found["--rdzv-endpoint"] == f"{first}:{service['spec']['ports'][0]['port']}"
    assert found["--rdzv-conf"] == "is_host=1"
    other = arguments(command, programs, tmp_path, **{**environment, "JOB_COMPLETION_INDEX": "1"})
    assert {**other, "--rdzv-conf": "is_host=1"} == found
    assert_begins_and_resumes(command, programs, tmp_path, **environment)


def test_the_page_explains_what_is_to_be_filled_in() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert container()["image"] == "IMAGE"
    (claim,) = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in documents()[1]["spec"]["template"]["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    for word in (container()["image"], claim):
        assert f"* `{word}`, " in page
