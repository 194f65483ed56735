"""Fixtures of the command line's tests."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_process_group_is_left() -> Iterator[None]:
    """A training that fails leaves its process group to the end of the process, which is that of the tests here."""
    yield
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_initialized():
        distributed.destroy_process_group()
