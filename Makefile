# Every target sets up what it needs. `make run` and `make test` are all a newcomer has to know.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
LAYERS := server adapter catalog sql compute storage
RUN_FLAGS ?=
TEST_FLAGS ?=
PROFILE ?= full
# Processes of tests: three for two cores, as they wait a third of their time.
WORKERS ?= 3

# Else each of the many processes that the tests start would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run serve test test-full test-slow clients types lint check bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed") if sys.version_info < (3, 11) else None'
	@echo "setting up $(VENV): about a minute, more where packages have to be fetched"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip 'setuptools>=77' wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m compileall -q foreshore $(LAYERS)
	$(BIN)/python -m foreshore.compute.flow.warm
	$(BIN)/python -c 'import foreshore.server.row_kernel'
	touch $@

# Serve at 127.0.0.1:6875 with live data; RUN_FLAGS='--speed 3600' for a faster year.
run: setup
	$(BIN)/foreshore demo $(RUN_FLAGS)

serve: setup
	$(BIN)/foreshore serve

# Minutes, for many times a day: random input with few examples (tests/effort.py), no kills, no Spark.
# What did not run for want of a program (psql, a PostgreSQL, Java) is named at the end.
test: setup
	$(BIN)/pytest -m 'not slow and not full' -n $(WORKERS) --dist loadfile $(TEST_FLAGS)

# What `make test` leaves out, and random input again with all examples; data goes to a disk.
test-full: setup
	PYTEST_DEBUG_TEMPROOT=$${TMPDIR:-/tmp} $(BIN)/pytest --hypothesis-profile $(PROFILE) \
		-m 'not slow and (full or hypothesis or scaled)' -n $(WORKERS) --dist loadfile $(TEST_FLAGS)

test-slow: setup
	$(BIN)/pytest -m slow $(TEST_FLAGS)

# The clients that `make test-slow` tries and that are no dependencies: into build/clients.
clients: setup
	tests/clients/install.sh build/clients

types: setup
	@rm -rf build/types && mkdir -p build/types/foreshore
	@ln -s $(CURDIR)/foreshore/* $(addprefix $(CURDIR)/,$(LAYERS)) build/types/foreshore/
	$(BIN)/mypy

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check: lint types

bench: setup
	$(BIN)/python -m tests.bench

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
