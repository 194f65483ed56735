"""A trained model out of its training config and a checkpoint, in one process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from modalities_pipeline.checkpointing.model_states import load_model_state_, read_model_state
from modalities_pipeline.config.nodes import is_component
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.main import Main
from modalities_pipeline.models.gpt2 import GPT2LLM

_HUGGINGFACE = "huggingface_pretrained_model"

_HOW_TO_SAVE = (
    f" A {_HUGGINGFACE} is one of transformers already: load its checkpoint (`load_model_state_` of "
    "modalities_pipeline.checkpointing.model_states), then call `huggingface_model.save_pretrained`."
)


class _TrainedModel(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    trained_model: GPT2LLM


def load_run_config(config_file_path: Path) -> Main:
    """A config that may lie in the experiment folder of a run, whose name is then the experiment's id."""
    folder = config_file_path.resolve().parent
    return Main(config_file_path, experiment_id=folder.name, experiments_root_path=folder.parent)


def load_trained_model(
    config_file_path: Path, checkpoint_folder_path: Path, dtype: torch.dtype | None = torch.float32
) -> GPT2LLM:
    """The model of a training config on the CPU with the weights of a checkpoint, in evaluation mode.

    The weights are in `dtype`, or as they are stored if it is None.

    No process group is needed, and the checkpoint may come from any number of ranks; see
    `checkpointing.model_states.read_model_state` for what else it can be.

    Raises:
        ConfigError: the config has not exactly one gpt2 model.
        CheckpointingError: there is no complete checkpoint, or it is not one of this model.
    """
    model = _build_without_memory(config_file_path)
    state = read_model_state(checkpoint_folder_path)
    load_model_state_(model, state, checkpoint_folder_path, torch.device("cpu"), dtype)
    return model.eval()


def _build_without_memory(config_file_path: Path) -> GPT2LLM:
    run = load_run_config(config_file_path)
    nodes = list(_nodes(run.config_dict, "gpt2"))
    if len(nodes) != 1:
        raise ConfigError(
            f"{config_file_path}: only gpt2 can be converted, so there must be exactly one component model/gpt2; there "
            f"are {len(nodes)}.{huggingface_hint(run.config_dict)}"
        )
    node = {**nodes[0], "config": {**nodes[0]["config"], "use_meta_device": True}}
    config_dict = {**run.config_dict, "trained_model": node}
    return run.component_factory.build_components(config_dict, _TrainedModel).trained_model


def huggingface_hint(config_dict: dict[str, Any]) -> str:
    """A sentence, after a space, on how transformers saves the model of a config that has one of Hugging Face."""
    return _HOW_TO_SAVE if any(_nodes(config_dict, _HUGGINGFACE)) else ""


def _nodes(node: Any, variant_key: str) -> Iterator[dict[str, Any]]:
    """The components model/`variant_key`, wherever they stand."""
    if is_component(node) and (node["component_key"], node["variant_key"]) == ("model", variant_key):
        yield node
    elif isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from _nodes(child, variant_key)
