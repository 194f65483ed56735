"""What torch's schedules ask of stages and micro batches is known without torch."""

import json
from pathlib import Path

import pytest

from modalities_pipeline.distributed.pipeline_schedules import (
    PipelineSchedules,
    check_num_microbatches,
    stage_ids_of_rank,
)
from modalities_pipeline.exceptions import ConfigError

CASES = json.loads((Path(__file__).parent / "vectors" / "pipeline_stages.json").read_text())["stage_ids"]


@pytest.mark.parametrize("case", CASES)
def test_each_rank_has_the_stages_that_it_has_in_modalities(case):
    for rank, wanted in enumerate(case["stage_ids_per_rank"]):
        arguments = PipelineSchedules(case["schedule"]), case["num_stages"], case["pp_size"], rank
        if isinstance(wanted, list):
            assert stage_ids_of_rank(*arguments) == wanted
        else:
            with pytest.raises(ConfigError, match=r"ZBVZeroBubble needs 2 stages on each rank.* makes 3"):
                stage_ids_of_rank(*arguments)


@pytest.mark.parametrize("schedule", [PipelineSchedules.ONE_F_ONE_B, PipelineSchedules.GPIPE])
def test_schedules_of_one_stage_refuse_several(schedule):
    with pytest.raises(ConfigError, match=r"needs 1 stage on each rank, but num_layers_per_stage makes 2\."):
        stage_ids_of_rank(schedule, num_stages=4, pp_size=2, pp_rank=0)


@pytest.mark.parametrize(
    ("schedule", "refused", "taken"),
    [
        (PipelineSchedules.ONE_F_ONE_B, [1], [2, 3, 4]),
        (PipelineSchedules.GPIPE, [], [1, 3]),
        (PipelineSchedules.INTERLEAVED_1F1B, [5, 7], [1, 2, 3, 4, 6]),
        (PipelineSchedules.INTERLEAVED_ZERO_BUBBLE, [5, 7], [1, 3, 8]),
        (PipelineSchedules.ZBV_ZERO_BUBBLE, [], [1, 4, 5]),
        (PipelineSchedules.DUAL_PIPE_V, [2, 3], [4, 5]),
    ],
)
def test_numbers_of_micro_batches_that_a_schedule_cannot_take_are_refused(schedule, refused, taken):
    for num_microbatches in taken:
        check_num_microbatches(schedule, num_microbatches, pp_size=2)
    for num_microbatches in refused:
        with pytest.raises(ConfigError, match=f"{schedule} needs"):
            check_num_microbatches(schedule, num_microbatches, pp_size=2)


def test_only_schedules_that_go_back_up_the_ranks_cannot_evaluate():
    """W22"""
    assert [kind for kind in PipelineSchedules if not kind.can_evaluate] == ["ZBVZeroBubble", "DualPipeV"]
