# Every command for working on lakeproof. `make` alone lists the targets.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup demo ui test test-all check quick wheel manual bench lock sbom format clean

# Variables you may set: PYTHON (the interpreter), PORT (of the UI), ONCE=1 (the demo exits),
# ONLY (parts of test-all, as '"PostgreSQL 14 with Spark" "edges without Spark"'), and for `ui` LAKEPROOF_CONFIG (the lakeproof.yaml).
PORT ?= 3000
ONCE ?=
ONLY ?=
PYTHON ?=

VENV := .venv/bin/python
# Caches stay in the checkout. A HOME that is unset or not writable is replaced, since libraries write there on their own.
export UV_CACHE_DIR ?= $(CURDIR)/.cache/uv
export LAKEPROOF_JARS := $(CURDIR)/.cache/jars
export RUFF_CACHE_DIR := $(CURDIR)/.cache/ruff
export HOME := $(shell if [ -n "$$HOME" ] && [ -w "$$HOME" ]; then printf %s "$$HOME"; else mkdir -p .cache/home && printf %s "$(CURDIR)/.cache/home"; fi)
export DAGSTER_DISABLE_TELEMETRY := 1
export GX_ANALYTICS_ENABLED := false
# These belong to other installations, and would take precedence over the locked one; without files of bytecode each of the
# hundred processes that the tests start would compile the engine again.
unexport PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME VIRTUAL_ENV SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS

LOCK := --universal --python-version 3.10 --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' -q

# $(call prepare,preflight arguments): prints one clear line if something is missing, else sets up the environment.
prepare = @py=$$(PYTHON='$(PYTHON)' sh scripts/install/find_python.sh) && "$$py" scripts/install/preflight.py $(1) && "$$py" scripts/install/setup.py

help:
	@echo 'make demo          run the whole pipeline on this machine, then the Dagster UI on PORT (3000); Ctrl-C ends it'
	@echo 'make demo ONCE=1   the same without the UI; exits 0 only if every table is proved equal'
	@echo 'make test          set everything up, then run all checks and tests; prints the time of each part'
	@echo 'make test-all      the same with every random suite in full, then on PostgreSQL 14 to 17; takes hours'
	@echo 'make quick         check lint, format, types and tests of the files that differ from the branch main'
	@echo 'make check         check lint, format, strict types, import contracts, unit tests and tidy rules'
	@echo 'make wheel         build the wheel in .cache/wheel, install it into an empty environment and ask for its help'
	@echo 'make manual        build the manual as a site in .cache/site/html, to be read without a network'
	@echo 'make ui            start Dagster on PORT with the configuration LAKEPROOF_CONFIG (lakeproof.yaml)'
	@echo 'make bench         run the benchmarks of docs/benchmarks.md'
	@echo 'make setup         create the environment only: .venv and .cache, with what lets Spark start sooner'
	@echo 'make lock          update requirements.lock from pyproject.toml, and the locks in scripts'
	@echo 'make sbom          write sbom.json: locked packages and jars, in CycloneDX'
	@echo 'make format        format all code with ruff'
	@echo 'make clean         delete everything that the targets above have created'

# The archive of Spark's classes takes a minute, so neither demo nor test waits for it.
setup:
	$(call prepare,)
	@exec $(VENV) -m lakeproof fetch-jars --s3 '$(LAKEPROOF_JARS)'

demo:
	$(call prepare,--server $(if $(ONCE),,--port '$(PORT)'))
	@exec $(VENV) -m demo.run $(if $(ONCE),--once,--port '$(PORT)')

ui:
	$(call prepare,--port '$(PORT)')
	@exec $(VENV) -m scripts.ui --port '$(PORT)'

test:
	$(call prepare,--server)
	@exec $(VENV) scripts/parts.py test

test-all:
	$(call prepare,--server)
	@exec $(VENV) scripts/parts.py test-all $(if $(ONLY),--only $(ONLY))

check:
	$(call prepare,)
	@exec $(VENV) scripts/parts.py check

quick:
	$(call prepare,)
	@exec $(VENV) scripts/parts.py quick

wheel:
	$(call prepare,)
	@exec $(VENV) scripts/wheel.py

manual:
	$(call prepare,)
	@exec $(VENV) scripts/manual.py

bench:
	$(call prepare,--server)
	@exec $(VENV) -m bench.run

lock: setup
	$(VENV) -m uv pip compile scripts/install/installer.in $(LOCK) -o scripts/install/installer.lock
	$(VENV) -m uv pip compile scripts/fetch/readers.in $(LOCK) -o scripts/fetch/readers.lock
	$(VENV) -m uv pip compile pyproject.toml --extra spark --group dev $(LOCK) -o requirements.lock

sbom: setup
	@$(VENV) scripts/sbom.py sbom.json

format: setup
	@$(VENV) -m ruff check --fix -q . ; $(VENV) -m ruff format .

clean:
	rm -rf .venv .cache .hypothesis sbom.json demo/.state .mypy_cache .pytest_cache .ruff_cache .import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
