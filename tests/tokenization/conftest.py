"""Fixtures of the tokenizers' tests."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def recorded() -> list[dict[str, Any]]:
    """What the tokenizers of the vectors give in Modalities, per tokenizer or call."""
    return json.loads((Path(__file__).parent / "vectors" / "tokenizers.json").read_text("utf-8"))
