"""A run as a folder that others can predict with, and its way to the Hugging Face Hub.

Only the network of the best epoch is shared, with what is needed to build it and a card: no picture, no table, no name
of an image, no decision of a person, and nothing of what generators and threshold rules remember of training images.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from satl.errors import Argument, ConfigError, RunError, first_line
from satl.files import atomic_path, write_checksums
from satl.models.class_prompts import PREFIX
from satl.reports.model_card import model_card
from satl.runs.config import RunConfig
from satl.runs.reading import path_keys
from satl.runs.run_folder import RunFolder

CARD = "README.md"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


@dataclass(frozen=True)
class SharedFolder:
    """A run as it is shared.

    Attributes:
        path: the folder, which others can predict with.
        sizes: bytes of each file in it, by its place.
    """

    path: Path
    sizes: dict[str, int]


@contextmanager
def shared_folder(run: Path | str, completed: Path | str | None = None) -> Iterator[SharedFolder]:
    """Yield a temporary folder with what is shared of a finished run.

    Args:
        run: its folder. A ``README.md`` in it is taken as the card; otherwise one is written.
        completed: folder of a completion with its model, for the certificates of the card.

    Raises:
        RunError: the run is not finished, or a file of it cannot be read.
    """
    folder = RunFolder.open(run)
    own = folder.path / CARD
    card = model_card(run, completed)  # first: it refuses a run that is not finished
    if own.is_file():
        card = own.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="satl-share-") as place:
        shared = RunFolder(place)
        best = shared.checkpoints / "best"
        best.mkdir(parents=True)
        (shared.path / CARD).write_text(card, encoding="utf-8")
        content = without_folders(folder.read_config())
        shared.config.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        for source, copy in ((folder.classes, shared.classes), (folder.data, shared.data)):
            if source.is_file():
                shutil.copyfile(source, copy)
        _write_network(folder, best)
        write_checksums(best)
        files = sorted(file for file in shared.path.rglob("*") if file.is_file())
        sizes = {file.relative_to(shared.path).as_posix(): file.stat().st_size for file in files}
        yield SharedFolder(shared.path, sizes)


def push_run(shared: SharedFolder, repository: str, public: bool = False, api: Any = None) -> str:
    """Upload a shared folder as one commit, and return the address of the repository.

    Args:
        shared: what is uploaded; nothing else is.
        repository: ``OWNER/NAME`` on the Hub; it is made where it is not there.
        public: whether a new repository may be seen by everybody, and whether one that is there and can be is accepted.
        api: what talks to the Hub; None: ``huggingface_hub.HfApi()``, with the login of this machine.

    Raises:
        ConfigError: the repository has no such name, or is public against the wish.
        RunError: the Hub cannot be reached, or refuses.
    """
    require_repository(repository)
    if api is None:
        from huggingface_hub import HfApi

        api = HfApi()
    try:
        # One that is there already keeps who may see it.
        seen = api.repo_exists(repository) and not api.repo_info(repository).private
        if not seen or public:
            address = str(api.create_repo(repository, private=not public, exist_ok=True))
            api.upload_folder(
                repo_id=repository, folder_path=str(shared.path), commit_message="Upload a model of satl"
            )
            return address
    except Exception as error:
        # No login, no right, no network, a full disk of the cache: each has errors of its own in each version.
        raise RunError(
            f"nothing was uploaded ({type(error).__name__}: {first_line(error)})",
            where=repository,
            remedy="log in with `hf auth login`, look at the name and at the network, and try again",
        ) from error
    raise ConfigError(
        "the repository is there already and everybody can see it",
        where=repository,
        remedy="choose another one, or say that it may be public",
    )


def require_repository(repository: str) -> None:
    """Refuse what is no ``OWNER/NAME``."""
    if not _REPOSITORY.fullmatch(repository):
        raise ConfigError(
            "is no name of a repository on the Hub",
            where=Argument("repository", repository),
            remedy="write OWNER/NAME, such as alice/birds",
        )


def without_folders(config: RunConfig) -> dict[str, Any]:
    """Return a configuration as plain data in which every path is only the name of its file."""
    content = config.resolved()
    for *sections, key in path_keys():
        place: Any = content
        for section in sections:
            place = place.get(section) if isinstance(place, dict) else None
        if isinstance(place, dict) and isinstance(place.get(key), str):
            place[key] = Path(place[key]).name
    text = content.get("model", {}).get("text_model")
    if isinstance(text, str) and Path(text.removeprefix(PREFIX)).is_absolute():
        content["model"]["text_model"] = (PREFIX if text.startswith(PREFIX) else "") + Path(text).name
    return content


def _write_network(folder: RunFolder, target: Path) -> None:
    """Write the network and the thresholds of the best epoch; everything else is as in a run that has seen nothing."""
    from satl.inference.recogniser import Recogniser
    from satl.training.build import build_learner, feature_shell
    from satl.training.checkpoints import LEARNER, module_content, save_module

    trained = Recogniser.load(folder.path, device="cpu", fallback=False)
    facts = trained.features
    features = None if facts is None else feature_shell(trained.config, facts["dim"])
    content = module_content(build_learner(trained.config, trained.classes, features=features))
    for name, value in module_content(trained.learner).items():
        if name.startswith("network.") or (name.startswith("rules.") and name.endswith(".value")):
            content[name] = value
    with atomic_path(target / LEARNER) as temporary:
        save_module(content, temporary)
