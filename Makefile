# `make demo` and `make test` work from a fresh clone on Debian as root; the rest needs `.venv`.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PLACE ?= local
STAMP := .venv/.installed

.PHONY: help demo test check fmt fmt-check lint types test-fast bench fuzz spec clean

help: ## what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON=$(PYTHON) bash scripts/setup.sh
	@touch $@

demo: $(STAMP) ## watch an agent fix a failing test suite; PLACE=local, docker or ssh
	@$(BIN)/python scripts/demo.py $(PLACE)

test: $(STAMP) ## all tests, against a real dockerd and a real sshd
	@$(BIN)/python -m pytest

check: fmt-check lint types test-fast ## what must be clean before a commit

fmt: $(STAMP) ## format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

fmt-check: $(STAMP)
	@$(BIN)/ruff format --check .

lint: $(STAMP) ## lint
	@$(BIN)/ruff check .

types: $(STAMP) ## types, strict
	@$(BIN)/mypy

test-fast: $(STAMP)
	@$(BIN)/python -m pytest -m "not docker and not ssh and not slow"

bench: $(STAMP) ## measure with the peers, as ratios to a floor in the same run; re-makes docs/benchmarks.md
	@failed=0; for name in shells exec start output scale fidelity models; do \
		echo "## $$name"; $(BIN)/python benchmarks/$$name.py --peers --write || failed=1; \
	done; exit $$failed

SEED ?= 1
fuzz: $(STAMP) ## 10,000 generated scripts do here what the shells do with them; SEED=NUMBER makes others
	@$(BIN)/python scripts/fuzz.py --count 5000 --seed $(SEED)

spec: $(STAMP) ## how much of the runtime's planned contract has a row and a test; SPEC=FILE is the plan
	@test -n "$(SPEC)" || { echo "give the plan: make spec SPEC=FILE" >&2; exit 2; }
	@$(BIN)/python scripts/spec.py "$(SPEC)"

clean: ## remove what was made here
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
