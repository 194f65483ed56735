"""Small helpers: experiment ids, timing, aggregation over ranks, parameter counts."""

import dataclasses
import enum
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.distributed.env import get_rank
from modalities_pipeline.distributed.mesh import (
    ParallelismDegrees,
    get_mesh_for_parallelism_method,
    has_parallelism_method,
)
from modalities_pipeline.exceptions import ConfigError, TimeRecorderStateError

EnumT = TypeVar("EnumT", bound=enum.Enum)
KeyT = TypeVar("KeyT")


def print_rank_0(message: str) -> None:
    """Print on rank 0 only."""
    if get_rank() == 0:
        print(message, flush=True)


def warn_rank_0(message: str) -> None:
    """Warn on rank 0 only."""
    if get_rank() == 0:
        warnings.warn(message, stacklevel=2)


def parse_enum_by_name(name: str, enum_type: type[EnumT]) -> EnumT:
    """The member of `enum_type` called `name`.

    Raises:
        ConfigError: there is no such member; the message lists all.
    """
    try:
        return enum_type[name]
    except KeyError:
        raise ConfigError(
            f"'{name}' is unknown. Use one of: {', '.join(member.name for member in enum_type)}."
        ) from None


def experiment_id_of(config: Mapping[str, Any] | None, hash_length: int | None = 16) -> str:
    """`YYYY-MM-DD__HH-MM-SS`, followed by `_<hash of the config's content>` if there is a config.

    The content is what the file and those that it extends say together; layout, comments and the order of keys do not
    count.
    """
    now = datetime.now().strftime("%Y-%m-%d__%H-%M-%S")
    if config is None:
        return now
    content = json.dumps(config, sort_keys=True, default=str)
    return f"{now}_{hashlib.sha256(content.encode()).hexdigest()[:hash_length]}"


def get_experiment_id_from_config(config_file_path: Path | None, hash_length: int | None = 16) -> str:
    """`experiment_id_of` the content of a file.

    Raises:
        ConfigError: the file is missing or no config.
    """
    return experiment_id_of(load_config(config_file_path).data if config_file_path is not None else None, hash_length)


def get_synced_string(string_to_be_synced: str, from_rank: int = 0, max_string_byte_length: int = 1024) -> str:
    """The string of rank `from_rank`, on every rank.

    Raises:
        ValueError: on every rank, if the string is longer than `max_string_byte_length` in UTF-8.
    """
    if not dist.is_initialized():
        return string_to_be_synced
    fits = len(string_to_be_synced.encode()) <= max_string_byte_length
    payload: list[str | None] = [string_to_be_synced if fits else None]
    dist.broadcast_object_list(payload, src=from_rank)
    if payload[0] is None:
        raise ValueError(f"The string of rank {from_rank} is longer than {max_string_byte_length} bytes.")
    return payload[0]


def get_synced_experiment_id_of_run(
    config_file_path: Path | None = None, hash_length: int | None = 16, max_experiment_id_byte_length: int = 1024
) -> str:
    """A new experiment id, made on rank 0 and the same on every rank."""
    experiment_id = get_experiment_id_from_config(config_file_path, hash_length)
    return get_synced_string(experiment_id, max_string_byte_length=max_experiment_id_byte_length)


def format_metrics_to_gb(item: float) -> float:
    """Bytes in GiB, rounded to 4 decimal places."""
    return round(item / 1024**3, 4)


def get_local_number_of_trainable_parameters(model: nn.Module) -> int:
    """Number of trainable parameters that this rank holds (its shards)."""
    return sum(
        (parameter.to_local() if isinstance(parameter, DTensor) else parameter).numel()
        for parameter in model.parameters()
        if parameter.requires_grad
    )


def get_total_number_of_trainable_parameters(model: nn.Module | list[nn.Module], device_mesh: DeviceMesh | None) -> int:
    """Number of trainable parameters of the whole model, plain or sharded; a sharded parameter counts once.

    Args:
        model: the model, or a list of this rank's parts of it.
        device_mesh: the mesh of the run; where it has a dimension pp, the parts of all its ranks are added up, and
            every rank has to call this.
    """
    parts = model if isinstance(model, list) else [model]
    num_parameters = sum(_num_trainable_parameters(part) for part in parts)
    if device_mesh is None or not has_parallelism_method(device_mesh, ParallelismDegrees.PP):
        return num_parameters
    total = torch.tensor(num_parameters, device=device_mesh.device_type)
    pipeline = get_mesh_for_parallelism_method(device_mesh, ParallelismDegrees.PP)
    dist.all_reduce(total, group=pipeline.get_group())
    return int(total)


def _num_trainable_parameters(part: nn.Module) -> int:
    whole: dict[int, int] = {}  # by the id of a parameter of which FSDP1 leaves this rank a part
    for unit in FullyShardedDataParallel.fsdp_modules(part):
        if unit._handle is not None:
            flat = unit._handle.flat_param
            whole[id(flat)] = sum(flat._numels)
            whole |= {id(one): numel for one, numel in zip(flat._params or (), flat._numels, strict=False)}
    return sum(
        whole.get(id(parameter), parameter.numel()) for parameter in part.parameters() if parameter.requires_grad
    )


def get_module_class_from_name(module: nn.Module, name: str) -> type[nn.Module] | None:
    """The class called `name` of `module` or of one of its submodules, None if there is none."""
    return next((type(submodule) for submodule in module.modules() if type(submodule).__name__ == name), None)


class TimeRecorderStates(enum.Enum):
    """Whether a `TimeRecorder` is running."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"


@dataclasses.dataclass
class TimeRecorder:
    """A stop watch: `delta_t` adds up the seconds between `start` and `stop`; also a context manager.

    Raises:
        TimeRecorderStateError: started while running, stopped while stopped, or reset while running.
    """

    delta_t: float = 0.0
    _started_at: float = 0.0
    _state: TimeRecorderStates = TimeRecorderStates.STOPPED

    def start(self) -> None:
        """Let the time run."""
        self._expect(TimeRecorderStates.STOPPED, "started")
        self._started_at = time.perf_counter()
        self._state = TimeRecorderStates.RUNNING

    def stop(self) -> None:
        """Add the time since the start to `delta_t`."""
        self._expect(TimeRecorderStates.RUNNING, "stopped")
        self.delta_t += time.perf_counter() - self._started_at
        self._state = TimeRecorderStates.STOPPED

    def reset(self) -> None:
        """Set `delta_t` to 0."""
        self._expect(TimeRecorderStates.STOPPED, "reset")
        self.delta_t = 0.0

    def _expect(self, state: TimeRecorderStates, verb: str) -> None:
        if self._state is not state:
            raise TimeRecorderStateError(f"A TimeRecorder cannot be {verb} while it is {self._state.value}.")

    def __enter__(self) -> "TimeRecorder":
        self.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"{self.delta_t}s"


class Aggregator(Generic[KeyT]):
    """Sums of tensors by key, on each rank; reduced over all ranks when asked for."""

    def __init__(self) -> None:
        self.key_to_value: dict[KeyT, torch.Tensor] = {}

    def add_value(self, key: KeyT, value: torch.Tensor) -> None:
        """Add to the sum of `key`."""
        if key in self.key_to_value:
            self.key_to_value[key] = self.key_to_value[key] + value
        else:
            self.key_to_value[key] = value

    def remove_key(self, key: KeyT) -> None:
        """Forget one sum."""
        self.key_to_value.pop(key)

    def remove_keys(self) -> None:
        """Forget all sums."""
        self.key_to_value = {}

    def get_all_reduced_value(
        self,
        key: KeyT,
        reduce_operation: Any = dist.ReduceOp.SUM,
        postprocessing_fun: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """The sum of `key`, reduced over all ranks; this rank's sum stays as it is."""
        value = self.key_to_value[key].detach().clone()
        if dist.is_initialized():
            dist.all_reduce(value, op=reduce_operation)
        return value if postprocessing_fun is None else postprocessing_fun(value)
