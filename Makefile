# `make help` lists the targets. Every target works on a fresh clone: the first
# one that needs it makes .venv from requirements.lock.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.made
SEEDS  ?= 2000
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup java servers fmt lint types layers docs coverage mutants check test test-slow sim brokers bench demo lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) java servers  ## make .venv, see that Java 17+ is there, fetch the servers

$(STAMP): requirements.lock pyproject.toml scripts/make_venv.sh
	@scripts/make_venv.sh $(PYTHON) $(VENV)
	@touch $@

java:
	@scripts/ensure_java.sh

servers: $(STAMP) java
	@$(BIN)/python -m consumer_sdk.testing.servers fetch

demo: setup  ## run the main job: flights through Kafka into Spark (ARGS="--help")
	$(BIN)/python -m examples.flights $(ARGS)

test: setup  ## run the tests, real servers included, slow ones left out
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-slow: setup  ## run the slow tests
	$(BIN)/python -m pytest -m slow --timeout 1800 $(ARGS)

brokers: setup  ## run only the tests that use real servers
	$(BIN)/python -m pytest -m "(kafka or kinesis or pulsar or zookeeper) and not slow" $(ARGS)

sim: $(STAMP)  ## run the simulations: make sim SEEDS=100000
	$(BIN)/python -m tests.sim --seeds $(SEEDS) $(ARGS)
	$(BIN)/python -m tests.sim.kinesis --seeds $(SEEDS) $(ARGS)

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

docs: $(STAMP)  ## check that the documents' links lead somewhere
	$(BIN)/python scripts/check_docs.py

coverage: $(STAMP)  ## the trackers' tests take every branch of the trackers
	$(BIN)/coverage run -m pytest -q -m "not slow and not spark" tests/trackers
	$(BIN)/coverage report

mutants: $(STAMP)  ## run the trackers' tests against mutants (ARGS="window.py"; an hour for all)
	$(BIN)/python scripts/mutate.py $(ARGS)

check: lint types layers docs coverage  ## all checks that need no server

lock: $(STAMP)  ## write requirements.lock from what .venv holds
	$(BIN)/python scripts/lock.py > requirements.lock.new
	@mv requirements.lock.new requirements.lock

clean:  ## remove caches and build products (keeps .venv)
	rm -rf build dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
