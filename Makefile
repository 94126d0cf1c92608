# Two commands do everything: `make demo` shows the product, `make test` checks it.
# The virtual environment is made on first use and again whenever the pinned versions change.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 4
PIP_FLAGS ?= --disable-pip-version-check
PIP_LOG := $(VENV)/pip.log

# What pip says goes into a log, which is shown where it fails: its warnings would bury what comes after.
quietly = $(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt $(1) >$(PIP_LOG) 2>&1 || \
	{ cat $(PIP_LOG) >&2; echo "pip failed; the above is $(PIP_LOG)" >&2; exit 1; }

.PHONY: demo up test docs compat cluster-test compiled-test gpu fuzz check unit install install-dev clean

demo: $(VENV)/.installed  ## compare AdaPM, AdaPM-mini and AdamW on a tiny GPT-2, end to end
	@$(BIN)/adapm-bench demo

up: $(VENV)/.installed  ## start the service on the results so far
	@$(BIN)/adapm-bench up

# Side by side: what is read takes one core for a minute, and the tests wait now and then. Both say what they found.
test: $(VENV)/.installed-dev  ## everything that CI checks
	@$(MAKE) --no-print-directory -j2 check unit

install: $(VENV)/.installed

install-dev: $(VENV)/.installed-dev

check: $(VENV)/.installed-dev  ## lint, format, types, layers, the site of the documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/zensical build --strict

docs: $(VENV)/.installed-dev  ## the documents as a site with a search, at http://127.0.0.1:8000
	$(BIN)/zensical serve

# Four at a time, on two cores: services wait more than they compute, and each has a database of its own.
# In the order of the tree, so that files of a few long tests do not come last, when nothing is left beside them;
# first the files of tests/integration/service, which go to one worker and share one service (tests/conftest.py).
# What Python compiles is kept, whatever the environment says: hundreds of processes would compile the same modules again.
unit: $(VENV)/.installed-dev  ## all tests
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

cluster-test: $(VENV)/.installed-dev  ## docker-compose.yml's topology, a standby, a restored backup, a full disk, lost machines: as processes of this machine
	$(BIN)/python -m pytest tests/cluster tests/chaos tests/integration -m cluster -s

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=python3.x" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing pinned packages into $(VENV): a minute or two, once"
	@$(call quietly,-e '.[all]')
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@$(call quietly,-e '.[dev]')
	@touch $@

# The oldest torch that optim/pyproject.toml takes, and a transformers of its time. Elsewhere than in tests/unit/optim,
# tests need the bench, which takes neither; benchmarks, kernels and documents of the bench are left out for that.
COMPAT_TESTS := test_adapm test_devices test_eight_bit test_groups test_low_rank test_options test_step

$(VENV)-compat/.installed: optim/pyproject.toml
	$(PYTHON) -m venv $(VENV)-compat
	$(VENV)-compat/bin/python -m pip install $(PIP_FLAGS) -q torch==2.4.1 'transformers==4.57.*' 'numpy<3' hypothesis pydantic 'pytest>=9.2' pytest-timeout
	@touch $@

compat: $(VENV)-compat/.installed  ## AdaPM's tests with the oldest torch that it takes; PYTHON=python3.10 for the oldest Python
	OMP_NUM_THREADS=1 $(VENV)-compat/bin/python -m pytest --confcutdir tests/unit/optim --hypothesis-profile ci -W ignore \
		$(COMPAT_TESTS:%=tests/unit/optim/adapm/%.py)

compiled-test: $(VENV)/.installed-dev  ## a really compiled model, trained and resumed: minutes of a C++ compiler
	$(BIN)/python -m pytest tests/integration/worker/test_compiled_run.py -m compiler

# Nine minutes from a bare machine, what pip takes included: the kit is told when make began.
BEGAN := $(shell date +%s)

$(VENV)/.installed-gpu: $(VENV)/.installed
	@$(call quietly,-e '.[gpu]')
	@touch $@

gpu: $(VENV)/.installed-gpu  ## all that only a GPU can show, with its name into benchmarks/results; small models where there is none
	$(BIN)/python -m benchmarks.device_kit --began $(BEGAN)

fuzz: $(VENV)/.installed-dev  ## FUZZ_EXAMPLES requests to each operation of the REST interface, and every edge of its schemas
	FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-100} $(BIN)/python -m pytest tests/fuzz -m fuzz -s

clean:  ## remove the virtual environment and caches; results in .adapm-bench stay
	rm -rf $(VENV) $(VENV)-compat .mypy_cache .ruff_cache .pytest_cache .hypothesis build ./*.egg-info optim/build optim/*.egg-info
