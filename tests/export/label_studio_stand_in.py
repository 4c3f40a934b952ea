"""A small server that answers as Label Studio does: with answers that one of version 1.23.2 gave, filled in.

``label_studio_1_23_2.json`` holds these answers. What is sent is checked as the real server does: the token, the
choices of a result against the labelling config, the fields of tasks, predictions and annotations against recorded
ones.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

RECORDED = json.loads(Path(__file__).with_name("label_studio_1_23_2.json").read_text(encoding="utf-8"))
TOKEN = "0123456789abcdef0123456789abcdef01234567"
TASK = RECORDED["tasks"]["body"]["tasks"]
ANNOTATION = RECORDED["add_annotation"]["body"]
PREDICTION = RECORDED["change_prediction"]["body"]
RESULT = {"id", "from_name", "to_name", "type", "value"}
Answer = tuple[int, Any]


class Refused(Exception):
    """An answer that says no."""

    def __init__(self, name: str, **more: Any) -> None:
        recorded = RECORDED[name]
        super().__init__(name)
        self.answer: Answer = (recorded["status"], {**recorded["body"], **more})


class StandIn:
    """The state of the server, and what happens in it."""

    def __init__(self) -> None:
        self.projects: dict[int, dict[str, Any]] = {}
        self.tasks: dict[int, list[dict[str, Any]]] = {}
        self.asked: list[tuple[str, str]] = []
        self.fails: Callable[[str, str], object] = lambda method, path: None
        self._numbers = count(1)

    def add_project(self, **fields: Any) -> int:
        number = next(self._numbers)
        self.projects[number] = {**copy.deepcopy(RECORDED["project"]["body"]), "model_version": "", **fields}
        self.projects[number]["id"] = number
        self.tasks[number] = []
        return number

    def task(self, image: str, project: int = 1) -> dict[str, Any]:
        [found] = [one for one in self.tasks[project] if one["data"].get("image_id") == image]
        return found

    def annotate(self, task: dict[str, Any], results: list[Any], person: int = 1, **more: Any) -> None:
        """What a person does in the page."""
        number = next(self._numbers)
        said = {"id": number, "result": results, "completed_by": person, "lead_time": 2.5, "task": task["id"]}
        said |= {
            "created_username": f"Some One user{person}@example.org, {person}",
            "updated_at": f"2026-11-18T21:00:{number:02d}Z",
        }
        task["annotations"].append({**copy.deepcopy(ANNOTATION), **said, **more})

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        parts = [int(part) if part.isdigit() else part for part in path.strip("/").split("/")]
        match [method, *parts]:
            case ["GET", "api", "projects"]:
                named = [one for one in self.projects.values() if query.get("title", "") in one["title"]]
                return 200, {**RECORDED["projects"]["body"], "count": len(named), "results": named}
            case ["POST", "api", "projects"]:
                return 201, self.projects[self.add_project(**body)]
            case ["GET", "api", "projects", int(number)]:
                return 200, self._project(number)
            case ["PATCH", "api", "projects", int(number)]:
                self._project(number).update(body)
                return 200, self._project(number)
            case ["POST", "api", "projects", int(number), "import"]:
                return self._import(number, body)
            case ["POST", "api", "projects", int(number), "import", "predictions"]:
                for one in body:
                    found = next(task for task in self.tasks[number] if task["id"] == one["task"])
                    self._add_prediction(number, found, one)
                return 201, {"created": len(body)}
            case ["GET", "api", "tasks"]:
                return self._page(query)
            case ["PATCH", "api", "tasks", int(number)]:
                [found] = [one for tasks in self.tasks.values() for one in tasks if one["id"] == number]
                assert set(body) == {"data"}
                found["data"] = body["data"]
                return 200, {**RECORDED["change_data"]["body"], "id": number, "data": body["data"]}
            case ["POST", "api", "tasks", int(number), "annotations"]:
                [(project, found)] = [
                    (project, one)
                    for project, tasks in self.tasks.items()
                    for one in tasks
                    if one["id"] == number
                ]
                return 201, self._add_annotation(project, found, body)
            case [_, "api", "predictions" | "annotations" as kind, int(number)]:
                [(one, among)] = [
                    (one, task[kind])
                    for tasks in self.tasks.values()
                    for task in tasks
                    for one in task[kind]
                    if one["id"] == number
                ]
                if method == "DELETE":
                    among.remove(one)
                    return 204, None
                one.update(body)
                return 200, one
        raise AssertionError(f"satl asks for {method} {path}, which no test expects")

    def _project(self, number: int) -> dict[str, Any]:
        if number not in self.projects:
            raise Refused("no_project")
        return self.projects[number]

    def _import(self, number: int, tasks: list[dict[str, Any]]) -> Answer:
        before = list(self.tasks[number])
        try:
            for one in tasks:
                assert set(one) <= {"data", "annotations", "predictions"}, one
                assert "image" in one["data"], one
                task = {**copy.deepcopy(TASK[0]), "id": next(self._numbers), "data": one["data"]}
                task |= {"annotations": [], "predictions": []}
                for annotation in one.get("annotations", ()):
                    self._add_annotation(number, task, annotation)
                for prediction in one.get("predictions", ()):
                    self._add_prediction(number, task, prediction)
                self.tasks[number].append(task)
        except BaseException:
            self.tasks[number] = before
            raise
        if not self.projects[number]["model_version"] and tasks:
            self.projects[number]["model_version"] = "satl"
        return 201, {**RECORDED["import"]["body"], "task_count": len(tasks)}

    def _add_annotation(self, project: int, task: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
        assert set(sent) <= set(ANNOTATION), set(sent) - set(ANNOTATION)
        self._check(project, sent["result"])
        one = {**copy.deepcopy(ANNOTATION), **sent, "id": next(self._numbers), "lead_time": None}
        task["annotations"].append(one)
        return one

    def _add_prediction(self, project: int, task: dict[str, Any], sent: dict[str, Any]) -> None:
        assert set(sent) <= set(PREDICTION), set(sent) - set(PREDICTION)
        assert sent.get("score") is None or 0 <= sent["score"] <= 1
        self._check(project, sent["result"])
        one = {"score": None, **sent, "id": next(self._numbers), "task": task["id"]}
        task["predictions"].append({**copy.deepcopy(PREDICTION), **one})

    def _check(self, project: int, results: list[dict[str, Any]]) -> None:
        root = ElementTree.fromstring(self.projects[project]["label_config"])
        offered = {
            one.get("name"): {c.get("value") for c in one.iter("Choice")} for one in root.iter("Choices")
        }
        for one in results:
            assert set(one) == RESULT, one
            assert set(one["value"]["choices"]) <= offered[one["from_name"]], one

    def _page(self, query: dict[str, str]) -> Answer:
        number = int(query["project"])
        self._project(number)
        assert (query["fields"], query["resolve_uri"]) == ("all", "false")
        page, size = int(query["page"]), int(query["page_size"])
        tasks = self.tasks[number][(page - 1) * size : page * size]
        if not tasks and page > 1:
            raise Refused("no_page")
        total = len(self.tasks[number])
        return 200, {**RECORDED["no_tasks"]["body"], "total": total, "tasks": tasks}


class _Handler(BaseHTTPRequestHandler):
    server: Any
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        state: StandIn = self.server.state
        parts = urlsplit(self.path)
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        state.asked.append((self.command, parts.path))
        if state.fails(self.command, parts.path):
            self.close_connection = True  # as if somebody pulled the plug
            return
        try:
            if self.headers["Authorization"] != f"Token {TOKEN}":
                raise Refused("bad_token")
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            status, content = state.answer(self.command, parts.path, query, body)
        except Refused as refused:
            status, content = refused.answer
        except AssertionError as error:
            status, content = 400, {**RECORDED["bad_config"]["body"], "detail": f"stand-in: {error}"}
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _do  # noqa: N815

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[tuple[str, StandIn]]:
    """Yield the address of a running stand-in, and its state."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.state = StandIn()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", server.state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
