# The two commands that set everything up: `make demo` shows the whole path, `make test` checks the tool.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test slow check clean

demo: .venv/installed
	$(BIN)/python -m tests.demo

test: check
	$(BIN)/pytest -m "not slow"

slow: .venv/installed
	$(BIN)/pytest -m slow

check: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Installs once; again only when the requirements change.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv model
