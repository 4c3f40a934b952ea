"""Published settings as YAML: a data set, a framework, and the method that names them.

``datasets/`` says where labels and images come from and how images are cropped, ``frameworks/`` holds network,
optimiser and schedule. A recipe ``DATASET/METHOD`` is both together with the method's name; the methods of one
framework (``sst``, ``sst+sate``, ``sst+satl``...) share its file, as the paper compares them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from satl.errors import Argument, ConfigError, Sentence, Task, nearest
from satl.recipes.method_list import listed_methods

_FOLDER = Path(__file__).parent


def recipe_datasets() -> tuple[str, ...]:
    """Return the names of the data sets that have recipes.

    >>> recipe_datasets()
    ('coco', 'vg200', 'voc2007')
    """
    return tuple(sorted(path.stem for path in (_FOLDER / "datasets").glob("*.yaml")))


def recipe_names() -> tuple[str, ...]:
    """Return the names of all recipes, by data set.

    >>> "coco/sst+satl" in recipe_names()
    True
    """
    return tuple(f"{dataset}/{method}" for dataset in recipe_datasets() for method in listed_methods())


def read_recipe(name: str) -> dict[str, dict[str, Any]]:
    """Return the content of a recipe, to which the place of the data must be added.

    >>> recipe = read_recipe("coco/hst+satl")
    >>> recipe["method"]["name"], recipe["training"]["batch_size"], recipe["images"]["size"]
    ('hst+satl', 32, 448)
    """
    names = recipe_names()
    if name not in names:
        raise ConfigError(
            f"there is no such recipe{nearest(name, names)}",
            where=Argument("recipe", name),
            remedy=Sentence("{recipes} lists them", recipes=Task("recipes")),
        )
    dataset, _, method = name.partition("/")
    framework = _FOLDER / "frameworks" / f"{listed_methods()[method].framework}.yaml"
    if not framework.is_file():
        framework = _FOLDER / "frameworks" / "other.yaml"
    content = _read(_FOLDER / "datasets" / f"{dataset}.yaml") | _read(framework)
    content["method"] = {"name": method, **content.get("method", {})}
    return content


def _read(path: Path) -> dict[str, dict[str, Any]]:
    import yaml  # here, because lists of names start sooner without it

    content: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content
