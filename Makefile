# Every target installs what it needs: `make serve` works on a machine with only Python 3.11+.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
SERVING := $(VENV)/.serving
STAMP   := $(VENV)/.installed
# What serves is part of what develops: one installation is enough.
RUNTIME := $(or $(wildcard $(STAMP)),$(SERVING))
# Nothing is compiled ahead: Python compiles what it imports, a small part of what is installed.
INSTALL  = $(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt --editable

# TORCH=cpu: torch without CUDA, where the default index has it with CUDA (Linux on x86-64).
ifeq ($(TORCH),cpu)
export PIP_EXTRA_INDEX_URL := $(strip $(PIP_EXTRA_INDEX_URL) https://download.pytorch.org/whl/cpu)
endif

.PHONY: help setup serve test test-all check docs site dashboards kubernetes demo bench loadtest paper paper-quick audit licences release-check fresh client-js clean

help:
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## build the environment of developers in .venv

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11 …" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(SERVING): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what serving needs into $(VENV), once. torch is most of it: 1 GB on disk, more with CUDA."
	$(INSTALL) .
	@touch $(SERVING)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what serving and developing need into $(VENV), once."
	$(INSTALL) '.[dev]'
	@touch $(STAMP)

serve: $(RUNTIME)  ## start the service on 127.0.0.1:8000 with SQLite in ./data
	@$(BIN)/daband serve $(ARGS)

# Tests start many processes: without bytecode each compiles torch again, for seconds.
test test-all: export PYTHONDONTWRITEBYTECODE :=

PARALLEL = --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

test: $(STAMP)  ## run the test suite; nothing in it depends on how fast the machine is
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-all: $(STAMP)  ## the same and all that takes minutes, then what measures times, alone; prints what it measured
	$(BIN)/python -m pytest $(PARALLEL) -m 'not study and not quiet' $(ARGS)
	$(BIN)/python -m pytest --measure -m 'quiet and not study' $(ARGS)

check: $(STAMP)  ## lint, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy client/tests client/write_sync.py
	$(BIN)/lint-imports

docs: $(STAMP)  ## write what the documentation takes from the code
	$(BIN)/python -m docs.write

site: $(STAMP)  ## build the documentation's site into build/site; a warning fails it
	$(BIN)/python -m docs.site

dashboards: $(STAMP)  ## write Grafana's dashboards from monitoring/*.py
	$(BIN)/python -m monitoring.dashboards

kubernetes: $(STAMP)  ## write the Kubernetes manifests from deploy/kubernetes/*.py
	$(BIN)/python -m deploy.kubernetes.write $(ARGS)

demo: $(RUNTIME)  ## train daband and nlinucb on the simulated world, plot the learning curves
	$(BIN)/python -m benchmarks.demo $(ARGS)

bench: $(STAMP)  ## cost of selecting, folding, rebuilding and training as ratios
	$(BIN)/python -m benchmarks.model_speed $(ARGS)

loadtest: $(STAMP)  ## open-loop load tests, e.g. ARGS="overload --start postgres"; docs/load.md
	$(BIN)/python -m loadtest $(ARGS)

paper: $(STAMP)  ## the paper's experiments, e.g. ARGS="--device cuda --parallel 5"; docs/results.md
	$(BIN)/python -m benchmarks.paper --dataset digit pairs $(ARGS)

paper-quick: $(STAMP)  ## the same in minutes on 2 cores: one seed, few rounds and steps
	$(BIN)/python -m benchmarks.paper --quick --processes 2 $(ARGS)

audit:  ## known vulnerabilities of the pinned dependencies; needs the network
	test -x .audit/bin/pip-audit || { $(PYTHON) -m venv .audit && .audit/bin/python -m pip install --quiet 'pip-audit==2.10.1'; }
	.audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement constraints.txt

licences: $(STAMP)  ## licences of all that runs with the service; fails for one that Apache-2.0 cannot ship with
	$(BIN)/python -m release.licences --extra otel --extra h5ad --extra ray --notices build/THIRD_PARTY_NOTICES.txt

release-check: $(STAMP)  ## build both wheels, check them, use the service's wheel in a bare environment
	$(BIN)/python -m release.check $(ARGS)

fresh:  ## the last commit on a bare Debian in a container: make serve, a select, make test; needs root, podman, debootstrap
	$(PYTHON) -m release.fresh $(ARGS)

client-js: $(STAMP)  ## types of the TypeScript client, tsc, and its tests with Node; needs npm
	cd client-js && npm ci --no-audit --no-fund && npm run types && npm run check
	$(BIN)/python -m pytest -m slow tests/e2e/test_client_js.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .audit .release .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis client-js/node_modules client-js/dist
