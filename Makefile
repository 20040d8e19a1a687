# Two commands for a fresh machine:  make demo   and   make test
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ROOT   := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test cover bench check check-long frozen docs mutants fuzz floors release clean

demo: $(VENV)/.core
	@$(BIN)/attnlaw audit examples/tiny-decoder --out demo
	@echo "The report is demo/report.html; the rows are demo/matrices.parquet and demo/spectra.parquet."

# One BLAS thread: the matrices of the tests are small, and idle threads only get in the way. Files in their
# own order: the last are those of doctests, so small that no core waits for another.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test: check
	@$(PYTEST)

# The same with the lines and branches that no test reaches; it takes a third longer.
cover: $(VENV)/.test
	@$(PYTEST) --cov --cov-report=term:skip-covered

check: $(VENV)/.test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# The commands of tests/frozen give what version 0.2.0 gave: JSON, tables, pages and figures.
frozen: $(VENV)/.test
	@$(BIN)/python tests/frozen/compare.py

# Tests that are statistical or slow, and the comparison with version 0.2.0.
check-long: $(VENV)/.test
	@$(PYTEST) -m long

bench: $(VENV)/.bench
	@$(BIN)/python benchmarks/table.py

docs: $(VENV)/.test
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site
	@echo "The documentation is site/index.html."

# Long runs, kept out of the tests.
mutants: $(VENV)/.test
	@$(PIP) cosmic-ray
	@$(BIN)/python tools/mutants/run.py

fuzz: $(VENV)/.test
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tools/fuzz/run.py --minutes 10

# The tests with the oldest versions that pyproject.toml allows, in an environment of their own.
floors:
	@$(PYTHON) -m venv .venv-floors
	@.venv-floors/bin/python -m pip install -qq --disable-pip-version-check --constraint floors.txt --editable '.[test]'
	@.venv-floors/bin/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --no-deps timm
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-floors/bin/python -m pytest -n auto --dist loadfile

# Wheel and source distribution: built, checked, installed into empty environments, and used there.
release: $(VENV)/.test
	@$(PIP) build twine
	@$(BIN)/python tools/shipping/run.py

$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing attnlaw (core) into $(VENV) ..."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.core
	@echo "Installing the test tools and PyTorch into $(VENV) ..."
	@$(PIP) --editable '.[test]'
	@$(PIP) --no-deps timm # its models; torchvision, which only its image transforms need, comes with another torch
	@command -v chromium >/dev/null || { $(ROOT) apt-get update -qq && $(ROOT) apt-get install -qq -y chromium; } >/dev/null 2>&1 \
	  || echo "The browser tests are left out; to enable them: apt-get install chromium"
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	@echo "Installing the benchmarks' peers into $(VENV) ..."
	@$(PIP) --editable '.[bench]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-floors demo site dist
