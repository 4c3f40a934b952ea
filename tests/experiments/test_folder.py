from __future__ import annotations

import subprocess
import sys

import pytest

from experiments.grids import grid_of
from satl.errors import ConfigError, RunError
from satl.experiments.experiment_folder import RESULT, ExperimentFolder, write_json

GRID_RUN = grid_of().runs()[0]


def test_the_state_of_a_run(tmp_path):
    folder = ExperimentFolder(tmp_path)
    run = folder.run_path(GRID_RUN)
    assert folder.state(GRID_RUN) == "new"
    folder.write_failure(GRID_RUN, "no memory", "", {})
    assert folder.state(GRID_RUN) == "failed"
    assert folder.failure(GRID_RUN)["error"] == "no memory"
    folder.forget_failure(GRID_RUN)
    assert folder.state(GRID_RUN) == "new"
    (run / "config.yaml").write_text("")
    assert folder.state(GRID_RUN) == "started"
    write_json(run / RESULT, {"models": {}})
    assert (folder.state(GRID_RUN), folder.result(GRID_RUN)) == ("done", {"models": {}})
    (run / RESULT).write_text("{")
    with pytest.raises(RunError, match=r"result\.json: cannot be read; remove it"):
        folder.result(GRID_RUN)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(
        RunError, match=r"holds 'thesis\.txt' and no experiment; choose another folder with out"
    ):
        ExperimentFolder(tmp_path).check()
    with pytest.raises(RunError, match="is a file, not a folder"):
        ExperimentFolder(tmp_path / "thesis.txt").check()
    ExperimentFolder(tmp_path / "new").check()
    # A grid that the user keeps there must not be taken for ours, and be replaced.
    (tmp_path / "thesis.txt").rename(tmp_path / "grid.yaml")
    with pytest.raises(RunError, match=r"holds 'grid\.yaml' and no experiment"):
        ExperimentFolder(tmp_path).check()
    with pytest.raises(ConfigError, match="holds no experiment to continue; give a grid file"):
        ExperimentFolder(tmp_path / "new").read_grid()


def test_the_grid_is_kept(tmp_path):
    folder = ExperimentFolder(tmp_path)
    folder.write_grid(grid_of(title="Größe"))
    folder.check()
    assert folder.read_grid() == grid_of(title="Größe")


def test_two_experiments_cannot_share_a_folder(tmp_path):
    folder = ExperimentFolder(tmp_path / "out")
    code = (
        "import sys\nfrom satl.errors import RunError\n"
        "from satl.experiments.experiment_folder import ExperimentFolder\n"
        "try:\n    ExperimentFolder(sys.argv[1]).locked().__enter__()\n"
        "except RunError as error:\n    print(error)"
    )

    def other() -> str:
        arguments = [sys.executable, "-c", code, str(folder.path)]
        return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout

    with folder.locked():
        assert "another process is running this experiment" in other()
    assert other() == ""


def test_a_place_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunError, match=r"cannot be written to.*choose another folder with out"),
        ExperimentFolder(tmp_path / "file" / "out").locked(),
    ):
        pass
