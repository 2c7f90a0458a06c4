# `make demo` and `make test` install everything they need. The first shows the tool, the second tests it.
PYTHON ?= python3
BIN := .venv/bin
DEMO := demo-model
COMPARE := compare
# Two at a time, because a test mostly uses one thread; file by file, because the tests of a file share the models they
# train; longest files first, as tests/conftest.py orders them.
PYTEST := pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo compare test test-avx2 test-oldest slow check pictures clean

# Trains on the demo corpus, translates unseen sentences from a file and through a pipe, and scores the model.
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

# Trains the three architectures on the demo corpus, 8 minutes on two CPU cores, and opens a page that sets them side by side.
# Run again, it resumes what was interrupted, and trains nothing anew. Without a display it only names the page.
ARCHITECTURES := transformer decoder-only rnn
compare: .venv/installed
	$(foreach name,$(ARCHITECTURES),$(BIN)/nmt train --data demo --architecture $(name) --steps 600 --validate-every 100 \
	  --model $(COMPARE)/$(name) &&) true
	$(BIN)/nmt describe $(addprefix $(COMPARE)/,$(ARCHITECTURES)) --page $(COMPARE)/compare.html
	@echo; echo "Open $(COMPARE)/compare.html in a browser."
	@if [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] || [ "$$(uname)" = Darwin ]; then \
	  $(BIN)/python -c 'import pathlib, webbrowser; webbrowser.open(pathlib.Path("$(COMPARE)/compare.html").absolute().as_uri())' \
	  || true; fi

test: check
	$(BIN)/$(PYTEST) -m "not slow"

# The same tests with the oldest libraries that pyproject.toml allows.
test-oldest: .venv-oldest/installed
	.venv-oldest/bin/$(PYTEST) -m "not slow"

# The same tests as on a processor with AVX2 and nothing newer.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 CT2_FORCE_CPU_ISA=AVX2
test-avx2: .venv/installed
	$(AVX2) $(BIN)/$(PYTEST) -m "not slow" $(TESTS)

slow: .venv/installed
	$(BIN)/$(PYTEST) -m slow

check: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Installs once, and again when the requirements change.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

.venv-oldest/installed: pyproject.toml constraints.txt tests/oldest.py
	$(PYTHON) -m venv $(@D)
	$(PYTHON) tests/oldest.py > $(@D)/constraints.txt
	$(@D)/bin/pip install --disable-pip-version-check -c $(@D)/constraints.txt -e '.[dev]'
	touch $@

# Redraws the pictures of README and docs from the model of `make demo`. Needs Chromium.
pictures: .venv/installed
	$(BIN)/python data/pictures/draw.py $(DEMO)

clean:
	rm -rf .venv .venv-oldest $(DEMO) $(COMPARE)
