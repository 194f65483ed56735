"""Configs of the subscribers that show or store progress and results."""

import enum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.named_enums import ByName
from modalities_pipeline.config.pydantic_if_types import PydanticLLMDataLoaderIFType

Rank = Annotated[int, Field(strict=True, ge=0, description="of this process; only rank 0 reports")]


class DummyProgressSubscriberConfig(ComponentConfig):
    """Nothing to set."""


class RichProgressSubscriberConfig(ComponentConfig):
    """Fields of the progress subscriber `rich`."""

    eval_dataloaders: Annotated[
        list[PydanticLLMDataLoaderIFType] | None, Field(description="each gets a bar of its own")
    ] = None
    train_dataloader_tag: Annotated[str, Field(description="name of the bar of the training")]
    num_seen_steps: Annotated[int, Field(strict=True, ge=0, description="where the bar begins")]
    num_target_steps: Annotated[int, Field(strict=True, gt=0, description="where the bar ends")]
    global_rank: Rank


class DummyResultSubscriberConfig(ComponentConfig):
    """Nothing to set."""


class RichResultSubscriberConfig(ComponentConfig):
    """Fields of the results subscriber `rich`."""

    num_ranks: Annotated[int, Field(gt=0, description="shown beside the step")]
    global_rank: Annotated[int, Field(ge=0, description="of this process; only rank 0 reports")]


class ToDiscResultSubscriberConfig(ComponentConfig):
    """Fields of the results subscriber `to_disc`."""

    output_file_path: Annotated[Path, Field(description="gets a line of JSON for each result; may exist")]


class WandbMode(enum.Enum):
    """Where the results go: to the server, to a folder (synchronised later by hand), or nowhere."""

    ONLINE = "online"
    OFFLINE = "offline"
    DISABLED = "disabled"


class WandBResultSubscriberConfig(ComponentConfig):
    """Fields of the results subscriber `wandb`; a run that is resumed goes on under the same id in wandb."""

    global_rank: Annotated[int, Field(ge=0, description="of this process; only rank 0 reports")]
    entity: Annotated[str | None, Field(description="user or team; null: that of the login")] = None
    project: Annotated[str, Field(description="where wandb lists the run")]
    experiment_id: Annotated[
        str, Field(description="name of the run, and its id, with `-` for what an id may not have")
    ]
    mode: Annotated[
        WandbMode,
        ByName(),
        Field(
            description="to the server, into a folder, or nowhere; ONLINE without login or network becomes OFFLINE, "
            "with a warning"
        ),
    ]
    directory: Annotated[Path, Field(description="wandb keeps its files in a folder `wandb` in it")]
    config_file_path: Annotated[
        Path, Field(description="gives its name to the resolved config that is stored with the run")
    ]
