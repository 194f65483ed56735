"""Configs of app states and checkpoints: which components they take, and under which names."""

import logging

import pytest
from pydantic import ValidationError

from modalities_pipeline.checkpointing.configs import (
    DCPCheckpointSavingConfig,
    FSDP1CheckpointedModelConfig,
    FSDP1CheckpointLoadingConfig,
    PrecisionEnum,
    RawAppStateConfig,
    SaveEveryKStepsCheckpointingStrategyConfig,
    SaveKMostRecentCheckpointsStrategyConfig,
    TorchCheckpointLoadingConfig,
)
from modalities_pipeline.checkpointing.torch_loading import TorchCheckpointLoading, get_checkpointed_model
from modalities_pipeline.config.interfaces import DISTRIBUTED_CHECKPOINT_LOADING, MODULE, OPTIMIZER
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.unbuilt import Unbuilt

MODEL = Unbuilt("model", "gpt2", MODULE)
OPTIMIZER_NODE = Unbuilt("optimizer", "adam_w", OPTIMIZER)


def test_an_app_state_takes_a_model_or_its_parts_and_needs_no_scheduler():
    assert RawAppStateConfig(model=[MODEL, MODEL], optimizer=OPTIMIZER_NODE).lr_scheduler is None
    with pytest.raises(ValidationError, match="LRScheduler, but model/gpt2 is a Module"):
        RawAppStateConfig(model=MODEL, optimizer=OPTIMIZER_NODE, lr_scheduler=MODEL)


@pytest.mark.parametrize(
    ("config_type", "k", "is_valid"),
    [
        (SaveEveryKStepsCheckpointingStrategyConfig, 1, True),
        (SaveEveryKStepsCheckpointingStrategyConfig, 0, False),
        (SaveKMostRecentCheckpointsStrategyConfig, -1, True),
        (SaveKMostRecentCheckpointsStrategyConfig, -2, False),
        (SaveKMostRecentCheckpointsStrategyConfig, 2.0, False),
    ],
)
def test_how_many_checkpoints_are_kept_is_checked(config_type, k, is_valid):
    if is_valid:
        assert config_type(k=k).k == k
    else:
        with pytest.raises(ValidationError, match="k"):
            config_type(k=k)


@pytest.mark.parametrize("global_rank", [-1, "0", True])
def test_a_rank_is_an_integer_from_zero(global_rank):
    with pytest.raises(ValidationError, match="global_rank"):
        DCPCheckpointSavingConfig(checkpoint_path="checkpoints", global_rank=global_rank, experiment_id="x")


@pytest.mark.parametrize(("written", "device"), [("cpu", "cpu"), (None, "cpu"), (0, "cuda:0"), ("cuda:1", "cuda:1")])
def test_a_device_is_taken_by_every_name_it_has(written, device):
    config = TorchCheckpointLoadingConfig(device=written, precision="BF16")
    assert config.device == device
    assert config.precision is PrecisionEnum.BF16


def test_where_the_model_shall_be_has_to_be_said():
    with pytest.raises(ValidationError, match=r"device\n\s+Field required"):
        TorchCheckpointLoadingConfig()
    with pytest.raises(ValidationError, match="'FP32', 'FP16' or 'BF16'"):
        TorchCheckpointLoadingConfig(device="cpu", precision="BF_16")


def test_weights_are_loaded_by_what_loads_a_model_alone():
    dcp = Unbuilt("checkpoint_loading", "dcp", DISTRIBUTED_CHECKPOINT_LOADING)
    with pytest.raises(ValidationError, match="FSDP1CheckpointLoadingIF, but checkpoint_loading/dcp is"):
        FSDP1CheckpointedModelConfig(checkpoint_loading=dcp, checkpoint_path="model.bin", model=MODEL)
    with pytest.raises(ValidationError, match="checkpoint_path"):
        FSDP1CheckpointedModelConfig(checkpoint_loading=dcp, checkpoint_path=None, model=MODEL)


def test_loading_for_fsdp1_says_how_the_model_is_wrapped():
    fields = {"global_rank": 0, "block_names": ["GPT2Block"], "sharding_strategy": "FULL_SHARD"}
    assert FSDP1CheckpointLoadingConfig(**fields, mixed_precision_settings="BF_16_WORKING")
    with pytest.raises(ValidationError, match="MIXED_PRECISION_MEGATRON"):
        FSDP1CheckpointLoadingConfig(**fields, mixed_precision_settings="BF16")


@pytest.mark.parametrize(
    ("component_key", "old", "new"),
    [
        ("model", "checkpointed", "fsdp1_checkpointed"),
        ("model", "fsdp_wrapped", "fsdp1_wrapped"),
        ("optimizer", "checkpointed", "fsdp1_checkpointed"),
        ("checkpoint_loading", "fsdp", "fsdp1"),
        ("checkpoint_saving_execution", "fsdp", "fsdp1"),
        ("gradient_clipper", "fsdp", "fsdp1"),
        ("gradient_clipper", "fsdp_logging_only", "fsdp1_logging_only"),
    ],
)
def test_names_of_modalities_first_releases_are_known(component_key, old, new, caplog):
    registry = Registry()
    with caplog.at_level(logging.CRITICAL):
        assert registry.get_config(component_key, old) is registry.get_config(component_key, new)


def test_loading_into_a_plain_model_can_be_built():
    registry = Registry()
    assert registry.get_component("checkpoint_loading", "torch") is TorchCheckpointLoading
    assert registry.get_component("model", "fsdp1_checkpointed") is get_checkpointed_model
