"""Devices as configs name them. Imports no torch."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

_CUDA_DEVICE = re.compile(r"(?:cuda:)?([0-9]+)")


def device_name(value: object) -> str:
    """torch's name of a device: "cpu" for None and "cpu", "cuda:n" for the number n, "n" and "cuda:n", and "cuda".

    Raises:
        ValueError: the value is none of them.
    """
    if value is None or value == "cpu":
        return "cpu"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return f"cuda:{value}"
    match = _CUDA_DEVICE.fullmatch(value) if isinstance(value, str) else None
    if match:
        return f"cuda:{int(match[1])}"
    if value == "cuda":
        return "cuda"
    raise ValueError(f"{value!r} is no device; use cpu, cuda, or the number of a GPU (0, cuda:0)")


DeviceName = Annotated[str, BeforeValidator(device_name), Field(examples=["cpu"])]
