"""Send to and fetch from a Label Studio server: the SDK speaks with a stand-in that answers as the real one did."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from export.label_studio_stand_in import TOKEN, StandIn, serving
from review.synthetic import small_folder
from satl.cli import add_commands
from satl.errors import ConfigError, RunError, TableError
from satl.export import ServerProject, Source, Suggestions, import_project, send
from satl.export import label_studio_server as server_module
from satl.labels import LabelTable, read_table, write_table

pytest.importorskip("label_studio_sdk", reason="tools/setup.sh installs it")

TABLE = LabelTable(
    ("a b.jpg", "ü.jpg", "c.jpg", "d.jpg"),
    ("cat", "a <dog>"),
    np.array([[1, -1], [0, 0], [0, 0], [0, 1]]),
    encoding="signed",
)
SUGGESTED = [(1, 0, 1, 0.9, 0), (1, 1, -1, 0.1, 1), (2, 0, 1, 0.6, 1), (3, 0, -1, 0.3, 1)]
SOURCE = Source(TABLE, Suggestions.of(SUGGESTED), "satl 9", name="boats")


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, StandIn]]:
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", TOKEN)
    with serving() as found:
        yield found


def place(address: str, project: object = 1, **more: Any) -> ServerProject:
    return ServerProject(address, str(project), **more)


def choice(control: str, *names: str) -> dict[str, Any]:
    value = {"choices": list(names)}
    return {"id": "x", "from_name": control, "to_name": "image", "type": "choices", "value": value}


def fetched(address: str, folder: Path, **more: Any) -> tuple[Any, LabelTable]:
    out = folder / "new.csv"
    report = import_project(place(address), "label-studio", out, force=True, **more)
    return report, read_table(out)


def run_satl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "satl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def writes(state: StandIn) -> list[tuple[str, str]]:
    return [(method, path) for method, path in state.asked if method != "GET"]


def test_suggestions_are_predictions_and_known_cells_annotations(running: tuple[str, StandIn]) -> None:
    address, state = running
    sent = send(SOURCE, "label-studio", place(address, "new"))
    assert (sent.project, sent.tasks, sent.added, sent.place) == (1, 4, 3, f"{address}/projects/1/data")
    assert state.projects[1]["title"] == "boats"
    assert state.projects[1]["description"] == "Made by satl."
    task = state.task("ü.jpg")
    assert task["annotations"] == []
    [prediction] = task["predictions"]
    assert (prediction["score"], prediction["model_version"]) == (0.9, "satl 9")
    assert {one["from_name"]: one["value"]["choices"] for one in prediction["result"]} == {
        "present": ["cat"], "absent": ["a <dog>"],
    }  # fmt: skip
    assert (task["data"]["accepted"], task["data"]["review"]) == ({"cat": 0.9}, {"a <dog>": 0.1})
    known = state.task("a b.jpg")
    assert known["predictions"] == []
    assert known["annotations"][0]["ground_truth"] is False


def test_sending_again_changes_nothing(running: tuple[str, StandIn]) -> None:
    address, state = running
    send(SOURCE, "label-studio", place(address, "new"))
    state.projects[1]["model_version"] = "satl 9"
    before = json.dumps(state.tasks)
    state.asked.clear()
    sent = send(SOURCE, "label-studio", place(address))
    assert (sent.tasks, sent.added, sent.changed, sent.withdrawn, sent.unchanged) == (0, 0, 0, 0, 3)
    assert writes(state) == []
    assert json.dumps(state.tasks) == before


def test_sending_again_updates(running: tuple[str, StandIn]) -> None:
    address, state = running
    send(SOURCE, "label-studio", place(address, "new"))
    other = {"result": [choice("present", "cat")], "model_version": "another", "score": 0.5}
    state._add_prediction(1, state.task("c.jpg"), other)
    state.annotate(state.task("d.jpg"), [choice("absent", "a <dog>")])
    cells = TABLE.with_cells(np.array([[1, 1], [0, 1], [0, 0], [1, 0]]), "signed")
    later = Source(cells, Suggestions.of([(0, 0, -1, 0.2, 1), (1, 0, 1, 0.8, 1)]), "satl 10")
    sent = send(later, "label-studio", place(address))
    assert (sent.added, sent.changed, sent.withdrawn, sent.unchanged, sent.annotations) == (1, 1, 2, 0, 2)
    [changed] = state.task("ü.jpg")["predictions"]
    assert (changed["score"], changed["model_version"]) == (0.8, "satl 10")
    assert "accepted" not in state.task("ü.jpg")["data"]
    # The prediction of another model stays, and so does the annotation of a person and what satl wrote beside it.
    assert [one["model_version"] for one in state.task("c.jpg")["predictions"]] == ["another"]
    assert len(state.task("d.jpg")["annotations"]) == 2
    assert state.task("d.jpg")["annotations"][0]["result"][0]["value"] == {"choices": ["a <dog>"]}
    [renewed] = state.task("a b.jpg")["annotations"]
    assert renewed["result"][0]["value"] == {"choices": ["cat", "a <dog>"]}
    assert state.projects[1]["model_version"] == "satl 10"


def test_other_tasks_of_the_project_stay(running: tuple[str, StandIn]) -> None:
    address, state = running
    send(SOURCE, "label-studio", place(address, "new"))
    state._import(1, [{"data": {"image": "https://example.org/other.jpg", "note": 5}}])
    state.task("c.jpg")["data"] = {"image": "https://example.org/x/c.jpg", "image_id": "c.jpg", "mine": 1}
    sent = send(SOURCE, "label-studio", place(address))
    assert sent.others == 1
    assert state.tasks[1][-1]["data"] == {"image": "https://example.org/other.jpg", "note": 5}
    assert state.task("c.jpg")["data"]["mine"] == 1


def test_tasks_of_another_origin_get_suggestions_and_keep_their_data(running: tuple[str, StandIn]) -> None:
    address, state = running
    number = state.add_project()  # its recorded config offers cat and dog
    state._import(number, [{"data": {"image": "/data/local-files/?d=c.jpg"}}])
    table = LabelTable(("c.jpg",), ("cat", "dog"), np.array([[0, 0]]), encoding="signed")
    send(Source(table, Suggestions.of([(0, 0, 1, 0.7, 1)])), "label-studio", place(address, number))
    [task] = state.tasks[number]
    assert task["data"] == {"image": "/data/local-files/?d=c.jpg", "review": {"cat": 0.7}}
    assert len(task["predictions"]) == 1


def test_what_people_decided_comes_back(running: tuple[str, StandIn], tmp_path: Path) -> None:
    address, state = running
    send(SOURCE, "label-studio", place(address, "new"))
    state.annotate(state.task("ü.jpg"), [choice("absent", "cat")])
    state.annotate(state.task("c.jpg"), [choice("present", "cat")], was_cancelled=True)
    write_table(TABLE, tmp_path / "labels.csv")
    report, table = fetched(address, tmp_path, onto=tmp_path / "labels.csv")
    assert (report.absent, report.confirmed, report.suggestions, report.skipped) == (1, 3, 4, 1)
    assert table.cells.tolist() == [[1, -1], [-1, 0], [0, 0], [0, 1]]


def test_several_annotators_are_settled_as_in_a_review(running: tuple[str, StandIn], tmp_path: Path) -> None:
    address, state = running
    send(SOURCE, "label-studio", place(address, "new"))
    task = state.task("c.jpg")
    state.annotate(task, [choice("present", "cat", "a <dog>")], person=1)
    state.annotate(task, [choice("present", "a <dog>"), choice("absent", "cat")], person=2)
    write_table(TABLE, tmp_path / "labels.csv")
    left, table = fetched(address, tmp_path, onto=tmp_path / "labels.csv", unticked="absent")
    assert table.cells[2].tolist() == [0, 1]
    assert (left.disagreements, left.first_disagreement) == (1, ("c.jpg", "cat"))
    [pair, *_] = left.agreement
    assert (pair.first, pair.second, pair.cells, pair.agreed) == (
        "user1@example.org",
        "user2@example.org",
        2,
        1,
    )
    latest, table = fetched(address, tmp_path, onto=tmp_path / "labels.csv", disagreements="latest")
    assert table.cells[2].tolist() == [-1, 1]
    assert latest.disagreements == 0
    state.annotate(task, [choice("present", "cat")], person=3)
    _, table = fetched(address, tmp_path, onto=tmp_path / "labels.csv", disagreements="majority")
    assert table.cells[2].tolist() == [1, 1]
    with pytest.raises(ConfigError, match="is not a rule for disagreements"):
        fetched(address, tmp_path, disagreements="dice")


def test_only_disagreement_is_said_so(running: tuple[str, StandIn], tmp_path: Path) -> None:
    address, state = running
    send(Source(TABLE.with_cells(np.zeros((4, 2)), "signed")), "label-studio", place(address, "new"))
    state.annotate(state.task("c.jpg"), [choice("present", "cat")], person=1)
    state.annotate(state.task("c.jpg"), [choice("absent", "cat")], person=2)
    with pytest.raises(TableError, match="no decision on which its annotators agree"):
        fetched(address, tmp_path)
    assert not (tmp_path / "new.csv").exists()


def test_interrupted_sending_goes_on(
    running: tuple[str, StandIn], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address, state = running
    monkeypatch.setattr("satl.export.label_studio_project._AT_ONCE", 2)
    failed: list[str] = []

    def second_part(method: str, path: str) -> bool:
        """The second part arrives and is done, but the answer is lost."""
        if path.endswith("/import"):
            failed.append(path)
        return len(failed) == 2 and path.endswith("/import")

    state.fails = second_part
    with pytest.raises(
        RunError, match=r"cannot be reached .*, and 2 of 4 changes are in project 1; .*same command"
    ):
        send(SOURCE, "label-studio", place(address, "new"))
    assert len(state.tasks[1]) == 2
    state.fails = lambda method, path: None
    sent = send(SOURCE, "label-studio", place(address, "new"))
    assert (sent.project, sent.tasks, len(state.projects)) == (1, 2, 1)
    assert sorted(one["data"]["image_id"] for one in state.tasks[1]) == sorted(TABLE.images)
    # A project that is finished is not taken for one that was begun.
    assert send(SOURCE, "label-studio", place(address, "new")).project != 1


def test_a_server_that_goes_while_it_is_read_writes_nothing(
    running: tuple[str, StandIn], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address, state = running
    send(SOURCE, "label-studio", place(address, "new"))
    state.annotate(state.task("ü.jpg"), [choice("absent", "cat")])
    monkeypatch.setattr(server_module, "_PAGE", 2)
    pages: list[str] = []
    state.fails = lambda method, path: path == "/api/tasks/" and (pages.append(path) or len(pages) > 1)
    with pytest.raises(RunError, match=r"cannot be reached \(.*run the same command again"):
        fetched(address, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_silent(running: tuple[str, StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    address, state = running
    monkeypatch.setattr(server_module.LabelStudioServer.__init__, "__defaults__", (0.2,))
    done = threading.Event()
    state.fails = lambda method, path: done.wait(600)
    with pytest.raises(RunError, match=r"gave no answer within 0.2 seconds; see whether it runs"):
        send(SOURCE, "label-studio", place(address, 1))
    done.set()


@pytest.mark.parametrize(
    ("project", "message"),
    [
        ({"project": "7"}, "has no project 7; look at the number"),
        ({"project": "first"}, "is not the number of a project and not new"),
        ({"project": "1", "title": "x"}, "only a new project gets a title"),
        ({"project": "new", "title": "x"}, "title='x': is too short for Label Studio"),
        ({"address": "ftp://x", "project": "1"}, "is not the address of a server; write it as https://"),
        ({"address": "http://u:secret@x", "project": "1"}, "holds a name or a password"),
        ({"address": "http://127.0.0.1:1", "project": "1"}, "cannot be reached"),
    ],
)
def test_a_place_that_is_not_there(
    project: dict[str, str], message: str, running: tuple[str, StandIn]
) -> None:
    address, state = running
    with pytest.raises((RunError, ConfigError), match=message) as caught:
        send(SOURCE, "label-studio", ServerProject(**{"address": address, **project}))
    assert "secret" not in str(caught.value)
    assert state.projects == {}


def test_tokens(running: tuple[str, StandIn], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address, state = running
    state.add_project()
    file = tmp_path / "token"
    for content, message in (
        ("", "holds no token; copy one from Account & Settings"),
        ("a b", "holds more than a token"),
        ("wr0ng", "does not accept the token; copy it again"),
    ):
        file.write_text(content)
        for given in (place(address, token_file=file), place(address)):
            monkeypatch.setenv("LABEL_STUDIO_API_KEY", TOKEN if given.token_file else content)
            with pytest.raises((RunError, ConfigError), match=message) as caught:
                send(SOURCE, "label-studio", given)
            assert not content or content not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        send(SOURCE, "label-studio", place(address, token_file=tmp_path))
    file.write_text(f"{TOKEN}\n")
    monkeypatch.delenv("LABEL_STUDIO_API_KEY")
    with pytest.raises(RunError, match="no choice 'a <dog>' in 'present'"):  # so the token was accepted
        send(SOURCE, "label-studio", place(address, token_file=file))


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        (
            '<View><Text name="image" value="$image"/><Choices name="a" toName="image"/></View>',
            "no image called",
        ),
        (
            '<View><Image name="image" value="$x"/><Choices name="a" toName="image"/></View>',
            "no image called",
        ),
        (
            '<View><Image name="image" value="$image"/><Choices name="present" toName="image"/></View>',
            "no choices called 'present' of which several",
        ),
        ("<View", "that is not XML"),
    ],
)
def test_a_config_that_cannot_hold_the_labels(config: str, fault: str, running: tuple[str, StandIn]) -> None:
    address, state = running
    state.add_project(label_config=config)
    with pytest.raises(RunError, match=f"labelling config of project 1|project 1 has .*{fault}") as caught:
        send(SOURCE, "label-studio", place(address))
    assert fault in str(caught.value)
    assert writes(state) == []


def test_a_project_without_a_config_gets_one(running: tuple[str, StandIn]) -> None:
    address, state = running
    state.add_project(label_config="<View></View>", description="mine")
    assert send(SOURCE, "label-studio", place(address)).tasks == 4
    assert "a &lt;dog&gt;" in state.projects[1]["label_config"]
    assert state.projects[1]["description"] == "mine"


def test_two_tasks_about_one_image(running: tuple[str, StandIn]) -> None:
    address, state = running
    send(SOURCE, "label-studio", place(address, "new"))
    state._import(1, [{"data": {"image": "x", "image_id": "c.jpg"}}])
    with pytest.raises(RunError, match=r"tasks \d+ and \d+ of project 1 are both about image 'c.jpg'"):
        send(SOURCE, "label-studio", place(address))


def test_the_commands(running: tuple[str, StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user calls them, in a process of their own, with what they print and how they end."""
    address, state = running
    monkeypatch.chdir(tmp_path)
    write_table(TABLE, tmp_path / "labels.csv")
    place_of = ("-f", "label-studio", "--server", address, "--project")
    made = run_satl("export", "labels.csv", *place_of, "new")
    assert made.returncode == 0, made.stderr
    assert "Tasks: 4 new" in made.stdout
    assert f"Project 1: {address}/projects/1/data" in made.stdout
    state.annotate(state.task("ü.jpg"), [choice("present", "cat")])
    back = run_satl("import", *place_of, "1", "-o", "new.csv", "--onto", "labels.csv")
    assert back.returncode == 0, back.stderr
    assert "Decided by a person: 1 present, 0 absent (3 more were known already" in back.stdout
    for arguments, message in (
        (("export", "labels.csv", *place_of, "9"), f"error: {address}: has no project 9;"),
        (("export", "labels.csv", "-f", "coco", "--server", address), "reaches no server of format 'coco'"),
        (("export", "labels.csv", "-f", "coco"), "name a file with -o FILE, or a server"),
        (
            ("export", "labels.csv", "-f", "coco", "-o", "x.json", "--title", "t"),
            "--title belongs to --server",
        ),
        (("import", "x.json", *place_of, "1", "-o", "y.csv"), "FILE names a file, and --server a server"),
        (("import", *place_of[:-1], "-o", "y.csv"), "names no project; give --project with its number"),
    ):
        done = run_satl(*arguments)
        assert done.returncode == 2, done.stdout
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert TOKEN not in done.stdout + done.stderr


@pytest.mark.parametrize("page", ["export.md", "howto/export.md"])
def test_the_commands_of_the_pages(
    page: str, running: tuple[str, StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, state = running
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    commands = [line for line in text.splitlines() if line.startswith("satl ") and "--server https" in line]
    assert len(commands) == 2
    monkeypatch.chdir(tmp_path)
    folder = small_folder(Path(shlex.split(commands[0])[2]))
    write_table(folder.table, "labels.csv")
    app = typer.Typer()
    add_commands(app, "export", "import")
    for command in commands:
        _, *arguments = shlex.split(command.replace("https://labels.example.org", address))
        if arguments[0] == "import":
            assert arguments[arguments.index("--project") + 1] == "7"
            arguments[arguments.index("--project") + 1] = "1"
            for task in state.tasks[1]:
                state.annotate(task, task["predictions"][0]["result"])
            arguments.append("--replace-known")  # the suspected label errors of the folder
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (command, result.output, result.exception)
    assert read_table(arguments[arguments.index("-o") + 1]).known.sum() > folder.table.known.sum()
