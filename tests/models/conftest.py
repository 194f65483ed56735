"""Fixtures of the models' tests: expected values."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def read_vectors() -> Callable[[str], Any]:
    """Function name -> content of a file of expected values."""

    def read(name: str) -> Any:
        path = _VECTORS / name
        return np.load(path) if path.suffix == ".npz" else json.loads(path.read_text("utf-8"))

    return read
