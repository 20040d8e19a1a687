# Two commands for a fresh machine:  make demo   and   make test
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ROOT   := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all doctests cover bench check check-long frozen stub docs mutants fuzz floors release clean

demo: $(VENV)/.charts
	@$(BIN)/attnlaw audit examples/tiny-decoder --out demo
	@echo "The report is demo/report.html; the rows are demo/matrices.parquet and demo/spectra.parquet."

# One BLAS thread: the matrices of the tests are small, and idle threads only get in the way.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest
SPREAD := -n auto --dist loadfile --no-loadscope-reorder
ALL    := -m 'not long'

# The fast tier: at most five minutes on two cores, without a browser.
test: $(VENV)/.test
	@$(MAKE) --no-print-directory --output-sync=target -j2 check doctests
	@$(PYTEST) $(SPREAD)

# The fast and the slow tier: pages, examples, browsers, clusters, real checkpoints, the record of version 0.2.0.
test-all: $(VENV)/.browser
	@$(MAKE) --no-print-directory --output-sync=target -j2 check doctests
	@$(PYTEST) $(SPREAD) $(ALL)

# Examples in docstrings: of src, and of the files of tests that have some.
EXAMPLES := --doctest-modules src tests/frozen/compare.py tests/frozen/record.py tests/frozen/running.py tests/oracles/dense_softmax.py
doctests: $(VENV)/.test
	@$(PYTEST) $(EXAMPLES)

# Lines and branches that neither tier reaches; it takes a third longer than test-all.
cover: $(VENV)/.browser
	@$(PYTEST) $(SPREAD) $(ALL) --cov --cov-report=
	@$(PYTEST) $(EXAMPLES) --cov --cov-append --cov-report=term:skip-covered

check: $(VENV)/.test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# The types of `import attnlaw`, for type checkers and editors, from the declarations of the verbs.
stub: $(VENV)/.test
	@$(BIN)/python tools/stub.py

# The commands of tests/frozen give what version 0.2.0 gave: JSON, tables, pages and figures.
frozen: $(VENV)/.test
	@$(BIN)/python tests/frozen/compare.py

# The third tier: statistical tests that take half an hour, before a release.
check-long: $(VENV)/.test
	@$(PYTEST) $(SPREAD) -m long

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
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-floors/bin/python -m pytest $(SPREAD) $(ALL)

# Wheel and source distribution: built, checked, installed into empty environments, and used there. The GitHub
# action and the pre-commit hook install attnlaw in their own ways.
release: $(VENV)/.test
	@$(PIP) build twine
	@$(BIN)/python tools/shipping/run.py

$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.charts: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing attnlaw and its charts into $(VENV) ..."
	@$(PIP) --editable '.[charts]'
	@touch $@

$(VENV)/.test: $(VENV)/.charts
	@echo "Installing the test tools and PyTorch into $(VENV) ..."
	@$(PIP) --editable '.[test]'
	@$(PIP) --no-deps timm # its models; torchvision, which only its image transforms need, comes with another torch
	@touch $@

$(VENV)/.browser: $(VENV)/.test
	@command -v chromium >/dev/null || { \
	  echo "Installing Chromium for the browser tests: $(ROOT) apt-get install chromium"; \
	  $(ROOT) apt-get update -qq && $(ROOT) apt-get install -qq -y chromium; \
	} || echo "Chromium could not be installed; the browser tests will be skipped."
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	@echo "Installing the benchmarks' peers into $(VENV) ..."
	@$(PIP) --editable '.[bench]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-floors demo site dist
