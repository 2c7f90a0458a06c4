# The two commands that set everything up: `make demo` shows the whole path, `make test` checks the tool.
PYTHON ?= python3
BIN := .venv/bin
DEMO := demo-model
# Two at a time, for a test is mostly one thread; file by file, for the tests of a file share what they train; in the order
# of tests/conftest.py.
PYTEST := pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-avx2 test-oldest slow check pictures clean

# Trains on the embedded corpus, translates sentences the model never saw from a file and through a pipe, and scores it.
demo: .venv/installed
	$(BIN)/nmt train --data demo --model $(DEMO)
	head -4 data/demo/test.en > $(DEMO)/unseen.txt
	@echo; echo "Sentences it never saw, from a file:"; cat $(DEMO)/unseen.txt; echo
	$(BIN)/nmt translate --model $(DEMO) $(DEMO)/unseen.txt
	@echo; echo "And through a pipe:"
	echo "I have seen the old man." | $(BIN)/nmt translate --model $(DEMO)
	@echo; echo "All 500 of them, scored:"
	$(BIN)/nmt score --model $(DEMO)
	@echo; echo "Next: .venv/bin/nmt translate --model $(DEMO)           and type sentences like those in data/demo/test.en"
	@echo "      .venv/bin/nmt train --data FOLDER --model MINE    with your own train.en and train.de"

test: check
	$(BIN)/$(PYTEST) -m "not slow"

# The same tests with the oldest versions that pyproject.toml allows.
test-oldest: .venv-oldest/installed
	.venv-oldest/bin/$(PYTEST) -m "not slow"

# The same tests as on a processor that has AVX2 and nothing newer.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 CT2_FORCE_CPU_ISA=AVX2
test-avx2: .venv/installed
	$(AVX2) $(BIN)/$(PYTEST) -m "not slow" $(TESTS)

slow: .venv/installed
	$(BIN)/$(PYTEST) -m slow

check: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Installs once; again only when the requirements change.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

.venv-oldest/installed: pyproject.toml constraints.txt tests/oldest.py
	$(PYTHON) -m venv $(@D)
	$(PYTHON) tests/oldest.py > $(@D)/constraints.txt
	$(@D)/bin/pip install --disable-pip-version-check -c $(@D)/constraints.txt -e '.[dev]'
	touch $@

# The README's, from the model of `make demo`; they need Chromium.
pictures: .venv/installed
	$(BIN)/python data/pictures/draw.py $(DEMO)

clean:
	rm -rf .venv .venv-oldest $(DEMO)
