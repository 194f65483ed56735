"""Number conversions are exact, and the same as those of Modalities where these are right."""

import json
from pathlib import Path

import numpy as np
import pytest

from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.data.manifest import BuildResult, StageIdentity, record
from modalities_pipeline.data.pbin import PackedFileWriter
from modalities_pipeline.exceptions import ConfigError, UserError
from modalities_pipeline.progress.number_conversion import get_num_tokens_from_packed_mem_map_dataset_continuous

DATA = Path(__file__).parent / "vectors"
# Modalities refuses a checkpoint whose parent folder is named like one, too; only the last component counts for us.
VECTORS = [
    vector
    for vector in json.loads((DATA / "number_conversions.json").read_text("utf-8"))
    if "/seen_steps" not in vector["args"].get("checkpoint_path", "")
]
PATH_FIELDS = ("dataset_path", "raw_index_path")


def _convert(name: str, arguments: dict) -> int:
    arguments = {key: str(DATA / Path(value).name) if key in PATH_FIELDS else value for key, value in arguments.items()}
    node = {"component_key": "number_conversion", "variant_key": name, "config": arguments}
    return ComponentFactory(Registry()).build_component(node)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_values_are_those_of_modalities_or_what_it_meant(vector):
    if "value" in vector:
        assert _convert(vector["name"], vector["args"]) == vector.get("intended", vector["value"])
    else:
        with pytest.raises(UserError):
            _convert(vector["name"], vector["args"])


def test_a_parent_folder_may_be_named_like_a_checkpoint():
    assert _convert("num_seen_steps_from_checkpoint_path", {"checkpoint_path": "seen_steps_5/seen_steps_6"}) == 6


def test_only_the_digits_that_checkpoint_names_have_count_as_digits():
    for name in ("seen_steps_٣", "seen_steps_", "unseen_steps_3"):
        with pytest.raises(ConfigError, match="nowhere"):
            _convert("num_seen_steps_from_checkpoint_path", {"checkpoint_path": name})
    with pytest.raises(ConfigError, match="2 times"):
        _convert("num_seen_steps_from_checkpoint_path", {"checkpoint_path": "seen_steps_5-seen_steps_5"})


@pytest.mark.parametrize("name", ["seen_steps_0-seen_tokens_10", "seen_steps_3-seen_tokens_0"])
def test_target_steps_cannot_be_told_from_a_run_that_has_not_begun(name):
    with pytest.raises(ConfigError, match="its number of target steps cannot be derived"):
        _convert("num_target_steps_from_checkpoint_path", {"checkpoint_path": f"{name}-target_tokens_100"})


def test_numbers_beyond_the_precision_of_floats_are_exact():
    tokens = 2**60 + 1
    name = f"seen_steps_1-seen_tokens_1-target_tokens_{tokens}"
    assert _convert("num_target_steps_from_checkpoint_path", {"checkpoint_path": name}) == tokens
    arguments = {"num_tokens": tokens * 3 + 2, "sequence_length": 3}
    assert _convert("num_samples_from_num_tokens", arguments) == tokens


@pytest.mark.parametrize("name", ["num_ranks", "dp_degree"])
def test_both_names_of_the_data_parallel_degree_are_taken(name):
    arguments = {"global_num_samples": 33, "local_micro_batch_size": 2, "gradient_accumulation_steps": 2, name: 2}
    assert _convert("num_steps_from_num_samples", arguments) == 4


@pytest.mark.parametrize("value", [True, "2", 2.0, 0])
def test_numbers_are_strict(value):
    arguments = {"global_num_samples": 33, "local_micro_batch_size": value, "num_ranks": 1}
    with pytest.raises(ConfigError, match="local_micro_batch_size"):
        _convert("local_num_batches_from_num_samples", arguments)


def _pack(path: Path, details: dict | None) -> Path:
    with PackedFileWriter(path, 2) as writer:
        writer.write_document(np.arange(5))
    if details is not None:
        record(StageIdentity("merged_pbin", "1", {}, {}), path, BuildResult(details=details), 0.0)
    return path


@pytest.mark.parametrize(
    ("num_token_ids", "multiple_of", "expected"), [(128, 128, 128), (129, 128, 256), (70000, 64, 70016)]
)
def test_vocabulary_holds_every_token_id(tmp_path, num_token_ids, multiple_of, expected):
    """B021: the largest id counts, not the tokenizer's base size."""
    path = _pack(tmp_path / "x.pbin", {"num_token_ids": num_token_ids})
    arguments = {"dataset_path": str(path), "multiple_of": multiple_of}
    config = {
        "component_key": "number_conversion",
        "variant_key": "vocab_size_from_packed_dataset",
        "config": arguments,
    }
    assert ComponentFactory(Registry()).build_component(config) == expected


@pytest.mark.parametrize("details", [None, {}])
def test_vocabulary_of_a_pack_without_record_is_refused(tmp_path, details):
    path = _pack(tmp_path / "x.pbin", details)
    config = {
        "component_key": "number_conversion",
        "variant_key": "vocab_size_from_packed_dataset",
        "config": {"dataset_path": str(path)},
    }
    with pytest.raises(ConfigError, match=r"x.pbin.manifest.json does not say how many token ids there are"):
        ComponentFactory(Registry()).build_component(config)


def test_a_dataset_too_short_for_one_step_is_refused_with_what_a_step_needs(tmp_path):
    path = _pack(tmp_path / "x.pbin", None)
    arguments = {
        "dataset_path": path,
        "sequence_length": 2,
        "dp_degree": 3,
        "local_micro_batch_size": 1,
        "gradient_accumulation_steps": 2,
    }
    words = (
        r"x\.pbin is too short for one step: its 5 tokens make 2 samples of length 2, and a step needs 6 .* 13 tokens"
    )
    with pytest.raises(ConfigError, match=words):
        get_num_tokens_from_packed_mem_map_dataset_continuous(**arguments)
    assert get_num_tokens_from_packed_mem_map_dataset_continuous(**arguments | {"dp_degree": 1}) == 4
