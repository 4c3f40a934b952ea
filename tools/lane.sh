#!/bin/sh
# Run a part of the tests with other versions of the dependencies: tools/lane.sh lowest|newest|remote FOLDER
# lowest: the oldest versions that pyproject.toml declares; newest: the newest ones that there are; remote: the newest ones
# with the clients of storages and a server to try them on.
set -eu
lane=$1
venv=$2
extras=web,onnx,lanes
server=
tests="tests/labels/test_encodings.py tests/labels/test_io.py tests/labels/test_long.py tests/test_label_arrays.py
    tests/evaluation/test_evaluate.py tests/evaluation/test_average_precision.py
    tests/thresholds/test_application.py tests/losses/test_losses.py tests/scores/test_reading.py
    tests/images/test_decode.py tests/cli/test_help.py tests/cli/test_recipes_cli.py tests/cli/test_train_cli.py
    tests/training/test_step.py tests/inference/test_onnx.py"
case $lane in
    lowest) resolution=lowest-direct ;;
    newest) resolution=highest ;;
    remote) resolution=highest extras=lanes,onnx,remote server='moto[server]' tests="tests/remote tests/cli/test_addresses_cli.py" ;;
    *) echo "tools/lane.sh lowest|newest|remote FOLDER" >&2; exit 2 ;;
esac
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
# shellcheck disable=SC2086  # the server may be none, the tests are several
"$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" --resolution "$resolution" -e ".[$extras]" $server
# shellcheck disable=SC2086
OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -p no:cacheprovider $tests
