"""What users write as YAML: files and ``section.key=value`` settings, and one sentence for what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from reprlib import Repr
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from satl.errors import ConfigError, nearest
from satl.parsing import parse_yaml

_SHOWN = Repr()
_SHOWN.maxlevel = 3
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 200


def read_yaml(path: Path, wanted: str) -> dict[str, Any]:
    """Read a YAML file that must hold keys, or nothing; ``wanted`` says in messages what was expected.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give {wanted}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not valid YAML, which is UTF-8 text; fix the file.") from error
    except ValueError as error:
        raise ConfigError(
            f"{path}: is not valid YAML{' ' if str(error) else ''}{error}; fix the file."
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: must hold keys and values, not a {type(content).__name__}; give {wanted}."
        )
    return content


def validation_error(
    error: ValidationError, origin: str, model: type[BaseModel], prefix: str = ""
) -> ConfigError:
    """Return the first problem that pydantic found as an error of one sentence.

    Args:
        error: what pydantic raised.
        origin: the file or option that the content came from.
        model: the model that was validated, for the valid keys beside a misspelt one.
        prefix: of every key, such as ``method.``.

    >>> class Point(BaseModel):
    ...     sizes: tuple[int, ...] = ()
    >>> try:
    ...     Point.model_validate({"sizes": 3})
    ... except ValidationError as error:
    ...     print(validation_error(error, "point.yaml", Point))
    point.yaml: sizes: input should be a valid list (got 3); fix this value.
    """
    problems = error.errors()
    # A misspelt key often makes another one missing: the misspelling is the better news.
    problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    place = [part for part in problem["loc"] if not _is_union_tag(part)]
    # Entries of a list are counted from 1; a number can also be a key that should be a word.
    first = 0 if problem["type"] == "invalid_key" else 1
    key = prefix + ".".join(str(part + first if isinstance(part, int) else part) for part in place)
    if problem["type"] == "extra_forbidden":
        choices = _keys_beside(model, place)
        hint = nearest(str(place[-1]), choices) or f"; valid keys: {', '.join(choices)}"
        return ConfigError(f"{origin}: there is no key '{key}'{hint}.")
    if problem["type"] == "missing":
        return ConfigError(f"the key '{key}' is missing", where=origin, remedy="add it")
    message = problem["msg"].removeprefix("Value error, ")
    # What pydantic calls a tuple is a list in YAML.
    message = (message[:1].lower() + message[1:]).replace("tuple", "list")
    if not isinstance(problem["input"], dict):
        message += f" (got {_SHOWN.repr(problem['input'])})"
    return ConfigError(f"{key}: {message}" if key else message, where=origin, remedy="fix this value")


def _is_union_tag(part: str | int) -> bool:
    return isinstance(part, str) and part.startswith(("literal[", "tuple[", "function-"))


def _keys_beside(model: type[BaseModel], place: list[str | int]) -> list[str]:
    """Return the keys of the section that the last key of ``place`` stands in."""
    section = model
    for key in place[:-1]:
        if isinstance(key, str):
            section = section_model(section.model_fields[key].annotation) or section
    return list(section.model_fields)


def section_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field holds: itself, one of several kinds, or an entry of a list.

    >>> section_model(str | None) is None
    True
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for kind in get_args(annotation) if (model := section_model(kind))), None)


def plain_value(text: str) -> Any:
    """Return a value that is written as YAML.

    Raises:
        ValueError: it is not valid YAML.

    >>> plain_value("[1, two]"), plain_value("1e-4"), plain_value("null")
    ([1, 'two'], 0.0001, None)
    """
    try:
        value = parse_yaml(text)
    except ValueError as error:
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

    >>> parse_setting("method.thresholds.rate=0.3"), parse_setting("training.lr=1e-4")
    (('method.thresholds.rate', 0.3), ('training.lr', 0.0001))
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ValueError("write it as section.key=value, for example training.epochs=5")
    return key, plain_value(value)
