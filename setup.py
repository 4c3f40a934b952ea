"""What pyproject.toml cannot say: the description for a package index.

README.md links to files beside it, which a package index does not have, and the project has no address of its own that
links could lead to. There they are plain text; what they lead to is in the source distribution.
"""

import re
from pathlib import Path

from setuptools import setup

ENDING = """
The pages that this text names are in the folder `docs` of the source distribution; `help(satl)` and `satl --help` say
the most important.
"""


def description(readme: str) -> str:
    """Return the README without pictures of the repository, and with the words of links to its files."""
    text = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*", "", readme)
    return re.sub(r"\[([^]]+)\]\((?!https?:)[^)\s]+\)", r"\1", text).rstrip() + "\n" + ENDING


if __name__ == "__main__":
    setup(
        long_description=description((Path(__file__).parent / "README.md").read_text(encoding="utf-8")),
        long_description_content_type="text/markdown",
    )
