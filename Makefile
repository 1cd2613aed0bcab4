# make demo   from nothing: a real model on this machine proposes, the gate decides, simulations run
# make test   from nothing: every test, with the real vLLM, a real Slurm and a real browser
# make check  lint, types, layers, documentation
# make help   the rest

SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,13))' 2>/dev/null \
	&& echo $$p && break; done)
BIN := .venv/bin
READY := .venv/.ready
# Tests that start servers, browsers or whole campaigns run one after the other.
PARALLEL ?= 2

# Those with Slurm mostly wait for it, so they run beside the others; one after the other, because the
# cluster is the host's.
SLURM_LOG := .venv/slurm-tests.log
STOP_SLURM = trap '[ "$$(id -u)" -ne 0 ] || tests/slurm/stop.sh' EXIT

.PHONY: help demo test test-fast test-vllm test-slurm check format docs lock clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# make /make /p' Makefile
	@echo "make test-fast   the tests without the real vLLM and the real Slurm"
	@echo "make test-vllm   only the tests with the real vLLM"
	@echo "make test-slurm  only the tests with a real Slurm, started on this host (root and apt)"
	@echo "make format      format the code"
	@echo "make docs        build the documentation into docs/_build"
	@echo "make lock        resolve the dependencies anew into requirements.lock"
	@echo "make clean       remove what make made here"

$(READY): requirements.lock pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "batchgate needs Python 3.11, 3.12 or 3.13; set PYTHON=/path/to/python3.11"; exit 2; }
	@echo "making .venv with $(PYTHON), about a minute"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(READY)

demo: $(READY)
	@$(BIN)/batchgate vllm-env
	@$(BIN)/batchgate run campaigns/orbits --slots 2 --workers 1

test: $(READY)
	@tests/tools.sh
	$(BIN)/python -m coverage erase
	@$(STOP_SLURM); set -x; \
	$(BIN)/python -m pytest -m slurm >$(SLURM_LOG) 2>&1 & slurm=$$!; \
	$(BIN)/python -m pytest -m "not vllm and not slurm" -n $(PARALLEL) --dist loadgroup --cov --cov-report=; code=$$?; \
	wait $$slurm || code=1; cat $(SLURM_LOG); exit $$code
	$(BIN)/python -m coverage report --fail-under=100 --include="$$(cat tests/fully-covered.txt | paste -sd,)"
	$(BIN)/python -m pytest -m vllm

test-fast: $(READY)
	$(BIN)/python -m pytest -m "not vllm and not slurm" -n $(PARALLEL) --dist loadgroup

test-vllm: $(READY)
	$(BIN)/python -m pytest -m vllm

test-slurm: $(READY)
	@$(STOP_SLURM); set -x; $(BIN)/python -m pytest -m slurm --durations=10

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build/html

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)
	$(BIN)/python -m sphinx -W -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# The lock names versions and hashes and no index: whichever index pip is set to is used.
lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --extra dask --extra langgraph --extra orbits --extra otlp --extra radical --extra surrogate --extra tables --group dev \
		--output-file requirements.lock pyproject.toml

clean:
	rm -rf .venv docs/_build build dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
