# `make demo` and `make test` set up all they need: a virtual environment in .venv with the tested versions.
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
export UV_PYTHON_DOWNLOADS := never

.PHONY: demo test test-slow lint bench docs clean

demo: $(VENV)/.ready
	$(BIN)/satl demo --out runs/demo

test: $(VENV)/.ready
	sh tools/browser.sh
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile

test-slow: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(PY) -m pytest -m slow -n 2 --dist loadfile

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready
	$(PY) benchmarks/average_precision.py
	$(PY) benchmarks/semantic_threshold.py
	$(PY) benchmarks/label_io.py
	$(PY) benchmarks/coco_reader.py
	$(PY) benchmarks/augmentation.py
	$(PY) benchmarks/loader.py
	$(PY) benchmarks/kernels.py
	$(PY) benchmarks/step.py --device cpu --tiny --batch 4 --classes 5 --variants plain,eager-fp32
	$(PY) benchmarks/certificate_simulation.py
	$(PY) benchmarks/complete_table.py
	$(PY) benchmarks/review_page.py
	$(PY) benchmarks/demo_seeds.py

docs: $(VENV)/.ready
	$(PY) tools/write_configuration_page.py
	$(PY) tools/write_results_page.py
	$(BIN)/mkdocs build --strict --quiet --site-dir site

clean:
	rm -rf $(VENV) runs site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info

$(VENV)/.ready: pyproject.toml constraints.txt tools/setup.sh
	sh tools/setup.sh $(VENV)
	touch $@
