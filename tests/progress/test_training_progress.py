"""A checkpoint's name says how far a training is, and can be read back."""

from pathlib import Path

import pytest

from modalities_pipeline.progress.training_progress import TrainingProgress, parse_checkpoint_name

PROGRESS = TrainingProgress(
    num_seen_steps_current_run=3,
    num_seen_tokens_current_run=384,
    num_target_steps=20,
    num_target_tokens=2560,
    num_seen_steps_previous_run=5,
    num_seen_tokens_previous_run=640,
)


def test_totals_count_the_previous_run():
    """B038"""
    assert (PROGRESS.num_seen_steps_total, PROGRESS.num_seen_tokens_total) == (8, 1024)


@pytest.mark.parametrize("experiment_id", ["2026-01-02__03-04-05_abcdef0123456789", "a-seen_steps_1-b", ""])
def test_name_is_read_back(experiment_id):
    name = PROGRESS.checkpoint_name(experiment_id)
    assert name == f"eid_{experiment_id}-seen_steps_8-seen_tokens_1024-target_steps_20-target_tokens_2560"
    parsed_id, parsed = parse_checkpoint_name(Path("/some/where") / name)
    assert parsed_id == experiment_id
    assert (parsed.num_seen_steps_total, parsed.num_seen_tokens_total) == (8, 1024)
    assert (parsed.num_target_steps, parsed.num_target_tokens) == (20, 2560)


@pytest.mark.parametrize(
    "name", ["", "eid_x", "eid_x-seen_steps_a-seen_tokens_1-target_steps_1-target_tokens_1", ".tmp"]
)
def test_other_names_are_no_checkpoints(name):
    assert parse_checkpoint_name(Path("/ck") / name) is None
