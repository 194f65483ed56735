"""What the configs of subscribers take."""

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.interfaces import DATA_LOADER, DATASET
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.reporting.configs import (
    RichProgressSubscriberConfig,
    RichResultSubscriberConfig,
    WandbMode,
    WandBResultSubscriberConfig,
)

PROGRESS = {"train_dataloader_tag": "train", "num_seen_steps": 0, "num_target_steps": 1, "global_rank": 0}
WANDB = {"global_rank": 0, "project": "p", "experiment_id": "e", "directory": "d", "config_file_path": "c.yaml"}


@pytest.mark.parametrize("loaders", [None, [], [Unbuilt("data_loader", "default", DATA_LOADER)]])
def test_evaluation_data_loaders_may_be_many_or_none(loaders):
    assert RichProgressSubscriberConfig.model_validate({**PROGRESS, "eval_dataloaders": loaders})


def test_a_dataset_is_no_data_loader():
    dataset = Unbuilt("dataset", "combined", DATASET)
    with pytest.raises(ValidationError, match="has to be a LLMDataLoader, but dataset/combined is a Dataset"):
        RichProgressSubscriberConfig.model_validate({**PROGRESS, "eval_dataloaders": [dataset]})


@pytest.mark.parametrize(
    "change", [{"num_target_steps": 0}, {"num_seen_steps": -1}, {"global_rank": -1}, {"num_target_steps": "5"}]
)
def test_steps_and_ranks_that_cannot_be_are_refused(change):
    """B078"""
    with pytest.raises(ValidationError, match=next(iter(change))):
        RichProgressSubscriberConfig.model_validate({**PROGRESS, **change})


def test_ranks_of_the_results_panel_may_be_text_as_in_modalities():
    config = RichResultSubscriberConfig.model_validate({"num_ranks": "2", "global_rank": "0"})
    assert (config.num_ranks, config.global_rank) == (2, 0)
    with pytest.raises(ValidationError, match="num_ranks"):
        RichResultSubscriberConfig.model_validate({"num_ranks": 0, "global_rank": 0})


@pytest.mark.parametrize("mode", WandbMode)
def test_the_mode_of_wandb_is_given_by_name(mode):
    assert WandBResultSubscriberConfig.model_validate({**WANDB, "mode": mode.name}).mode is mode
    with pytest.raises(ValidationError, match="'ONLINE', 'OFFLINE' or 'DISABLED'"):
        WandBResultSubscriberConfig.model_validate({**WANDB, "mode": mode.name.title()})
