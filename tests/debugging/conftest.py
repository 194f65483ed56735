"""Fixtures of the tests of tensor statistics."""

import json

import pytest

from modalities_pipeline.debugging.tensor_statistics import get_debugging_enriched_model


@pytest.fixture
def read(tmp_path):
    """Function rank -> what is in the rank's file, a dict for each line; it has to be JSON to the letter."""

    def read_lines(rank=0):
        text = (tmp_path / "logs" / "stats" / f"tensor_stats_rank_{rank}.jsonl").read_text("utf-8")
        return [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]

    return read_lines


@pytest.fixture
def enrich(tmp_path):
    """Function (model, fields) -> the model, which writes into a folder that is not there yet."""

    def enrich_model(model, **fields):
        return get_debugging_enriched_model(model, tmp_path / "logs" / "stats", **fields)

    return enrich_model
