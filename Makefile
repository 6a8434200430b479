# Everything here needs Python 3.11 or newer and make; no keys, no network beyond the package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCK   := requirements.lock

.PHONY: run test check fmt slow bench servers lock clean

run: $(VENV)/.run                 ## Install and run the quickstart campaign.
	$(BIN)/sortition run configs/quickstart.yaml -y

test: $(VENV)/.test               ## Install and run the tests.
	$(BIN)/python -m pytest $(PYTEST_ARGS)

servers: $(VENV)/.test            ## Tests that need npm or Debian packages.
	@echo "servers: no test needs another server yet (the live judges bring them)"

check: $(VENV)/.dev               ## Lint and types.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell

fmt: $(VENV)/.dev                 ## Format, and mend what the linter can mend.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

slow: $(VENV)/.test               ## Full statistical and crash suites; writes docs/measured.md.
	rm -f $(VENV)/measured.jsonl
	MEASURED=$(VENV)/measured.jsonl $(BIN)/python -m pytest -m slow $(PYTEST_ARGS)
	MEASURED=$(VENV)/measured.jsonl $(BIN)/python benchmarks/engine.py
	MEASURED=$(VENV)/measured.jsonl $(BIN)/python benchmarks/allocation.py
	$(BIN)/python benchmarks/measured.py $(VENV)/measured.jsonl docs/measured.md

bench: $(VENV)/.test              ## Side-by-side measurements.
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/allocation.py

lock: $(VENV)/.dev                ## Pin the versions that development and CI use.
	$(BIN)/pip freeze --exclude-editable | grep -v ' @ ' > $(LOCK)

clean:
	rm -rf $(VENV)

$(VENV)/.run: pyproject.toml $(LOCK)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c $(LOCK) -e .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(BIN)/pip install --quiet --disable-pip-version-check -c $(LOCK) -e '.[test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check -c $(LOCK) -e '.[dev]'
	@touch $@
