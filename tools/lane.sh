#!/bin/sh
# Run a quick part of the tests with other versions of the dependencies: tools/lane.sh lowest|newest FOLDER
# lowest: the oldest versions that pyproject.toml declares; newest: the newest ones that there are.
set -eu
lane=$1
venv=$2
case $lane in
    lowest) resolution=lowest-direct ;;
    newest) resolution=highest ;;
    *) echo "tools/lane.sh lowest|newest FOLDER" >&2; exit 2 ;;
esac
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
"$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" --resolution "$resolution" -e '.[web,onnx,lanes]'
OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -p no:cacheprovider \
    tests/labels/test_encodings.py tests/labels/test_io.py tests/labels/test_long.py tests/test_label_arrays.py \
    tests/evaluation/test_evaluate.py tests/evaluation/test_average_precision.py \
    tests/thresholds/test_application.py tests/losses/test_losses.py tests/scores/test_reading.py \
    tests/images/test_decode.py tests/cli/test_help.py tests/cli/test_recipes_cli.py tests/cli/test_train_cli.py \
    tests/training/test_step.py tests/inference/test_onnx.py
