"""A Label Studio server, spoken to with ``label-studio-sdk``: each answer that fails becomes one sentence.

Of the SDK only the client is imported, which needs httpx, pydantic and PyJWT. Its other modules bring OpenCV, pandas
and NLTK, and pins of NumPy that an environment may not be able to follow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from satl.errors import Argument, ConfigError, RunError, Sentence, first_line
from satl.export.registry import ServerProject

TOKEN_VARIABLE = "LABEL_STUDIO_API_KEY"
"""The variable of the environment that holds the token; the SDK reads the same."""
SECONDS = 60.0
"""How long an answer may take."""
_PAGE = 100
_NOT_LABEL_STUDIO = "check that it is the address of Label Studio, without the path of a page"

T = TypeVar("T")


def read_token(file: Path | None) -> str:
    """Return the token in ``file``, or in the environment where there is no file."""
    where: Argument | str
    if file is None:
        where, text = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "")
    else:
        where = Argument("token_file", file)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ConfigError(
                f"cannot be read ({reason})",
                where=where,
                remedy="name a file that holds the token and nothing else",
            ) from None
    token = text.strip()
    if not token:
        raise ConfigError(
            "holds no token",
            where=where,
            remedy=Sentence(
                "copy one from Account & Settings in Label Studio into the variable {variable} of the environment, or "
                "into a file and name that with {token_file}",
                variable=TOKEN_VARIABLE,
                token_file=Argument("token_file"),
            ),
        )
    # What is wrong with it is not shown: an error may end in a log.
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(
            "holds more than a token",
            where=where,
            remedy="leave nothing in it but the token, in one line",
        )
    return token


def check_address(address: str) -> str:
    """Return the address of a server without a slash at its end.

    >>> check_address("https://example.org/labels/")
    'https://example.org/labels'
    """
    where = Argument("server", address)
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ConfigError(
            "is not the address of a server", where=where, remedy="write it as https://example.org"
        )
    if "@" in parts.netloc:
        raise ConfigError(
            "the address of a server holds a name or a password",
            where=Argument("server"),
            remedy="leave them out, and give a token",
        )
    return address.rstrip("/")


class LabelStudioServer:
    """A server, and what it is asked for.

    Args:
        project: where it is.
        seconds: how long an answer may take.
    """

    def __init__(self, project: ServerProject, seconds: float = SECONDS) -> None:
        self.address = check_address(project.address)
        self._seconds = seconds
        token = read_token(project.token_file)
        try:
            from label_studio_sdk.base_client import LabelStudioBase
            from label_studio_sdk.core.api_error import ApiError
        except ImportError:
            raise ConfigError(
                "needs the package label-studio-sdk",
                where=Argument("server", self.address),
                remedy="run `pip install 'satl[label-studio]'`",
            ) from None
        try:
            # A redirect would turn what is sent into a question, so none is followed.
            self._client = LabelStudioBase(
                base_url=self.address, api_key=token, timeout=seconds, follow_redirects=False
            )
        except ApiError as error:  # a personal access token tells itself that it has expired
            raise self._refusal(error) from None

    def page_of(self, project: int) -> str:
        """Return the address of a project for a person."""
        return f"{self.address}/projects/{project}/data"

    def project(self, number: int) -> Any:
        """Return a project."""
        return self._ask(self._client.projects.get, id=number, missing=f"has no project {number}")

    def projects_called(self, title: str) -> list[Any]:
        """Return the projects of this title."""
        pager = self._ask(self._client.projects.list, title=title, page_size=_PAGE)
        return [one for one in pager.items or () if one.title == title]

    def make_project(self, title: str, config: str, description: str) -> Any:
        """Make a project."""
        return self._ask(
            self._client.projects.create,
            title=title,
            label_config=config,
            description=description,
            request_options={"max_retries": 0},
        )

    def change_project(self, number: int, **fields: str) -> None:
        """Change fields of a project."""
        self._ask(self._client.projects.update, number, **fields)

    def tasks(self, project: int) -> Iterator[dict[str, Any]]:
        """Yield the tasks of a project with their annotations and predictions, page by page."""
        page, seen, total = 0, 0, 1
        while seen < total:
            page += 1
            pager = self._ask(
                self._client.tasks.list,
                project=project,
                fields="all",
                page=page,
                page_size=_PAGE,
                # Otherwise an address in a bucket would come as one that is valid for some minutes.
                resolve_uri=False,
                missing=f"has no project {project}, or tasks were removed while they were read",
            )
            total = pager.response.total
            if not isinstance(total, int):
                raise self._strange("a list of tasks without their number")
            if not pager.items:
                return
            seen += len(pager.items)
            for task in pager.items:
                yield task.model_dump(mode="json", by_alias=True)

    def add_tasks(self, project: int, tasks: list[dict[str, Any]]) -> None:
        """Make tasks with their annotations and predictions: all of them or none."""
        answer = self._ask(
            self._client.projects.import_tasks, project, request=tasks, request_options={"max_retries": 0}
        )
        if answer.task_count != len(tasks):
            raise RunError(
                f"has taken {len(tasks):,} tasks and works on them in the background",
                where=self.address,
                remedy="run the same command again when they are there",
            )

    def add_predictions(self, project: int, predictions: list[dict[str, Any]]) -> None:
        """Add predictions to tasks: all of them or none."""
        self._ask(
            self._client.projects.import_predictions,
            project,
            request=predictions,
            request_options={"max_retries": 0},
        )

    def change_prediction(self, number: int, prediction: dict[str, Any]) -> None:
        """Change a prediction."""
        fields = {key: prediction.get(key) for key in ("result", "score", "model_version")}
        self._ask(self._client.predictions.update, number, **fields)

    def remove_prediction(self, number: int) -> None:
        """Remove a prediction."""
        self._ask(self._client.predictions.delete, number)

    def add_annotation(self, task: int, annotation: dict[str, Any]) -> None:
        """Add an annotation to a task."""
        self._ask(self._client.annotations.create, task, **annotation, request_options={"max_retries": 0})

    def change_annotation(self, number: int, annotation: dict[str, Any]) -> None:
        """Change the result of an annotation."""
        self._ask(self._client.annotations.update, number, result=annotation["result"])

    def change_data(self, task: int, data: dict[str, Any]) -> None:
        """Change the data of a task."""
        self._ask(self._client.tasks.update, str(task), data=data)

    def _ask(self, call: Callable[..., T], *args: Any, missing: str | None = None, **kwargs: Any) -> T:
        """Return what the server answers.

        Args:
            missing: what it does not have if it answers that something is not there.

        Raises:
            RunError: it answers something else, or nothing.
        """
        from httpx import HTTPError, InvalidURL, TimeoutException
        from label_studio_sdk.core.api_error import ApiError
        from label_studio_sdk.core.parse_error import ParsingError
        from pydantic import ValidationError

        try:
            return call(*args, **kwargs)
        except ApiError as error:
            raise self._refusal(error, missing) from None
        except TimeoutException:
            raise RunError(
                f"gave no answer within {self._seconds:g} seconds",
                where=self.address,
                remedy="see whether it runs, and run the same command again",
            ) from None
        except (HTTPError, InvalidURL) as error:
            raise RunError(
                f"cannot be reached ({first_line(error) or type(error).__name__})",
                where=self.address,
                remedy="see whether it runs and whether the address is right, and run the same command again",
            ) from None
        except (ParsingError, ValidationError, AttributeError, TypeError, ValueError) as error:
            raise self._strange(first_line(error)) from None

    def _strange(self, what: str) -> RunError:
        return RunError(
            f"does not answer as Label Studio does ({what})", where=self.address, remedy=_NOT_LABEL_STUDIO
        )

    def _refusal(self, error: Any, missing: str | None = None) -> RunError:
        status = error.status_code
        if status in {401, 403}:
            what = (
                "does not accept the token"
                if status == 401
                else "does not allow this to the owner of the token"
            )
            remedy = (
                f"copy it again from Account & Settings into {TOKEN_VARIABLE} or the file; a legacy token has to be "
                "allowed in the settings of the organization"
                if status == 401
                else "use the token of somebody who may change the project"
            )
            return RunError(what, where=self.address, remedy=remedy)
        if status is not None and 300 <= status < 400:
            place = (error.headers or {}).get("location", "another address")
            return RunError(
                f"sends on to {place}", where=self.address, remedy="give the address that it sends on to"
            )
        if not isinstance(error.body, dict):
            return self._strange(f"status {status}")
        if status == 404 and missing is not None:
            return RunError(
                missing, where=self.address, remedy="look at the number in the address of the project"
            )
        return RunError(
            f"refuses ({_reason(error.body)})"
            if status != 404
            else f"does not have it ({_reason(error.body)})",
            where=self.address,
            remedy="correct what it says, and run the same command again",
        )


def _reason(body: dict[str, Any]) -> str:
    """Return what Label Studio says is wrong.

    >>> _reason({"detail": "Validation error", "validation_errors": {"label_config": ["no such tag"]}})
    'Validation error: label_config: no such tag'
    """
    parts = [str(body.get("detail") or "no reason given")]
    more = body.get("validation_errors")
    for key, texts in more.items() if isinstance(more, dict) else ():
        said = texts[0] if isinstance(texts, list) and texts else texts
        parts.append(str(said) if key == "non_field_errors" else f"{key}: {said}")
    return first_line(Exception(": ".join(parts)))
