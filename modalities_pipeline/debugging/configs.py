"""Configs of what watches a model while it runs. Imports no torch."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.interfaces import REMOVABLE_HANDLE
from modalities_pipeline.config.pydantic_if_types import PydanticPytorchModuleOrListType, PydanticThirdPartyTypeIF

_Rank = Annotated[int, Field(strict=True, ge=0)]

HookHandles = Annotated[Any, PydanticThirdPartyTypeIF(REMOVABLE_HANDLE, or_list=True)]


class DebuggingEnrichedModelConfig(ComponentConfig):
    """Fields of `debugging_enriched`."""

    model: Annotated[PydanticPytorchModuleOrListType, Field(description="without `compiled`")]
    logging_dir_path: Annotated[
        Path, Field(description="folder of tensor_stats_rank_<rank>.jsonl; made if it is not there")
    ]
    tracked_ranks: Annotated[set[_Rank] | None, Field(description="ranks that write; null: all")] = None
    log_interval_steps: Annotated[
        int | None, Field(ge=1, description="statistics of every so many calls of a module; null: of all")
    ] = 1


class NaNHookConfig(ComponentConfig):
    """Fields of `nan_hook`."""

    model: Annotated[PydanticPytorchModuleOrListType, Field(description="without `compiled`")]
    raise_exception: Annotated[bool, Field(description="whether a NaN ends the run; else it is logged")] = False


class PrintForwardHookConfig(ComponentConfig):
    """Fields of `print_forward_hook`."""

    model: Annotated[PydanticPytorchModuleOrListType, Field(description="without `compiled`")]
    print_shape_only: Annotated[bool, Field(description="whether values are left out")] = False


class DebuggingConfig(ComponentConfig):
    """Fields of the debugging `settings`.

    The component stands in the section `settings`, as its `debugging`.
    """

    forward_hooks: Annotated[list[HookHandles], Field(description="components model_debugging_hook/...")] = Field(
        default_factory=list
    )
    enable_determinism: Annotated[
        bool,
        Field(description="whether torch uses deterministic algorithms only, and raises where it has none; slower"),
    ] = False
