PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test check bench clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-8s %s\n", $$1, $$2}'

$(VENV)/installed: pyproject.toml client/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@# first: a service of an older version would take the client's ehr-d3pm script with it when pip replaces it
	@$(BIN)/pip uninstall -qq --disable-pip-version-check --yes ehr-d3pm
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e client -e '.[dev]'
	touch $@

setup: $(VENV)/installed ## create .venv with everything in it

demo: setup ## start everything, train on a simulated population, generate, show the reports (a few minutes)
	$(BIN)/ehr-d3pm demo

serve: setup ## start everything on http://127.0.0.1:8000 and keep running
	$(BIN)/ehr-d3pm serve

test: setup ## run the tests, two files at a time
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

check: setup ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## see that every benchmark runs; figures come from running one without --quick
	@for b in $$(ls benchmarks/*.py | xargs -n1 basename | grep -vE '^_' | sed 's/\.py//'); do \
		echo "== $$b"; $(BIN)/python -m benchmarks.$$b --quick || exit 1; done

clean: ## remove what the targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info client/*.egg-info
