"""The weights of a model out of a checkpoint of any kind, in one process, and putting them into a model."""

import pickle
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.tensor import DTensor

from modalities_pipeline.checkpointing.dcp_folders import read_distributed_
from modalities_pipeline.checkpointing.folders import require_complete
from modalities_pipeline.exceptions import CheckpointingError
from modalities_pipeline.models.parameters import materialize

_APP, _MODEL = "app", "model"  # where a checkpoint of a whole training keeps the model's weights
_TORCH_SUFFIXES = (".bin", ".pt", ".pth")
_SAFETENSORS_SUFFIX = ".safetensors"

State = dict[str, torch.Tensor]


def read_model_state(checkpoint_path: Path) -> State:
    """Name -> tensor on the CPU, as they are stored.

    Args:
        checkpoint_path: a folder of torch's distributed checkpoint (DCP) as training saves it, from any number of
            ranks; or a file of `torch.save` (`.bin`, `.pt`, `.pth`; read without running what it pickles) with the
            model's state dict, also one made of such a folder by torch's `dcp_to_torch`; or a `.safetensors` file.

    Raises:
        CheckpointingError: there is no checkpoint, it is not complete, or it is of another kind.
    """
    if checkpoint_path.is_dir():
        return _read_distributed(checkpoint_path)
    if not checkpoint_path.is_file():
        raise CheckpointingError(f"There is no checkpoint {checkpoint_path}.")
    if checkpoint_path.suffix == _SAFETENSORS_SUFFIX:
        try:
            return load_file(checkpoint_path)
        except SafetensorError as error:
            raise CheckpointingError(f"{checkpoint_path} is no safetensors file: {error}") from error
    if checkpoint_path.suffix in _TORCH_SUFFIXES:
        return _read_torch(checkpoint_path)
    known = ", ".join((*_TORCH_SUFFIXES, _SAFETENSORS_SUFFIX))
    raise CheckpointingError(
        f"{checkpoint_path} is no checkpoint: it is no folder, and its name ends in none of {known}."
    )


def _read_distributed(folder: Path) -> State:
    require_complete(folder)
    prefix = f"{_APP}.{_MODEL}."
    state = {
        key: torch.empty(entry.size, dtype=entry.properties.dtype)
        for key, entry in FileSystemReader(folder).read_metadata().state_dict_metadata.items()
        if key.startswith(prefix) and isinstance(entry, TensorStorageMetadata)
    }
    if not state:
        raise CheckpointingError(f"{folder} is a checkpoint without a model (nothing in it is called {prefix}...).")
    read_distributed_(state, folder, is_alone=True)
    return {key.removeprefix(prefix): tensor for key, tensor in state.items()}


def _read_torch(path: Path) -> State:
    content = read_torch_file(path)
    if isinstance(content, Mapping) and isinstance(content.get(_APP), Mapping):
        content = content[_APP].get(_MODEL)
    if not isinstance(content, Mapping) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise CheckpointingError(f"{path} is no state dict of a model (name -> tensor).")
    return dict(content)


def read_torch_file(path: Path) -> Any:
    """What `torch.save` put into a file: tensors on the CPU, containers and plain values; nothing pickled is run.

    Raises:
        CheckpointingError: the file cannot be read, or holds anything else.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointingError(f"{path} holds no plain tensors that torch can read: {reason}") from error


def load_model_state_(
    model: nn.Module, state: State, source: Path, device: torch.device, dtype: torch.dtype | None = None
) -> None:
    """Put weights into a plain model in place and move it to a device; a model on the meta device gets memory.

    Args:
        model: whose names and shapes the weights must have exactly; parameters that share memory go on to do so, and
            may be stored under one of their names only.
        state: name -> tensor.
        source: where the weights are from, for messages.
        device: where the model shall be.
        dtype: of its floating point parameters; None: as they are stored. Buffers keep the dtype that is stored.

    Raises:
        CheckpointingError: the model is sharded, or names or shapes differ; all differences are listed.
    """
    if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        raise CheckpointingError(f"{source} can be loaded into a plain model only, and this one is sharded.")
    tensors: State = model.state_dict(keep_vars=True)
    state = dict(state)
    for names in _names_of_shared(tensors):
        stored = [name for name in names if name in state]
        state.update({name: state[stored[0]] for name in names if stored and name not in state})
    differences = [*_differences(tensors, state), *_untied(tensors, state)]
    if differences:
        raise CheckpointingError(f"{source} is not a checkpoint of this model: {'; '.join(differences)}.")
    materialize(model)
    model.to(device)
    with torch.no_grad():
        # Once more, since giving memory to a model makes new tensors.
        for name, tensor in model.state_dict(keep_vars=True).items():
            cast = dtype is not None and isinstance(tensor, nn.Parameter) and tensor.is_floating_point()
            tensor.data = state[name].to(device=device, dtype=dtype if cast else None)


def _names_of_shared(tensors: Mapping[str, torch.Tensor]) -> Iterator[list[str]]:
    """The names of each tensor that has several."""
    names: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), []).append(name)
    return (shared for shared in names.values() if len(shared) > 1)


def _differences(tensors: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> Iterator[str]:
    missing, surplus = sorted(tensors.keys() - state.keys()), sorted(state.keys() - tensors.keys())
    if missing:
        yield f"it lacks {', '.join(missing)}"
    if surplus:
        yield f"the model lacks {', '.join(surplus)}"
    for name in sorted(tensors.keys() & state.keys()):
        if state[name].shape != tensors[name].shape:
            yield f"{name} is {tuple(state[name].shape)} there and {tuple(tensors[name].shape)} in the model"


def _untied(tensors: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> Iterator[str]:
    for first, *others in _names_of_shared(tensors):
        for name in others:
            if first in state and not torch.equal(state[first], state[name]):
                yield f"{first} and {name} are one tensor in the model and differ there"
