"""A pipeline over two ranks computes the losses and gradients of one process, whatever the schedule."""

import json
from pathlib import Path
from typing import Any

import pipeline_batches
import pytest
import torch

from modalities_pipeline.batch import InferenceResultBatch
from modalities_pipeline.distributed.pipeline_schedules import PipelineSchedules
from modalities_pipeline.models.gpt2 import build_gpt2

SCRIPT = Path(pipeline_batches.__file__)


@pytest.fixture(scope="module")
def model_config(make_gpt2_config):
    return make_gpt2_config(sequence_length=16)


@pytest.fixture(scope="module")
def ranks(run_distributed, model_config, tmp_path_factory) -> list[dict[tuple[str, bool], list[dict[str, Any]]]]:
    """What the script found on each rank: (schedule, whether the stages are sharded) -> results of its rounds."""
    output = tmp_path_factory.mktemp("pipelines")
    run_distributed(SCRIPT, 2, str(output), json.dumps(model_config))
    return [torch.load(output / f"rank_{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def single(model_config) -> dict[str, Any]:
    """Totals and gradients of the mean loss over both batches, by one process."""
    model = pipeline_batches.initialized(build_gpt2(**model_config))
    totals = []
    for inputs, targets in pipeline_batches.batches():
        batch = InferenceResultBatch({"target_ids": targets}, model({"input_ids": inputs}))
        totals.append(pipeline_batches.LOSS.sum_and_count(batch))
    (sum(loss_sum for loss_sum, _ in totals) / sum(count for _, count in totals)).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"totals": [[total.item() for total in pair] for pair in totals], "gradients": gradients}


@pytest.mark.multi_process
@pytest.mark.parametrize("is_sharded", [False, True])
@pytest.mark.parametrize("kind", PipelineSchedules)
def test_gradients_of_accumulated_batches_are_those_of_their_mean_loss_on_one_process(kind, is_sharded, ranks, single):
    """W7: torch would divide the gradients of the first batch once more at the second.

    Schedules that split the backward pass would leave some parameters of sharded stages without gradients.
    """
    for first, second in zip(ranks[0][kind, is_sharded], ranks[1][kind, is_sharded], strict=True):
        assert not first["gradients"].keys() & second["gradients"].keys()
        gradients = first["gradients"] | second["gradients"]
        assert gradients.keys() == single["gradients"].keys()
        for name, gradient in single["gradients"].items():
            torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-7, msg=name)


@pytest.mark.multi_process
@pytest.mark.parametrize("is_sharded", [False, True])
@pytest.mark.parametrize("kind", PipelineSchedules)
def test_the_last_stage_alone_knows_the_losses(kind, is_sharded, ranks, single):
    last = 0 if kind.is_v else 1
    for own, other in zip(ranks[last][kind, is_sharded], ranks[1 - last][kind, is_sharded], strict=True):
        assert other["totals"] == [[0, 0], [0, 0]]
        for found, wanted in zip(own["totals"], single["totals"], strict=True):
            assert found == pytest.approx(wanted, rel=1e-6)
        if kind.can_evaluate:
            assert own["evaluated"] == pytest.approx(single["totals"][0], rel=1e-6)
