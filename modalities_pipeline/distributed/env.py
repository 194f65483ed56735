"""The process' place in the run: ranks, device, process group. The only reader of RANK, LOCAL_RANK, WORLD_SIZE."""

import importlib
import logging
import os
import time
from datetime import timedelta
from types import TracebackType

import torch
import torch.distributed as dist

from modalities_pipeline.distributed.shared_errors import is_raised_on_all_ranks
from modalities_pipeline.exceptions import RunningEnvError

logger = logging.getLogger(__name__)

_DEVICE_VARIABLE = "MODALITIES_PIPELINE_DEVICE"
_BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


def default_device_type() -> str:
    """ "cuda" where there is a GPU, else "cpu"; the environment variable MODALITIES_PIPELINE_DEVICE overrides it.

    Raises:
        RunningEnvError: the variable names an unknown device, or "cuda" where there is none.
    """
    device_type = os.environ.get(_DEVICE_VARIABLE) or ("cuda" if torch.cuda.is_available() else "cpu")
    if device_type not in _BACKENDS:
        raise RunningEnvError(f"{_DEVICE_VARIABLE}={device_type!r} is unknown. Use one of: {', '.join(_BACKENDS)}.")
    if device_type == "cuda" and not torch.cuda.is_available():
        raise RunningEnvError(
            f"{_DEVICE_VARIABLE} is 'cuda', but torch sees no GPU here. Unset it, or set it to 'cpu'."
        )
    return device_type


def current_device() -> torch.device:
    """The device of this process, once it is in a `DistributedEnv`; raises as `default_device_type`."""
    device_type = default_device_type()
    if device_type == "cpu":
        return torch.device(device_type)
    return torch.device(device_type, torch.accelerator.current_device_index())


# Their functions have the group that exists when they are imported as a default. Imported later, they would keep ours
# and its threads alive until Python ends, and a thread that then still lets go of a tensor aborts the process.
_MODULES_THAT_KEEP_A_GROUP = ("torch.distributed.nn", "torch.distributed.fsdp", "torch.distributed.optim")
_GRACE_IN_S = {True: 0.25, False: 0.01}  # for that letting go, which takes no time once a thread gets its turn


class DistributedEnv:
    """Context in which the process group exists: of torchrun's processes, or of this one alone without torchrun.

    Attributes:
        global_rank, local_rank, world_size: this process' place.
        device: the device of this process.
    """

    def __init__(self, timeout_s: int = 600) -> None:
        self.global_rank, self.local_rank, self.world_size = _ranks()
        device_type = default_device_type()
        if device_type == "cuda" and self.local_rank >= torch.cuda.device_count():
            raise RunningEnvError(
                f"LOCAL_RANK is {self.local_rank}, but there are only {torch.cuda.device_count()} GPUs here. Start as "
                "many processes as there are GPUs."
            )
        self.device = torch.device("cuda", self.local_rank) if device_type == "cuda" else torch.device("cpu")
        self._timeout = timedelta(seconds=timeout_s)

    def __enter__(self) -> "DistributedEnv":
        for name in _MODULES_THAT_KEEP_A_GROUP:
            importlib.import_module(name)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        backend = _BACKENDS[self.device.type]
        if "RANK" in os.environ:
            if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
                raise RunningEnvError(
                    "MASTER_ADDR or MASTER_PORT is not set, so the processes cannot meet. Start them with torchrun."
                )
            dist.init_process_group(backend, timeout=self._timeout)
        else:
            dist.init_process_group(backend, timeout=self._timeout, store=dist.HashStore(), rank=0, world_size=1)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error the other ranks may hang in a collective; tearing the group down could then wait for them.
        if error is None or self.world_size == 1 or is_raised_on_all_ranks(error):
            dist.destroy_process_group()
        # Meshes keep groups of their own alive, whose threads may still have to let go of the last tensors.
        time.sleep(_GRACE_IN_S[self.world_size > 1])


def _ranks() -> tuple[int, int, int]:
    """(global rank, local rank, world size); (0, 0, 1) for a process that no launcher started."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    values = [os.environ.get(name) for name in names]
    if all(value is None for value in values):
        return 0, 0, 1
    missing = [name for name, value in zip(names, values, strict=True) if value is None]
    if missing:
        raise RunningEnvError(f"Environment variables are not set: {', '.join(missing)}. Start training with torchrun.")
    if not all(value is not None and value.isdecimal() for value in values):
        given = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
        raise RunningEnvError(f"The launcher's environment variables have to be numbers, but are {given}.")
    rank, local_rank, world_size = (int(value) for value in values if value is not None)
    return rank, local_rank, world_size


def get_rank() -> int:
    """Rank of this process; 0 without a process group."""
    return dist.get_rank() if dist.is_initialized() else 0


def get_world_size() -> int:
    """Number of processes; 1 without a process group."""
    return dist.get_world_size() if dist.is_initialized() else 1
