# `make help` lists the targets. Every target works on a fresh clone: the first
# one that needs it makes .venv from requirements.lock.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.made
SEEDS  ?= 2000
SECONDS ?= 60
PORT   ?= 8000
ARGS   ?=

# Compiled files make each of the hundreds of processes that the tests start a second quicker.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup java servers fmt lint types layers collect docs docs-serve coverage mutants wheel-test release check test campaigns sim fuzz brokers bench demo lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) java servers  ## make .venv, see that Java 17+ is there, fetch the servers

# consumer_sdk/__init__.py has the version.
$(STAMP): requirements.lock pyproject.toml consumer_sdk/__init__.py scripts/make_venv.sh
	@scripts/make_venv.sh $(PYTHON) $(VENV)
	@touch $@

java:
	@scripts/ensure_java.sh

servers: $(STAMP) java
	@$(BIN)/python -m consumer_sdk.testing.servers fetch

demo: setup  ## run the main job: flights through Kafka into Spark (ARGS="--help")
	$(BIN)/python -m examples.flights $(ARGS)

test: setup  ## run the tests but for the campaigns, real servers included, on all cores (ARGS="-n 0 -k watermark")
	$(BIN)/python -m pytest -n auto -m "not campaign" $(ARGS)

campaigns: setup  ## run what takes long, on all cores: kill -9, soaks, whole demos, 2 000 seeds of each simulation
	@scripts/campaigns.sh $(BIN)/python $(ARGS)

brokers: setup  ## run only the tests that use real servers
	$(BIN)/python -m pytest -n auto -m "(kafka or kinesis or pulsar or zookeeper) and not campaign" $(ARGS)

sim: $(STAMP)  ## run many seeds of the simulations: make sim SEEDS=100000
	$(BIN)/python -m tests.sim --seeds $(SEEDS) $(ARGS)
	$(BIN)/python -m tests.sim.kinesis --seeds $(SEEDS) $(ARGS)
	$(BIN)/python -m tests.sim.kafka_groups --seeds $(SEEDS) $(ARGS)
	$(BIN)/python -m tests.sim.kafka_share --seeds $(SEEDS) $(ARGS)

fuzz: $(STAMP)  ## damaged input for every decoder: make fuzz SECONDS=600, or INPUTS=1000000 for each
	$(BIN)/python -m tests.fuzz $(if $(INPUTS),--inputs $(INPUTS),--seconds $(SECONDS)) $(ARGS)

bench: setup  ## run all benchmarks
	$(BIN)/python -m benchmarks all --write-docs $(ARGS)

fmt: $(STAMP)  ## format the code and apply the safe fixes
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: $(STAMP)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy, strict, source and tests
	$(BIN)/mypy

layers: $(STAMP)  ## the layer rule, the root links, exports, import cost
	$(BIN)/python -m pytest -q tests/test_repository.py

collect: $(STAMP)  ## every test can be collected, in make test or in make campaigns
	@$(BIN)/python -m pytest --collect-only -q > $(VENV)/.collected || { cat $(VENV)/.collected; exit 1; }
	@tail -n 1 $(VENV)/.collected

docs: $(STAMP)  ## check the documents' links and tables of options, and build the site into build/site
	$(BIN)/python scripts/option_tables.py --check
	$(BIN)/python scripts/error_page.py --check
	$(BIN)/python scripts/check_docs.py
	$(BIN)/python -m sphinx --quiet --fail-on-warning --jobs auto -c docs -d build/site-cache -b html . build/site

docs-serve: docs  ## show the site on http://127.0.0.1:8000/ (PORT=)
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site $(PORT)

coverage: $(STAMP)  ## the tests of trackers and checkpoints take every branch of them
	$(BIN)/coverage run -m pytest -q -m "not campaign and not spark" tests/trackers tests/checkpoints
	$(BIN)/coverage report

mutants: $(STAMP)  ## run tests against mutants, of the trackers or a path (ARGS="window.py"; an hour for all)
	$(BIN)/python scripts/mutate.py $(ARGS)

wheel-test: $(STAMP)  ## build sdist and wheel, use the wheel on each Python here (ARGS=--install: get more)
	$(BIN)/python scripts/wheel_test.py $(ARGS)

release: $(STAMP)  ## changelog, version, distributions, commit and tag; pushes nothing (VERSION=1.2.0, ARGS=--dry-run)
	@$(BIN)/python scripts/release.py $(or $(VERSION),$(error VERSION=1.2.0 is missing)) $(ARGS)

check: $(STAMP)  ## all checks that need no server, two at a time, the longest first
	@$(MAKE) --no-print-directory -j2 --output-sync=target coverage types layers collect lint docs

lock: $(STAMP)  ## write requirements.lock, pins kept (ARGS="--upgrade-package kazoo" or "--upgrade")
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--all-extras --group dev --group docs --custom-compile-command "make lock" \
		--output-file requirements.lock $(ARGS) pyproject.toml

clean:  ## remove caches and build products (keeps .venv)
	rm -rf build dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
