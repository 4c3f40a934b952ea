"""A stand-in for the Hugging Face Hub: its repositories are folders."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple


class RepositoryInfo(NamedTuple):
    private: bool


class Hub:
    """Keeps repositories as folders, with the three calls of ``HfApi`` that are used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.private: dict[str, bool] = {}

    def repo_exists(self, repo_id: str) -> bool:
        return repo_id in self.private

    def repo_info(self, repo_id: str) -> RepositoryInfo:
        return RepositoryInfo(self.private[repo_id])

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> str:
        assert exist_ok
        self.private.setdefault(repo_id, private)
        return f"https://huggingface.co/{repo_id}"

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> None:
        assert commit_message
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)
