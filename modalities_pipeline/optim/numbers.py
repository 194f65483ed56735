"""Types of numbers in the configs of this folder. Imports no torch."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field


def _no_truth_value(value: Any) -> Any:
    """Text may be a number, as Modalities has it; true and false are slips."""
    if isinstance(value, bool):
        raise ValueError(f"has to be a number (given: {str(value).lower()})")
    return value


Number = Annotated[float, BeforeValidator(_no_truth_value), Field(allow_inf_nan=False)]
