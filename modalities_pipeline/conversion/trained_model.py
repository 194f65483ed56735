"""A trained model out of its training config and a distributed checkpoint, in one process."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from pydantic import BaseModel, ConfigDict
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.loader import load_app_config_dict
from modalities_pipeline.config.nodes import is_component
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.exceptions import CheckpointingError, ConfigError
from modalities_pipeline.models.gpt2 import GPT2LLM
from modalities_pipeline.models.parameters import materialize

_MODEL_COMPONENT = ("model", "gpt2")
_CHECKPOINT_PREFIX = "app.model."


class _TrainedModel(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    trained_model: GPT2LLM


def load_trained_model(config_file_path: Path, checkpoint_folder_path: Path) -> GPT2LLM:
    """The model of a training config on the CPU with the weights of a checkpoint, in evaluation mode.

    No process group is needed, and the checkpoint may come from any number of ranks.

    Raises:
        ConfigError: the config has not exactly one gpt2 model.
        CheckpointingError: the folder holds no complete checkpoint, or not one of this model.
    """
    model = _build_without_memory(config_file_path)
    materialize(model)
    state = {_CHECKPOINT_PREFIX + name: tensor for name, tensor in model.state_dict().items()}
    reader = dcp.FileSystemReader(checkpoint_folder_path)
    try:
        metadata = reader.read_metadata()
    except FileNotFoundError:
        raise CheckpointingError(f"{checkpoint_folder_path} holds no complete checkpoint (no .metadata).") from None
    differences = list(_differences(state, metadata))
    if differences:
        raise CheckpointingError(
            f"{checkpoint_folder_path} is not a checkpoint of the model of {config_file_path}: "
            + "; ".join(differences)
        )
    with warnings.catch_warnings():
        # It says that there is no process group; that is the point.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(state, storage_reader=reader, no_dist=True)
    return model.eval()


def _build_without_memory(config_file_path: Path) -> GPT2LLM:
    folder = config_file_path.resolve().parent
    config_dict = load_app_config_dict(config_file_path, experiments_root_path=folder.parent, experiment_id=folder.name)
    nodes = list(_model_nodes(config_dict))
    if len(nodes) != 1:
        raise ConfigError(
            f"{config_file_path}: there must be exactly one component model/gpt2; there are {len(nodes)}."
        )
    node = {**nodes[0], "config": {**nodes[0]["config"], "use_meta_device": True}}
    factory = ComponentFactory(Registry(), path=config_file_path)
    return factory.build_components({**config_dict, "trained_model": node}, _TrainedModel).trained_model


def _model_nodes(node: Any) -> Iterator[dict[str, Any]]:
    if is_component(node) and (node["component_key"], node["variant_key"]) == _MODEL_COMPONENT:
        yield node
    elif isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from _model_nodes(child)


def _differences(state: dict[str, torch.Tensor], metadata: Metadata) -> Iterator[str]:
    stored = {
        name: entry.size
        for name, entry in metadata.state_dict_metadata.items()
        if name.startswith(_CHECKPOINT_PREFIX) and isinstance(entry, TensorStorageMetadata)
    }
    missing, surplus = sorted(state.keys() - stored.keys()), sorted(stored.keys() - state.keys())
    if missing:
        yield f"it lacks {', '.join(missing)}"
    if surplus:
        yield f"the model lacks {', '.join(surplus)}"
    for name in sorted(state.keys() & stored.keys()):
        if state[name].shape != stored[name]:
            yield f"{name} is {tuple(stored[name])} there and {tuple(state[name].shape)} in the model"
