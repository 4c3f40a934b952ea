"""Write ``src/satl/recipes/method_list.json``, from which lists of methods are printed without loading torch.

``python tools/write_method_list.py`` after a change of a file in ``src/satl/methods``; ``--check`` only says whether
the list is up to date. With methods of other packages installed it refuses: they are not satl's own.
"""

from __future__ import annotations

import argparse
import json
import sys

from satl.methods.plugins import plugin_versions
from satl.recipes.method_list import FILE, method_list


def main() -> None:
    """Write the list, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if the list is old")
    options = parser.parse_args()
    if plugins := plugin_versions():
        sys.exit(
            f"the list is of satl alone, and there are methods of {', '.join(plugins)}: uninstall them first."
        )
    content = json.dumps(method_list(), indent=1, ensure_ascii=False) + "\n"
    if options.check:
        if FILE.read_text(encoding="utf-8") != content:
            sys.exit(f"{FILE.name} is old: run python tools/write_method_list.py.")
    else:
        FILE.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
