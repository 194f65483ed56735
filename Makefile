# The commands of this repository. Each sets up what it needs and may be run again at any time.
#   make demo   raw text -> trained model -> Hugging Face folder -> generated text, every stage a Dagster asset
#   make ui     the Dagster UI on http://127.0.0.1:3000, with the runs of `make demo`
#   make test   linters, type checker and the whole test suite
#   make benchmark PEER_PYTHON=...   the data stages' speed and memory beside Modalities', into docs/benchmarks.md
#   make soak   kills, damaged files and 3 GB of data in full, which the tests only sample: an hour or more, 20 GB of disk

PYTHON ?= python3
PORT ?= 3000
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
export DAGSTER_HOME ?= $(CURDIR)/.dagster_home

.DEFAULT_GOAL := help
.PHONY: help install demo ui test lint benchmark soak clean

help:
	@sed -n '1,/^$$/p' Makefile

install: $(VENV)/.installed

# The stamp depends on what decides the environment; an interrupted install leaves no stamp and is done again.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed. Set it with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into $(VENV): some minutes and about 2 GB, once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Dagster's remarks about its own command line are nothing that a user could act on.
demo ui: export PYTHONWARNINGS := ignore:Function,ignore:Parameter

demo: install
	@$(BIN)/python -m modalities_pipeline.orchestration.instance
	@started=$$(date +%s); \
		$(BIN)/dagster asset materialize -m modalities_pipeline.definitions --select '*' && \
		$(BIN)/python -m modalities_pipeline summary --since $$started

ui: install
	@$(BIN)/python -m modalities_pipeline.orchestration.instance
	$(BIN)/dagster dev --host 127.0.0.1 --port $(PORT)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

# The data stages' speed and memory; docs/benchmarks.md tells how to make an environment with Modalities for PEER_PYTHON.
# Without PEER_PYTHON only this package is measured, and docs/benchmarks.md stays as it is.
BENCHMARK_SIZES_IN_MB ?= 50 300 3000
benchmark: install
	$(BIN)/python benchmarks/data_stages.py --sizes-in-mb $(BENCHMARK_SIZES_IN_MB) \
		$(if $(TOKENIZER_DIR),--tokenizer-dir $(TOKENIZER_DIR)) \
		$(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON) --write docs/benchmarks.md)

# In full what the tests only sample: kills, damaged files, properties, a 3 GB corpus. An hour or two, 20 GB of disk.
soak: install
	$(BIN)/python benchmarks/soak.py

clean:
	rm -rf outputs .dagster_home .mypy_cache .pytest_cache .ruff_cache
