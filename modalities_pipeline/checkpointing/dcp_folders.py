"""Writing and reading folders of torch's distributed checkpoint (DCP), on all ranks or in one process alone."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def write_distributed(state: dict[str, Any], folder: Path) -> None:
    """Write a folder on all ranks, or in this process alone without a process group.

    Args:
        state: tensors and nested dicts, or `Stateful` objects.
        folder: on rank 0; the other ranks write where that one does.
    """
    if dist.is_initialized():
        places = [folder]
        dist.broadcast_object_list(places, src=0)
        dcp.save(state, checkpoint_id=places[0])
        return
    with _no_word_of_the_missing_group():
        dcp.save(state, checkpoint_id=folder, no_dist=True)


def read_distributed_(state: dict[str, Any], folder: Path, is_alone: bool | None = None) -> None:
    """Read a folder into `state`, in place, whatever the number of ranks that wrote it.

    Args:
        state: what is wanted, as of `write_distributed`.
        folder: a complete one.
        is_alone: whether this process reads it without the others; None: without a process group.
    """
    no_dist = not dist.is_initialized() if is_alone is None else is_alone
    with _no_word_of_the_missing_group():
        dcp.load(state, checkpoint_id=folder, no_dist=no_dist)


@contextlib.contextmanager
def _no_word_of_the_missing_group() -> Iterator[None]:
    """torch says every time that there is no process group, which is the point."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
