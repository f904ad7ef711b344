# The commands of the house. Everything is installed into $(VENV); nothing else on the machine changes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCKED := -c requirements.lock

.PHONY: demo test test-bare check bench client examples install install-dev clean lock slurm-up slurm-down

demo: $(VENV)/.installed ## install, tune three models, print what it recommends, serve the dashboard
	$(BIN)/autotune demo $(ARGS)

# Bytecode is kept, whatever the environment says: a test run starts a hundred processes.
TESTING := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

test: $(VENV)/.installed-dev ## install, then run every test
	$(TESTING) $(BIN)/python -m pytest -n 4 --dist loadgroup $(ARGS)

# What depends on programs that a machine may lack; the rest is the same everywhere, and so is what
# runs on SQLite. Ray comes with the installation and is never hidden.
BARE_TESTS := tests/cluster $(addprefix tests/evaluators/,artefacts cluster program slurm) \
  $(addprefix tests/server/,api cli dashboard slurm store runner/test_slurm.py runner/test_kill.py) \
  --ignore=tests/server/cli/checks/test_ray.py -k "not sqlite"

test-bare: $(VENV)/.installed-dev ## these tests as on a machine without Slurm, PostgreSQL and Chromium
	$(TESTING) .ci/bare $(BIN)/python -m pytest -n 4 --dist loadgroup $(BARE_TESTS) $(ARGS)

check: $(VENV)/.installed-dev ## lint, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto
	$(BIN)/lint-imports

# Those that are folders take files, or hours, and are started by their names; so does one script.
BENCHMARKS := $(filter-out %/__init__.py %/search_replay.py,$(wildcard tests/benchmarks/*.py))

bench: $(VENV)/.installed-dev ## every benchmark, each against a peer in the same run
	for script in $(BENCHMARKS); do $(BIN)/python $$script || exit 1; done
ifneq ($(THROUGHPUT),)
	$(BIN)/python tests/benchmarks/search_replay.py --throughput "$(THROUGHPUT)"
endif
ifneq ($(and $(THROUGHPUT),$(MEMORY)),)
	$(BIN)/python -m tests.benchmarks.accuracy --throughput "$(THROUGHPUT)" --memory "$(MEMORY)" $(ARGS)
else
	@echo "Not judged: the search and the cost model on published measurements. With tables of them:"
	@echo "  make bench THROUGHPUT=throughput.csv MEMORY=memory.csv (columns: tests/benchmarks/accuracy/tables.py)"
endif

client: $(VENV)/.installed-dev ## write the client that waits anew from the one that is awaited
	$(BIN)/python -m tests.autotune.client.generation

examples: $(VENV)/.installed-dev ## record the answers that the reference of the API shows
	$(TESTING) $(BIN)/python -m tests.server.api.recording

slurm-up: $(VENV)/.installed ## a Slurm of 8 nodes on this machine, to try things on (ARGS=--accounting)
	@$(BIN)/python -m tests.cluster up $(ARGS)

slurm-down: $(VENV)/.installed ## take it away again
	@$(BIN)/python -m tests.cluster down

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "autotune needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(LOCKED) pip

$(VENV)/.installed: pyproject.toml requirements.lock | $(BIN)/python
	@echo "Installing into $(VENV) (PyTorch and DeepSpeed included: a few minutes the first time) ..."
	$(PIP) install --quiet $(LOCKED) --editable '.[trials]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --quiet $(LOCKED) --editable '.[trials,ray,postgresql]' --group dev
	@touch $@

lock: ## write the versions installed now, with every extra, as the lock
	$(PIP) install --quiet --upgrade --editable '.[trials,ray,postgresql]' --group dev
	$(PIP) freeze --all --exclude-editable | sed -e 's/+cpu$$//' -e '/^autotune /d' > requirements.lock

clean:
	rm -rf $(VENV)
