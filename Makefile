# `make run` and `make test` set up everything they need in .venv; nothing is installed outside this folder.
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3))
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled as they are imported: compiling all that are installed takes 90 s more, and most are never imported.
PIP := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt
SETUP := pyproject.toml constraints.txt
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --durations 10

# Hundreds of processes import the same modules and rewrite the same asserts: compiled once, whatever the shell has set.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help docs run test test-rest test-unit test-long test-versions kernels golden lint style tree imports types bench bench-accuracy audit audit-dependencies release clean

help: ## show the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

run: $(VENV)/.ready ## release the example survey (deployments/examples/affairs.yaml)
	@$(BIN)/marginweave run deployments/examples/affairs.yaml

test: $(VENV)/.ready-test ## run the whole test suite, or that of an area: make test AREA=ledger
	@files="$(if $(AREA),$$($(BIN)/python -m tests.support.areas $(AREA)))" && $(PYTEST) $(PASSED:%=--ignore=%) $$files

test-long: $(VENV)/.ready-test ## run what takes longer as well
	@$(PYTEST) -m "long or not long" --hypothesis-profile=long --kills 1000

bench: $(VENV)/.ready-test ## measure speed and memory: the start and the stop of commands, the explorer, the adult table, encoding, evaluation, the ledger, small releases
	@$(BIN)/python -m benchmarks.start
	@$(BIN)/python -m benchmarks.stops
	@$(BIN)/python -m benchmarks.explorer
	@$(BIN)/python -m benchmarks.adult
	@$(BIN)/python -m benchmarks.encoding
	@$(BIN)/python -m benchmarks.evaluation
	@$(BIN)/python -m benchmarks.ledger
	@$(BIN)/python -m benchmarks.dpsyn
	@$(BIN)/python -m benchmarks.scale --rows 10000

bench-accuracy: $(VENV)/.ready-test ## measure accuracy beside peers from PyPI: hours, goes on where it stopped
	@$(BIN)/python -m benchmarks.accuracy --write

test-unit: $(VENV)/.ready-test ## run the unit tests, one room at a time
	@$(PYTEST) tests/unit

# The longest first, where there are several cores (--jobs).
lint: types imports style ## style, types and the import contracts

# In a checkout flows, tasks and schemas lie beside src; tools that follow imports get what a wheel has: one tree.
tree: $(VENV)/.ready-lint ## unpack the wheel into build/tree, where tools see the product in one tree
	@$(BIN)/python -m tests.support.lint tree

types: tree
	@$(BIN)/python -m tests.support.lint types

imports: tree
	@$(BIN)/python -m tests.support.lint imports

style: $(VENV)/.ready-lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell *.md docs flows schemas tasks src deployments

# Laws that call nearly every kernel that numba compiles: 100 CPU seconds on a clean checkout, which each worker would spend again.
KERNELS := tests/laws/test_rules_between_columns.py tests/laws/test_sensitivity.py tests/laws/test_gum.py \
	tests/laws/test_mixture.py tests/laws/test_level_draw.py
test-rest: PASSED = $(KERNELS)
test-rest: test ## run the suite without the laws that `make kernels` runs, after it

kernels: $(VENV)/.ready-test ## compile kernels once, before many processes come to them at the same time
	@$(BIN)/python -m pytest --quiet --no-header $(KERNELS)

golden: $(VENV)/.ready-test ## compare releases with those of the revision in tests/golden/base.txt, byte for byte; SHAPES="gum rounds" for some
	@$(BIN)/python -m tests.golden compare $(SHAPES)

test-versions: $(VENV)/.ready-test ## try the lowest and the newest versions of dependencies that pyproject.toml allows
	@$(BIN)/python -m tests.support.versions

audit: $(VENV)/.ready-test ## measure the privacy loss of every mechanism on made-up tables, and find planted faults: three minutes
	@$(PYTEST) tests/audit

audit-dependencies: $(VENV)/.ready-test ## ask for known vulnerabilities of the pinned dependencies
	@$(BIN)/python deployments/audit_dependencies.py

release: $(VENV)/.ready-lint ## build the wheel of this commit, try it in an empty environment, and tag it
	@$(BIN)/python deployments/release.py

# -E reads all pages again: of pages that have not changed a second build forgets the terms that the search finds.
docs: tree ## build the documentation site in build/site, with search and a Python reference; a warning fails
	@PYTHONPATH=build/tree $(BIN)/python -m sphinx -q -E -W --keep-going -b html -c docs . build/site

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist src/*.egg-info .ruff_cache .pytest_cache

$(BIN)/python:
	@echo "Setting up $(VENV) with $(PYTHON) (about two minutes, once)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: $(SETUP) | $(BIN)/python
	@$(PIP) --editable '.[examples]'
	@touch $@

$(VENV)/.ready-test: $(SETUP) | $(BIN)/python
	@$(PIP) --editable '.[audit,dask,examples,test,xlsx]'
	@touch $@ $(VENV)/.ready

$(VENV)/.ready-lint: $(SETUP) | $(BIN)/python
	@$(PIP) --editable '.[audit,dask,examples,test,xlsx,lint,docs]'
	@touch $@ $(VENV)/.ready $(VENV)/.ready-test
