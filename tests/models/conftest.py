"""Fixtures of the models' tests: expected values."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import torch
    from torch import nn

_VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def read_vectors() -> Callable[[str], Any]:
    """Function name -> content of a file of expected values."""

    def read(name: str) -> Any:
        path = _VECTORS / name
        return np.load(path) if path.suffix == ".npz" else json.loads(path.read_text("utf-8"))

    return read


@pytest.fixture(scope="session")
def hashed_images(fill: "Callable[[nn.Module], None]") -> "torch.Tensor":
    """Two images of shape (3, 16, 16) with values in [-1, 1), on which those of `coca_vit` were computed."""
    import torch
    from torch import nn

    holder = nn.ParameterList([torch.empty(0)] * 7 + [torch.empty(2, 3, 16, 16)])
    fill(holder)  # the eighth matrix becomes 0.3 times numbers in [-0.5, 0.5)
    return holder[7].detach() / 0.15
