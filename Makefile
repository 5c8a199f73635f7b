# Everything runs inside .venv, which is made from requirements.lock on first use and again when the lock changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export OMP_NUM_THREADS ?= 2

.PHONY: demo inspect browser test test-slow check lint types docs format bench bench-objectives bench-chain bench-transformer bench-distributed \
        bench-server lock clean

demo: $(READY)
	$(BIN)/latentalign demo --out demo

inspect: $(READY)
	test -f demo/runs/variational/model.safetensors || $(BIN)/latentalign demo --out demo
	$(BIN)/latentalign serve demo/runs/variational demo/runs/soft

# two processes of one thread each: half the time
test: $(READY) browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# the page is tested in Debian's chromium: it is installed where that is possible, else those tests are skipped
browser:
	@.ci/browser

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow --timeout 3600

check: lint types docs test

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# every figure of docs/performance.md; some sections only: make bench SECTIONS='training decoding'
bench: $(READY)
	$(BIN)/python -m benchmarks.translation $(SECTIONS) $(BENCH)

bench-objectives: $(READY)
	$(BIN)/python -m benchmarks.objectives

# with torch-struct beside it: make bench-chain PEER=folder (see benchmarks/chain.py)
bench-chain: $(READY)
	$(BIN)/python -m benchmarks.chain $(if $(PEER),--peer $(PEER))

# beside JoeyNMT's Transformer, which is installed into PEER the first time
bench-transformer: $(READY)
	$(BIN)/python -m benchmarks.transformer $(if $(PEER),--peer-env $(PEER))

bench-distributed: $(READY)
	$(BIN)/python -m benchmarks.distributed

bench-server: $(READY)
	$(BIN)/python -m benchmarks.server

$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

# after changing the dependencies in pyproject.toml
lock:
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet torch==2.13.0 hatchling editables
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	{ grep '^#' requirements.lock; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//'; } > .lock.new
	mv .lock.new requirements.lock
	touch $(READY)

clean:
	rm -rf $(VENV) demo site bench-results .mypy_cache .pytest_cache .ruff_cache .hypothesis
