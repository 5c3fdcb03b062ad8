PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check

# files of tests that run side by side; some wait for servers, so one more than there are cores can be quicker
TEST_PROCESSES ?= 2
# tests start hundreds of interpreters: what one has compiled, others read
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup lock demo serve test test-fleet check bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

$(VENV)/installed: pyproject.toml client/pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --require-hashes --no-deps -r requirements.lock
	$(PIP) install -c constraints.txt torch
	@# first: a service of an older version would take the client's ehr-d3pm script with it when pip replaces it
	@$(PIP) uninstall --quiet --yes ehr-d3pm
	$(PIP) install --no-deps --no-build-isolation -e ./client -e .
	@# what a build leaves beside the sources would be found before what is installed, however old
	@rm -rf *.egg-info client/*.egg-info
	$(PIP) check
	touch $@

setup: $(VENV)/installed ## create .venv with everything in it

# torch is left out: which of its wheels is right depends on the machine. Pins stay as they are where they can;
# `make lock UPGRADE=--upgrade` takes the newest.
LOCK = $(VENV)-lock/bin/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes \
	--no-emit-package torch --no-emit-package ehr-d3pm-client --constraints constraints.txt \
	--custom-compile-command 'make lock' pyproject.toml client/pyproject.toml

lock: ## resolve the dependencies again and write the lock files
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet --disable-pip-version-check uv
	$(LOCK) --extra dev --output-file requirements.lock
	$(LOCK) --constraints requirements.lock --output-file requirements-runtime.lock
	rm -rf $(VENV)-lock

demo: setup ## start everything, train on a simulated population, generate, show the reports (a few minutes)
	$(BIN)/ehr-d3pm demo

serve: setup ## start everything on http://127.0.0.1:8000 and keep running
	$(BIN)/ehr-d3pm serve

# Tests that drive browsers, servers and killed workers can starve on a busy machine. What failed beside other tests is run
# once more by itself; what fails then has failed.
test: setup ## run the tests, two files at a time; what fails, once more by itself
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder || { \
		echo 'Once more, by itself, what failed:'; \
		$(BIN)/python -m pytest --last-failed --last-failed-no-failures none; }

test-fleet: setup ## run the tests of service and API as on several hosts: Postgres, Valkey over TCP, an S3 server
	TEST_FLEET=1 $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder tests/service tests/api || { \
		echo 'Once more, by itself, what failed:'; \
		TEST_FLEET=1 $(BIN)/python -m pytest --last-failed --last-failed-no-failures none tests/service tests/api; }

check: setup ## lint, format, types, and which package imports which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.arrows

bench: setup ## see that every benchmark runs; figures come from running one without --quick
	@for b in $$(ls benchmarks/[a-z]*.py benchmarks/*/__main__.py | cut -d/ -f2 | sed 's/\.py//'); do \
		echo "== $$b"; $(BIN)/python -m benchmarks.$$b --quick || exit 1; done

clean: ## remove what the targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info client/*.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
