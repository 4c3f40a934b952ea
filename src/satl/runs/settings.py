"""What users write as YAML: files, and ``section.key=value`` settings. What is wrong is said in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from satl.errors import ConfigError


def read_yaml(path: Path, wanted: str) -> dict[str, Any]:
    """Read a YAML file that must hold keys, or nothing; ``wanted`` says in messages what was expected.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give {wanted}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        place = getattr(error, "problem_mark", None)
        line = f" at line {place.line + 1}" if place is not None else ""
        raise ConfigError(f"{path}: is not valid YAML{line}; mend the file.") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: must hold keys and values, not a {type(content).__name__}; give {wanted}."
        )
    return content


def problem_words(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, and the value, from a problem that pydantic found.

    >>> problem_words({"msg": "Input should be a valid tuple", "input": 3})
    'input should be a valid list (got 3)'
    """
    message = problem["msg"].removeprefix("Value error, ")
    # What pydantic calls a tuple is a list in YAML.
    message = (message[:1].lower() + message[1:]).replace("tuple", "list")
    return message if isinstance(problem["input"], dict) else f"{message} (got {problem['input']!r})"


def plain_value(text: str) -> Any:
    """Return a value that is written as YAML.

    Raises:
        ValueError: it is not valid YAML.

    >>> plain_value("[1, two]"), plain_value("1e-4"), plain_value("null")
    ([1, 'two'], 0.0001, None)
    """
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError("the value is not valid YAML") from error
    if isinstance(value, str):
        try:  # YAML 1.1 reads 1e-4 as a word, because it lacks the dot
            return float(value)
        except ValueError:
            return value
    return value


def parse_setting(text: str) -> tuple[str, Any]:
    """Return key and value of a ``section.key=value`` setting; the value is read as YAML.

    Raises:
        ValueError: it is no setting, with a message that says what to write.

    >>> parse_setting("method.rate=0.3"), parse_setting("training.lr=1e-4")
    (('method.rate', 0.3), ('training.lr', 0.0001))
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ValueError("write it as section.key=value, for example training.epochs=5")
    return key, plain_value(value)
