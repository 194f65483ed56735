"""Names of checkpoints are those of Modalities, and say how far the training was."""

import json
from pathlib import Path

import pytest

from modalities_pipeline.checkpointing.folders import find_fsdp1_checkpoints, fsdp1_file_paths
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.progress import number_conversion
from modalities_pipeline.progress.training_progress import TrainingProgress, parse_checkpoint_name

VECTORS = json.loads((Path(__file__).parent / "vectors" / "checkpointing.json").read_text("utf-8"))
NAMES, PARSED = VECTORS["names"], VECTORS["parsed_from_path"]
# Modalities computes this number from the others, which goes wrong where the batch size changed.
NUM_TARGET_STEPS = "get_num_target_steps_from_checkpoint_path"
CONVERSIONS = sorted({name for numbers in PARSED.values() for name in numbers if name != NUM_TARGET_STEPS})


@pytest.mark.parametrize("path", [path for path in PARSED if "/eid_a" not in path])
@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_numbers_in_a_checkpoints_path_are_those_that_modalities_finds(path, conversion):
    convert, expected = getattr(number_conversion, conversion), PARSED[path][conversion]
    if isinstance(expected, int):
        assert convert(Path(path)) == expected
    else:
        with pytest.raises(ConfigError, match="has to be in the name of a checkpoint exactly once, but is nowhere"):
            convert(Path(path))


def test_a_folder_above_may_be_named_like_a_checkpoint():
    """W17"""
    (path,) = (Path(path) for path in PARSED if "/eid_a" in path)
    numbers = [getattr(number_conversion, conversion)(path) for conversion in CONVERSIONS]
    assert dict(zip(CONVERSIONS, numbers, strict=True)) == {
        "get_last_step_from_checkpoint_path": 7,
        "get_num_seen_steps_from_checkpoint_path": 8,
        "get_global_num_seen_tokens_from_checkpoint_path": 16,
        "get_global_num_target_tokens_from_checkpoint_path": 20,
    }


def test_names_of_files_and_folders_are_those_of_modalities():
    parsed = parse_checkpoint_name(Path(NAMES["dcp_folder"]))
    assert parsed is not None
    experiment_id, progress = parsed
    assert (progress.num_seen_steps_total, progress.num_seen_tokens_total) == (8, 1024)
    assert progress.checkpoint_name(experiment_id) == Path(NAMES["dcp_folder"]).name
    paths = fsdp1_file_paths(Path("/ck"), experiment_id, progress)
    assert [str(path) for path in paths] == [NAMES["fsdp1_model"], NAMES["fsdp1_optimizer"]]


def test_files_of_other_experiments_and_other_names_are_no_checkpoints_of_this_one(tmp_path):
    progress = TrainingProgress(4, 512, 20, 2560)
    for experiment_id in ("x", "y", "x-model"):
        for path in fsdp1_file_paths(tmp_path, experiment_id, progress):
            path.touch()
    (tmp_path / "eid_x-model-seen_steps_many.bin").touch()
    (found,) = find_fsdp1_checkpoints(tmp_path, "x")
    assert found.num_seen_steps_total == 4
