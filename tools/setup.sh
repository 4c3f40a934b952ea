#!/bin/sh
# Make a virtual environment with satl and its development tools: tools/setup.sh FOLDER
set -eu
venv=$1
for python in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if command -v "$python" >/dev/null && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        found=$python
        break
    fi
done
if [ -z "${found:-}" ]; then
    echo "satl needs Python 3.11 or newer: install it, or name it with PYTHON=/path/to/python make ..." >&2
    exit 2
fi
if ! "$found" -m venv "$venv" >/dev/null 2>&1; then
    # Debian keeps ensurepip in a package of its own.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
    else
        echo "Python cannot make virtual environments here: run 'sudo apt-get install python3-venv' first." >&2
        exit 2
    fi
    "$found" -m venv --clear "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
"$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" -c constraints.txt -e '.[dev]'
# Of the SDK of Label Studio only the client is used and tested; its other requirements take 300 MB and an old NumPy.
"$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" -c constraints.txt --no-deps label-studio-sdk
