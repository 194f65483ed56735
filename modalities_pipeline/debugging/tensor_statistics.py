"""Statistics of the tensors that go through a model, written to a file while it runs."""

import json
import math
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from modalities_pipeline.config.model_parts import for_each_part
from modalities_pipeline.data.files import os_errors_named
from modalities_pipeline.debugging.watched_modules import (
    is_recomputation,
    local_part,
    named_inputs,
    named_tensors,
    unseen,
    watched_modules,
)
from modalities_pipeline.distributed.env import get_rank, get_world_size
from modalities_pipeline.exceptions import ConfigError

_NOT_COMPUTED = -1


@for_each_part("model")
def get_debugging_enriched_model(
    model: nn.Module,
    logging_dir_path: Path,
    tracked_ranks: set[int] | None = None,
    log_interval_steps: int | None = 1,
) -> nn.Module:
    """Let a model write statistics of its tensors to `<logging_dir_path>/tensor_stats_rank_<rank>.jsonl`.

    Written are inputs, own parameters, outputs and gradients of the outputs of each module below the root, one JSON
    line each: tensor_tag (name of the module or parameter; `[place]` after it where a module has several inputs or
    outputs), hook_type (forward_input, forward_weights, forward_output, backward_output), global_shape, local_shape,
    dtype, is_dtensor, nan_count, inf_count, mean, std, min, max, counter, rank, timestamp_ns (of a clock that counts
    from an arbitrary time). They are about this rank's part of the tensor; std has Bessel's correction. mean and std
    are -1 where numbers are not floating point, min and max where they are neither that nor integers, and null where
    they are not finite.

    Args:
        model: one model, or a list of the parts of one; hooks are added to it, and it is returned.
        logging_dir_path: made if it is not there; lines are appended to a file that is.
        tracked_ranks: ranks that write; None: all.
        log_interval_steps: write at the calls 0, n, 2n, ... of a module; `counter` is the number of the call. None: 1.

    Raises:
        ConfigError: the model is compiled, or the run has none of the tracked ranks.
        OutputNotWritableError: the file cannot be opened.
    """
    modules = watched_modules(model, "debugging_enriched")
    ranks = range(get_world_size())
    if tracked_ranks and tracked_ranks.isdisjoint(ranks):
        raise ConfigError(
            f"debugging_enriched: tracked_ranks are {', '.join(map(str, sorted(tracked_ranks)))}, but the run has only "
            f"{len(ranks)} (from 0). Use null for all."
        )
    if tracked_ranks is not None and get_rank() not in tracked_ranks:
        return model
    writer = _StatisticsWriter(Path(logging_dir_path) / f"tensor_stats_rank_{get_rank()}.jsonl")
    for name, module in modules.items():
        if name:
            watcher = _ModuleWatcher(name, writer, log_interval_steps or 1)
            module.register_forward_pre_hook(watcher.before_forward, with_kwargs=True)
            module.register_forward_hook(watcher.after_forward)
    return model


class _StatisticsWriter:
    """Appends lines to a file; each is on its way to the disk before the next, so a crash loses none."""

    def __init__(self, path: Path) -> None:
        with os_errors_named(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8", buffering=1)
        weakref.finalize(self, self._file.close)  # when no hook is left that writes

    def write(self, tensor_tag: str, hook_type: str, tensor: torch.Tensor, counter: int) -> None:
        if tensor.is_meta:  # as when the shapes of a pipeline are found out
            return
        with unseen():
            local = local_part(tensor)
            line = {
                "tensor_tag": tensor_tag,
                "hook_type": hook_type,
                "global_shape": list(tensor.shape),
                "local_shape": list(local.shape),
                "dtype": str(tensor.dtype),
                "is_dtensor": isinstance(tensor, DTensor),
                **_statistics(local),
                "counter": counter,
                "rank": get_rank(),
                "timestamp_ns": time.perf_counter_ns(),
            }
        self._file.write(json.dumps(line) + "\n")


class _ModuleWatcher:
    """Hooks of one module; keeps numbers only, so that no tensor and no graph lives longer because of it."""

    def __init__(self, name: str, writer: _StatisticsWriter, interval: int) -> None:
        self._name = name
        self._writer = writer
        self._interval = interval
        self._num_forwards = 0
        self._num_backwards = 0

    def before_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_recomputation() or self._num_forwards % self._interval:
            return
        self._write("forward_input", named_inputs(args, kwargs, self._name), self._num_forwards)
        weights = ((f"{self._name}.{name}", weight) for name, weight in module.named_parameters(recurse=False))
        self._write("forward_weights", weights, self._num_forwards)

    def after_forward(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if is_recomputation():
            return
        outputs = list(named_tensors(output, self._name))
        if self._num_forwards % self._interval == 0:
            self._write("forward_output", outputs, self._num_forwards)
        self._num_forwards += 1
        # Hooks of tensors, not the module's full backward hook: that one makes all outputs views, takes none in dicts,
        # and warns about modules without differentiable inputs. They go with the graph.
        differentiable = [(tag, tensor) for tag, tensor in outputs if tensor.grad_fn is not None]
        if differentiable:
            if self._num_backwards % self._interval == 0:
                for tag, tensor in differentiable:
                    tensor.register_hook(partial(self._write_gradient, tag, self._num_backwards))
            self._num_backwards += 1

    def _write_gradient(self, tag: str, counter: int, gradient: torch.Tensor) -> None:
        self._writer.write(tag, "backward_output", gradient, counter)

    def _write(self, hook_type: str, tensors: Any, counter: int) -> None:
        for tag, tensor in tensors:
            self._writer.write(tag, hook_type, tensor, counter)


def _statistics(tensor: torch.Tensor) -> dict[str, float | None]:
    """The columns nan_count to max."""
    counts: list[float] = [0, 0]
    moments: list[float] = [_NOT_COMPUTED, _NOT_COMPUTED]
    bounds: list[float] = [_NOT_COMPUTED, _NOT_COMPUTED]
    if tensor.numel() == 0:
        moments, bounds = [math.nan] * 2, [math.nan] * 2
    elif tensor.is_floating_point():
        values = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        # one number alone has no deviation with Bessel's correction
        std, mean = torch.std_mean(values, correction=min(1, values.numel() - 1))
        tensors = [values.isnan().sum(), values.isinf().sum(), mean, std, *values.aminmax()]
        numbers = torch.stack([number.double() for number in tensors]).tolist()  # a GPU is waited for once
        counts, moments, bounds = numbers[:2], numbers[2:4], numbers[4:]
    elif tensor.is_complex():
        counts = [tensor.isnan().sum().item(), tensor.isinf().sum().item()]
    elif tensor.dtype != torch.bool:
        bounds = torch.stack(tensor.aminmax()).tolist()
    return {
        "nan_count": int(counts[0]),
        "inf_count": int(counts[1]),
        **{
            name: number if math.isfinite(number) else None  # JSON knows no NaN and no infinity
            for name, number in zip(("mean", "std", "min", "max"), [*moments, *bounds], strict=True)
        },
    }
