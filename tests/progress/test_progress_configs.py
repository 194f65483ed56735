"""What the configs of number conversions and of the MFU calculator take."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.interfaces import MODULE, OPTIMIZER
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.progress.components import COMPONENTS
from modalities_pipeline.progress.configs import (
    GPT2MFUCalculatorConfig,
    NumberConversionFromCheckpointPathConfig,
    NumStepsFromNumSamplesConfig,
)

REGISTRY = Registry(COMPONENTS)
CONFIGS = [REGISTRY.get_config(entity.component_key, entity.variant_key) for entity in COMPONENTS]
STEPS = {"local_micro_batch_size": 2, "global_num_samples": 48, "gradient_accumulation_steps": 3}
MODEL = Unbuilt("model", "fsdp2_wrapped", MODULE)
SHAPE = {"n_layer": 2, "sequence_length": 8, "n_embd": 4, "world_size": 1}


@pytest.mark.parametrize(
    "config_type", [config for config in CONFIGS if {"num_ranks", "dp_degree"} & config.model_fields.keys()]
)
def test_the_number_of_ranks_goes_by_both_of_its_names(config_type):
    """Modalities itself can never build num_steps_from_num_samples: its config and its function differ in the name."""
    (name,) = {"num_ranks", "dp_degree"} & config_type.model_fields.keys()
    fields = {key: 1 for key in config_type.model_fields if key != name and not key.endswith(("_path", "_key"))}
    paths = {key: "x" for key in config_type.model_fields if key.endswith("_path")}
    for given in ("num_ranks", "dp_degree"):
        config = config_type.model_validate({**fields, **paths, given: 4})
        assert getattr(config, name) == 4


@pytest.mark.parametrize("value", ["4", 4.0, True, 0, None])
def test_numbers_have_to_be_positive_integers(value):
    with pytest.raises(ValidationError):
        NumStepsFromNumSamplesConfig.model_validate({**STEPS, "dp_degree": value})


def test_two_names_of_one_number_are_one_too_many():
    with pytest.raises(ValidationError, match="num_ranks"):
        NumStepsFromNumSamplesConfig.model_validate({**STEPS, "dp_degree": 1, "num_ranks": 1})


def test_misspelt_keys_are_refused():
    """B077"""
    with pytest.raises(ValidationError, match="checkpoint_paht"):
        NumberConversionFromCheckpointPathConfig.model_validate({"checkpoint_path": "x", "checkpoint_paht": "y"})


@pytest.mark.parametrize("name", ["model_parts", "wrapped_model"])
@pytest.mark.parametrize("model", [MODEL, [MODEL, MODEL]])
def test_the_mfu_calculator_takes_a_model_or_its_parts_under_both_names(name, model):
    assert GPT2MFUCalculatorConfig.model_validate({**SHAPE, name: model}).model_parts == model


def test_the_mfu_calculator_takes_nothing_else_for_a_model():
    with pytest.raises(
        ValidationError, match="has to be a Module or a list of them, but optimizer/adam is an Optimizer"
    ):
        GPT2MFUCalculatorConfig.model_validate({**SHAPE, "model_parts": Unbuilt("optimizer", "adam", OPTIMIZER)})


def test_arithmetic_imports_nothing_that_takes_long():
    code = """
import sys
from pathlib import Path
from modalities_pipeline.progress import number_conversion
assert number_conversion.get_num_steps_from_num_samples(4, 2, 48, 3) == 2
assert number_conversion.get_last_step_from_checkpoint_path(Path("eid_x-seen_steps_5-seen_tokens_10")) == 4
print(sorted({"torch", "numpy", "pydantic", "orjson"} & sys.modules.keys()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
