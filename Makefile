# Thermocline: `make help` lists the targets. Each target does its own set-up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS   := .venv-docs
ARGS   ?=
KILLS  ?= 1000
WORKERS ?= 4
COMPILE = $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-package thermocline-client --no-header

# Bytecode is kept, whatever the environment says: else each of some hundred interpreters of a test run compiles all of this.
export PYTHONDONTWRITEBYTECODE :=

# What failed is asked once more, in a new process with the same seeds; what it said at first stays in the output.
# A wrong answer is not (tests/fixtures/exact.py). What passes then is flaky, and counted (tests/fixtures/flaky.py).
BEGAN := $(shell date +%s)
define asked
@echo '$(1)'
@$(1) || { test $$? -eq 1 && echo "make: asking what failed once more" && \
	$(1) --last-failed --last-failed-no-failures none --randomly-seed last; }
endef

.DEFAULT_GOAL := help
.PHONY: help setup jars classes check lint unit cover format test soak tools demo example bench docs wheel lock clean

help:  ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## the virtual environment, from pinned requirements with hashes
$(STAMP): requirements.txt pyproject.toml clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "Thermocline needs Python 3.11 or newer; `$(PYTHON)` is %d.%d. Run: make PYTHON=/path/to/python3.11 ..." % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e clients/python
	@touch $@

jars: $(STAMP)  ## Kafka, Iceberg and JDBC jars, resolved once into the user's cache
	@$(BIN)/python -m connectors.jars

classes: jars  ## once in the user's cache: the classes of Spark and Kafka, archived (they start in two thirds of the time); programs in Go
	@$(BIN)/python -m tests.harness.class_archive
	@$(BIN)/python -m tests.harness.go_programs

check: $(STAMP)  ## format, lint, types, imports, unit tests: under a minute
	@$(MAKE) --no-print-directory -j2 lint unit
	@$(BIN)/python -m tests.fixtures.flaky $(BEGAN)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

unit: $(STAMP)
	$(call asked,$(BIN)/python -m pytest -q tests/unit -n 2 --durations=5)

cover: $(STAMP)  ## unit tests once more, with the floors of what they cover
	$(call asked,$(BIN)/coverage run -m pytest -q tests/unit -n 2 --durations=5)
	$(BIN)/coverage combine -q
	@$(BIN)/python -m tests.harness.coverage_floors

format: $(STAMP)  ## rewrite the files the way `check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(STAMP) classes $(DOCS)/.installed  ## everything: check and floors of coverage, then real Kafka, Iceberg, Spark and stock clients
	@$(MAKE) --no-print-directory -j2 lint cover
	$(call asked,$(BIN)/python -m pytest tests --ignore=tests/unit -m "not soak and not tools" -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS))
	@$(BIN)/python -m tests.fixtures.flaky $(BEGAN)

soak: $(STAMP) classes  ## the long seeded runs, and unit tests with other examples than each time's
	$(BIN)/python -m pytest -q tests/unit -n 2 --hypothesis-profile=other
	THERMOCLINE_KILLS=$(KILLS) $(BIN)/python -m pytest tests -m soak --timeout=0 $(ARGS)

tools: $(STAMP)  ## what people connect with, each in an environment of its own from the package index
	$(BIN)/python -m pytest tests -m tools --timeout=0 $(ARGS)

demo: $(STAMP)  ## real Kafka, Iceberg, Spark, Flight SQL on this machine: ARGS="--seconds 90 --check"
	$(BIN)/thermocline demo $(ARGS)

example: $(STAMP)  ## the first example of the README, over the demo's tables: half a minute
	$(BIN)/python examples/both_sides.py

bench: $(STAMP) jars  ## the benchmarks of benchmarks/README.md
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(DOCS)/.installed  ## the pages as a site, in build/site; a broken link is an error
	$(DOCS)/bin/sphinx-build -q -W --keep-going -n -E -c docs . build/site
	@echo "build/site/index.html"

$(DOCS)/.installed: docs/requirements.txt
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.txt
	@touch $@

wheel: $(STAMP)  ## what `pip install thermocline` installs, in dist: the server's wheel and its client's
	$(BIN)/python -m hatchling build -t wheel
	cd clients/python && ../../$(BIN)/python -m hatchling build -t wheel -d ../../dist
	@ls dist/*.whl

lock: $(STAMP)  ## resolve all requirements again (hashes, no index addresses)
	$(COMPILE) pyproject.toml --extra spark --extra postgresql --group dev --upgrade -o requirements.txt
	$(COMPILE) --group docs --upgrade -o docs/requirements.txt
	$(COMPILE) pyproject.toml --extra postgresql --no-annotate -c requirements.txt -o deploy/requirements.txt
	echo pyspark | $(COMPILE) - --no-annotate -c requirements.txt -o deploy/requirements-spark.txt
	printf '%s\n' hatchling pip setuptools wheel | $(COMPILE) - --no-annotate -c requirements.txt -o deploy/requirements-build.txt

clean:  ## remove what `setup` and the tests made here (not the jar cache)
	rm -rf $(VENV) $(DOCS) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist *.egg-info .coverage* .flaky
