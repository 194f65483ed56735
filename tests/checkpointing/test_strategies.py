"""Strategies save and delete as Modalities' do, and save the last step in any case."""

import json
from pathlib import Path

import pytest

from modalities_pipeline.checkpointing.strategies import (
    SaveEveryKStepsCheckpointingStrategy,
    SaveKMostRecentCheckpointsStrategy,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "checkpointing.json").read_text("utf-8"))["strategies"]
KINDS = {
    "save_k_most_recent": SaveKMostRecentCheckpointsStrategy,
    "save_every_k_steps": SaveEveryKStepsCheckpointingStrategy,
}


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_instructions_are_those_of_modalities(name, make_progress):
    kind, k = name.split(" k=")
    strategy = KINDS[kind](int(k))
    saved = []
    for expected in VECTORS[name]:
        progress = make_progress(expected["step"])
        instruction = strategy.get_checkpoint_instruction(progress, saved)
        assert instruction.save_current is expected["save"]
        assert [old.num_seen_steps_total for old in instruction.checkpoints_to_delete] == expected["delete"]
        if instruction.save_current:
            saved.append(progress)
        saved = [old for old in saved if old not in instruction.checkpoints_to_delete]


def test_every_k_steps_saves_the_last_step_too(make_progress):
    """B062"""
    strategy = SaveEveryKStepsCheckpointingStrategy(4)
    assert strategy.get_checkpoint_instruction(make_progress(10, num_target_steps=10), []).save_current


def test_most_recent_counts_what_an_earlier_process_saved(make_progress):
    saved = [make_progress(step) for step in (2, 4, 6)]
    instruction = SaveKMostRecentCheckpointsStrategy(2).get_checkpoint_instruction(make_progress(8), saved)
    assert [old.num_seen_steps_total for old in instruction.checkpoints_to_delete] == [2, 4]
