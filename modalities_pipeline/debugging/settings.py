"""Debugging of a run: its hooks, and whether it is deterministic."""

import contextlib
import os
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import torch
from torch.utils.hooks import RemovableHandle

_WORKSPACE_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
_DETERMINISTIC_WORKSPACE = ":4096:8"  # https://docs.nvidia.com/cuda/cublas/#results-reproducibility


class Debugging:
    """Hooks that are in place, and torch's deterministic algorithms, from the construction to `close`.

    Closing removes the hooks and puts back torch's settings and the environment variable CUBLAS_WORKSPACE_CONFIG. It is
    done once, also at the end of the process or of the object's life; the object is a context manager that does it.

    Args:
        forward_hooks: handles of hooks, or lists of them.
        enable_determinism: let torch use deterministic algorithms only, and raise where it has none. Set it before the
            first matrix product on a GPU.
    """

    def __init__(
        self,
        forward_hooks: list[list[RemovableHandle] | RemovableHandle] | None = None,
        enable_determinism: bool = False,
    ) -> None:
        undoing = contextlib.ExitStack()
        if enable_determinism:
            undoing.enter_context(_determinism())
        for hooks in forward_hooks or []:
            for handle in hooks if isinstance(hooks, list) else [hooks]:
                undoing.callback(handle.remove)
        self._close = weakref.finalize(self, undoing.close)

    def close(self) -> None:
        """Remove the hooks and put everything back; does nothing the second time."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def _determinism() -> Iterator[None]:
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    algorithms = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    workspace = os.environ.get(_WORKSPACE_VARIABLE)
    cudnn.deterministic, cudnn.benchmark = True, False
    os.environ[_WORKSPACE_VARIABLE] = _DETERMINISTIC_WORKSPACE
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before
        torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])
        if workspace is None:
            os.environ.pop(_WORKSPACE_VARIABLE, None)
        else:
            os.environ[_WORKSPACE_VARIABLE] = workspace
