# The commands of the house. Everything is installed into $(VENV); nothing else on the machine changes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# All that is installed has its version and its hashes in a lock, in which nothing is missing, so
# that nothing is looked for. PyTorch alone has its version in pyproject.toml: which build of it
# fits, and where that comes from, is for each machine to say.
HASHED := --quiet --require-hashes --no-deps
OURS := --quiet --no-build-isolation --editable

.PHONY: demo test soak test-bare check bench readme install install-dev clean lock slurm-up slurm-down

demo: $(VENV)/.installed ## install, tune three models, print what it recommends, serve the dashboard
	@$(BIN)/autotune demo $(ARGS)

# Bytecode is kept, whatever the environment says: a test run starts a hundred processes.
TESTING := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
# Four on two cores, for much of it waits; in the order of tests/conftest.py, not of groups' sizes.
PARALLEL := -n 4 --dist loadgroup --no-loadscope-reorder

test: $(VENV)/.installed-dev ## install, then run the tests
	$(TESTING) $(BIN)/python -m pytest -m "not soak" $(PARALLEL) $(ARGS)

soak: $(VENV)/.installed-dev ## the tests of minutes: kills, endurance, generated requests, benchmarks
	$(TESTING) $(BIN)/python -m pytest -m soak $(PARALLEL) $(ARGS)

test-bare: $(VENV)/.installed-dev ## run the tests as on a machine that lacks what it may: .ci/bare
	$(TESTING) .ci/bare $(BIN)/python -m pytest -m "not soak" $(PARALLEL) $(ARGS)

check: $(VENV)/.installed-dev ## lint, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Those that are folders take files, or hours, and are started by their names; so do two scripts.
BENCHMARKS := $(filter-out %/__init__.py %_replay.py,$(wildcard tests/benchmarks/*.py))

bench: $(VENV)/.installed-dev ## every benchmark, each against a peer in the same run
	for script in $(BENCHMARKS); do $(BIN)/python $$script || exit 1; done
ifneq ($(THROUGHPUT),)
	$(BIN)/python tests/benchmarks/search_replay.py --throughput "$(THROUGHPUT)"
endif
ifneq ($(SERIES),)
	$(BIN)/python tests/benchmarks/knob_replay.py --series "$(SERIES)"
endif
ifneq ($(and $(THROUGHPUT),$(MEMORY)),)
	$(BIN)/python -m tests.benchmarks.accuracy --throughput "$(THROUGHPUT)" --memory "$(MEMORY)" $(ARGS)
else
	@echo "Not judged: the search and the cost model on published measurements. With tables of them:"
	@echo "  make bench THROUGHPUT=throughput.csv MEMORY=memory.csv (columns: tests/benchmarks/accuracy/tables.py)"
endif

readme: $(VENV)/.installed-dev ## run the README's command again, and take its pictures
	$(TESTING) $(BIN)/python -m tests.readme

slurm-up: $(VENV)/.installed ## a Slurm of 8 nodes on this machine, to try things on (ARGS=--accounting)
	@$(BIN)/python -m tests.cluster up $(ARGS)

slurm-down: $(VENV)/.installed ## take it away again
	@$(BIN)/python -m tests.cluster down

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "autotune needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml requirements.lock requirements-build.lock | $(BIN)/python
	@echo "Installing into $(VENV) (PyTorch and DeepSpeed included: a few minutes the first time) ..." >&2
	@$(PIP) install $(HASHED) -r requirements-build.lock
	@$(PIP) install $(HASHED) -r requirements.lock
	@$(PIP) install $(OURS) '.[trials]'
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	$(PIP) install $(HASHED) -r requirements-dev.lock
	@touch $@

# uv writes the hashes of every file of a version, for all platforms; what installs needs none of it.
EXTRAS := --extra trials --extra ray --extra postgresql
COMPILE := build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
  --generate-hashes --no-annotate --no-header --upgrade
# PyTorch, and what comes with it for GPUs, which its builds for processors do without.
WITHOUT_PYTORCH := awk '/^[a-z]/ { other = !/^(torch|triton|cuda-[a-z]*|nvidia-[a-z0-9-]*)==/ } other'
# Of two locks the second without what stands in the first.
BEYOND := awk '/^[a-z]/ { missing = !($$1 in known) } NR == FNR { known[$$1]; next } missing'

lock: ## write the newest versions of everything, with the hashes of their files, as the locks
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --upgrade uv
	$(COMPILE) pyproject.toml $(EXTRAS) -o build/lock/all
	$(COMPILE) pyproject.toml $(EXTRAS) --group dev -c build/lock/all -o build/lock/dev
	printf 'hatchling>=1.27\neditables\n' | $(COMPILE) - -o requirements-build.lock
	$(WITHOUT_PYTORCH) build/lock/all > requirements.lock
	$(WITHOUT_PYTORCH) build/lock/dev > build/lock/dev-without
	$(BEYOND) requirements.lock build/lock/dev-without > requirements-dev.lock

clean:
	rm -rf $(VENV)
