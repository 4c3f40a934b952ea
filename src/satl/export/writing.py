"""Write an export completely or not at all."""

from __future__ import annotations

from pathlib import Path

from satl.checks.formulas import warn_of_formulas
from satl.errors import Argument, Sentence, TableError
from satl.export.content import Source
from satl.export.registry import MAIN, Sent, ServerProject, find_server, find_tool
from satl.files import atomic_paths


def export(source: Source, format: str, out: str | Path, *, force: bool = False) -> tuple[Path, ...]:
    """Write ``source`` in a format of ``TOOLS``; return the files, the one called ``out`` first.

    Args:
        force: replace the files of an earlier export; one that is no longer needed is removed.

    >>> import tempfile, numpy as np
    >>> from satl.export import Suggestions
    >>> from satl.labels import LabelTable
    >>> table = LabelTable(("a.jpg",), ("cat", "dog"), np.array([[1, 0]]), encoding="signed")
    >>> file = Path(tempfile.mkdtemp()) / "metadata.jsonl"
    >>> [path.name for path in export(Source(table, Suggestions.of([(0, 1, 1, 0.7, 1)])), "huggingface", file)]
    ['metadata.jsonl', 'metadata.classes.json']
    >>> print(file.read_text().replace(', "neg', ',\\n "neg'), end="")
    {"file_name": "a.jpg", "positive": ["cat"],
     "negative": [], "predictions": [{"label": "dog", "value": 1, "score": 0.700000, "band": "review"}]}
    """
    target = Path(out)
    tool = find_tool(format, target)
    files = tool.files(target)
    for file in files.values():
        if file.is_dir():
            raise TableError("is a folder", where=file, remedy="name another file")
        if file.exists() and not force:
            raise TableError(
                "exists already",
                where=file,
                remedy=Sentence(
                    "name another file, or pass {force} to overwrite it", force=Argument("force", True)
                ),
            )
    roles = tool.roles(source)
    warn_of_formulas(target, source.table.images, source.table.classes)
    try:
        first = sorted(roles, key=lambda role: role != MAIN)
        with atomic_paths([files[role] for role in first]) as temporary:
            tool.write(source, dict(zip(first, temporary, strict=True)))
    except TableError as error:
        # Writers see a temporary name; the error names the file that the user asked for.
        raise error.at(target) from None
    except OSError as error:
        raise TableError(
            f"{target} cannot be written ({error.strerror or error}): choose another place."
        ) from None
    for role, file in files.items():
        if role not in roles:
            file.unlink(missing_ok=True)
    return tuple(files[role] for role in first)


def send(source: Source, format: str, project: ServerProject) -> Sent:
    """Send ``source`` to a project on the server of a tool; what is there already is not sent again.

    An interrupted call is repeated and goes on.
    """
    return find_server(format).send(source, project)
