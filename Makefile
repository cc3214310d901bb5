# Everything a newcomer runs. `make` alone lists the targets.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup demo ui test test-all check bench lock sbom format clean

# Variables a caller may set: PYTHON (which interpreter), PORT (the UI's), ONCE=1 (demo exits), and for `ui`
# LAKEPROOF_CONFIG (which lakeproof.yaml).
PORT ?= 3000
ONCE ?=
PYTHON ?=

VENV := .venv/bin/python
# Caches stay in the checkout; a HOME that is unset or not writable is replaced, since libraries write there unasked.
export UV_CACHE_DIR ?= $(CURDIR)/.cache/uv
export LAKEPROOF_JARS := $(CURDIR)/.cache/jars
export RUFF_CACHE_DIR := $(CURDIR)/.cache/ruff
export HOME := $(shell if [ -n "$$HOME" ] && [ -w "$$HOME" ]; then printf %s "$$HOME"; else mkdir -p .cache/home && printf %s "$(CURDIR)/.cache/home"; fi)
export DAGSTER_DISABLE_TELEMETRY := 1
export GX_ANALYTICS_ENABLED := false
# These belong to other installations and would be preferred to the locked one.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS

LOCK := --universal --python-version 3.10 --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' -q

# $(call prepare,preflight arguments): one clear line where something is missing, then the environment.
prepare = @py=$$(PYTHON='$(PYTHON)' sh scripts/find_python.sh) && "$$py" scripts/preflight.py $(1) && "$$py" scripts/setup.py

help:
	@echo 'make demo          the whole pipeline on this machine, then the Dagster UI on PORT (3000); Ctrl-C ends it'
	@echo 'make demo ONCE=1   the same without the UI: exits 0 only if every table is proved equal'
	@echo 'make test          sets everything up, then all checks and tests, with the time of each part'
	@echo 'make test-all      the same with the whole of every random suite, then on PostgreSQL 14 to 17; hours'
	@echo 'make check         lint, format, strict types, import contracts, unit tests, tidy rules'
	@echo 'make ui            Dagster on LAKEPROOF_CONFIG (lakeproof.yaml), on PORT'
	@echo 'make bench         the benchmarks of docs/benchmarks.md'
	@echo 'make setup         only the environment: .venv and .cache'
	@echo 'make lock          requirements.lock anew from pyproject.toml'
	@echo 'make sbom          sbom.json: what the lock and the jars bring, in CycloneDX'
	@echo 'make format        ruff, in place'
	@echo 'make clean         removes what the targets above made'

setup:
	$(call prepare,)

demo:
	$(call prepare,--server $(if $(ONCE),,--port '$(PORT)'))
	@exec $(VENV) -m demo.run $(if $(ONCE),--once,--port '$(PORT)')

ui:
	$(call prepare,--port '$(PORT)')
	@exec $(VENV) scripts/ui.py --port '$(PORT)'

test:
	$(call prepare,--server)
	@exec $(VENV) scripts/parts.py test

test-all:
	$(call prepare,--server)
	@exec $(VENV) scripts/parts.py test-all

check:
	$(call prepare,)
	@exec $(VENV) scripts/parts.py check

bench:
	$(call prepare,--server)
	@exec $(VENV) -m bench.run

lock: setup
	$(VENV) -m uv pip compile scripts/installer.in $(LOCK) -o scripts/installer.lock
	$(VENV) -m uv pip compile pyproject.toml --group dev $(LOCK) -o requirements.lock

sbom: setup
	@$(VENV) scripts/sbom.py sbom.json

format: setup
	@$(VENV) -m ruff check --fix -q . ; $(VENV) -m ruff format .

clean:
	rm -rf .venv .cache .hypothesis sbom.json demo/.state .mypy_cache .pytest_cache .ruff_cache .import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
