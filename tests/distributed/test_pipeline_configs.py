"""Configs of pipelines: what can be known of them before anything is built."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.interfaces import DEVICE_MESH, LOSS, MODULE, PIPELINE, STAGES_GENERATOR
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.configs import DeviceMeshConfig
from modalities_pipeline.distributed.pipeline_configs import (
    ComponentSelectorFromPipelineConfig,
    GPT2LLMStagesGeneratorConfig,
    PipelineConfig,
    ScheduledPipelineConfig,
    StagedPipelineConfig,
)

MODEL = Unbuilt("model", "gpt2", MODULE)
STAGES = Unbuilt("pipeline", "selector")
PIPELINE_NODE = Unbuilt("pipeline", "staged", PIPELINE)


def _mesh(pp: int) -> Unbuilt:
    config = DeviceMeshConfig(data_parallel_shard_degree=-1, pipeline_parallel_degree=pp, world_size=4)
    return Unbuilt("device_mesh", "default", DEVICE_MESH, config)


def _generator(**fields: int) -> Unbuilt:
    config = GPT2LLMStagesGeneratorConfig(**{"num_model_layers": 6, **fields})
    return Unbuilt("stages_generator", "gpt2_stages_generator", STAGES_GENERATOR, config)


def _model(**fields: Any) -> Unbuilt:
    config: Any = SimpleNamespace(**{"n_layer": 6, "use_weight_tying": False, "fused_loss": None, **fields})
    return Unbuilt("model", "gpt2", MODULE, config)


STAGED = {
    "whole_model": _model(),
    "stages_generator": _generator(),
    "device_mesh": _mesh(2),
    "local_rank": 0,
    "pp_schedule_name": "1F1B",
    "num_layers_per_stage": 4,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers_per_stage": 2}, r"pp_schedule_name\n.*1F1B needs 1 stage on each rank.*makes 2"),
        ({"pp_schedule_name": "DualPipeV"}, r"pp_schedule_name\n.*DualPipeV needs 2 stages on each rank.*makes 1"),
        ({"num_layers_per_stage": 3}, r"num_layers_per_stage\n.*make 3 stages.*not divisible by the 2 ranks"),
        (
            {"stages_generator": _generator(input_layer_equivalence=5), "num_layers_per_stage": 3},
            r"num_layers_per_stage\n.*transformer.drop count as 5 layers, more than the 3 of a stage",
        ),
        ({"device_mesh": _mesh(1)}, r"device_mesh\n.*needs a pipeline_parallel_degree greater than 1"),
        (
            {"whole_model": _model(n_layer=8)},
            r"stages_generator\n.*num_model_layers is 6, but the model's n_layer is 8",
        ),
        ({"whole_model": _model(use_weight_tying=True)}, r"whole_model\n.*set the model's use_weight_tying to false"),
        ({"whole_model": _model(fused_loss=object())}, r"whole_model\n.*set the model's fused_loss to null"),
        ({"pp_schedule_name": "1B1F"}, "'1F1B', 'Interleaved1F1B'"),
    ],
)
def test_stages_that_cannot_be_are_refused_before_anything_is_built(changes, message):
    assert StagedPipelineConfig(**STAGED).num_layers_per_stage == 4
    with pytest.raises(ValidationError, match=message):
        StagedPipelineConfig(**{**STAGED, **changes})


def test_stages_of_components_that_are_not_known_yet_are_not_judged():
    unknown = {
        "whole_model": MODEL,
        "stages_generator": Unbuilt("stages_generator", "own", STAGES_GENERATOR),
        "num_layers_per_stage": 3,
    }
    assert StagedPipelineConfig(**{**STAGED, **unknown}).num_layers_per_stage == 3


@pytest.mark.parametrize(("stages", "parts"), [("pp_stages", "model_parts"), ("pp_stage", "model_part")])
def test_a_pipeline_takes_both_names_of_its_stages_and_models(stages, parts):
    """W23"""
    config = PipelineConfig(**{stages: STAGES, parts: [MODEL, MODEL]})
    assert config.pp_stages is STAGES
    assert config.model_parts == [MODEL, MODEL]


SCHEDULED = {
    "loss_fn": Unbuilt("loss", "clm_cross_entropy_loss", LOSS),
    "pp_schedule_name": "1f1b",
    "batch_size": 4,
    "microbatch_size": 2,
    "pp_degree": 2,
    "pipeline": PIPELINE_NODE,
}
NCE: Any = SimpleNamespace(prediction_key1="a", prediction_key2="b")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"microbatch_size": 3}, r"batch_size\n.*4 is not divisible by microbatch_size \(3\)"),
        ({"microbatch_size": 4}, r"batch_size\n.*1F1B needs at least 2 micro batches for 2 pipeline ranks"),
        ({"pp_degree": 1}, "pp_degree"),
        ({"pipeline": MODEL}, "has to be a Pipeline"),
        (
            {"loss_fn": Unbuilt("loss", "nce_loss", LOSS, NCE)},
            r"loss_fn\n.*loss/nce_loss is not between one prediction",
        ),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(changes, message):
    """W22: a batch that is no multiple of the micro batch hung all ranks."""
    assert ScheduledPipelineConfig(**SCHEDULED).pp_schedule_name == "1F1B"
    with pytest.raises(ValidationError, match=message):
        ScheduledPipelineConfig(**{**SCHEDULED, **changes})


def test_parts_of_a_pipeline_are_chosen_by_name():
    with pytest.raises(ValidationError, match="'PP_STAGE', 'MODEL_PART' or 'PP_SCHEDULE'"):
        ComponentSelectorFromPipelineConfig(pipeline=PIPELINE_NODE, selection_type="MODEL_PARTS")
