# `make demo` and `make test` set up all they need: a virtual environment in .venv with the tested versions.
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
export UV_PYTHON_DOWNLOADS := never

.PHONY: demo test test-slow test-lowest test-newest test-remote chaos chaos-short fuzz fuzz-short fuzz-http audit audit-where-reachable sbom lint bench docs clean

demo: $(VENV)/.ready
	$(BIN)/satl demo --out runs/demo

test: $(VENV)/.ready
	sh tools/browser.sh
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile

test-slow: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(PY) -m pytest -m slow -n 2 --dist loadfile

fuzz-http: $(VENV)/.ready
	OMP_NUM_THREADS=1 SATL_HTTP_REQUESTS=$${SATL_HTTP_REQUESTS:-20000} $(PY) -m pytest -s -q tests/review/test_requests.py

audit: $(VENV)/.ready
	$(PY) tools/audit.py

audit-where-reachable: $(VENV)/.ready
	$(PY) tools/audit.py --where-reachable

sbom: $(VENV)/.ready
	$(PY) tools/sbom.py

# Each in an environment of its own, beside the usual one.
test-lowest:
	sh tools/lane.sh lowest .venv-lowest

test-newest:
	sh tools/lane.sh newest .venv-newest

test-remote:
	sh tools/lane.sh remote .venv-remote

fuzz: $(VENV)/.ready
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(PY) -m fuzz --count $(or $(COUNT),1000000) --jobs $(or $(JOBS),2) 2>/dev/null

fuzz-short: $(VENV)/.ready
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(PY) -m fuzz --count 20000 --jobs 2 2>/dev/null

chaos: $(VENV)/.ready
	$(PY) tests/chaos/suite.py --jobs $(or $(JOBS),2)

chaos-short: $(VENV)/.ready
	$(PY) tests/chaos/suite.py --short --jobs 2

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready
	$(PY) benchmarks/average_precision.py
	$(PY) benchmarks/start_time.py
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
	$(PY) tools/write_method_list.py
	$(PY) tools/write_configuration_page.py
	$(PY) tools/write_cli_page.py
	$(PY) tools/write_results_page.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest .venv-remote runs site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info

$(VENV)/.ready: pyproject.toml constraints.txt tools/setup.sh
	sh tools/setup.sh $(VENV)
	touch $@
