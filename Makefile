# Every target works on a fresh machine: it installs what it needs into .venv first.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS ?= dev

.PHONY: help install test test-all lint bench reproduce figures clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-14s %s\n", $$1, $$2}'

install: .venv/.installed  ## install into .venv, exact versions from constraints.txt

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@

test: install  ## all tests that need neither a GPU nor (outside CI) Slurm
	$(BIN)/python -m pytest

lint: install  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
