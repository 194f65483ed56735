"""Fixtures of the tokenizers' tests."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

_VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def recorded() -> list[dict[str, Any]]:
    """What the tokenizers of the vectors give in Modalities, per tokenizer or call."""
    return json.loads((_VECTORS / "tokenizers.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def tiny_bpe_dir() -> Path:
    """A byte-level BPE tokenizer with 600 tokens, trained by this package; `<|endoftext|>` has id 0."""
    return _VECTORS / "tiny_bpe"


@pytest.fixture(scope="session")
def large_tokenizers() -> Path:
    """Folder with `gpt2/` (Hugging Face files) and `sentencepiece_dclm/en_32k_tokenizer.model`, if there is one."""
    folder = os.environ.get("MODALITIES_PIPELINE_TEST_TOKENIZERS")
    if folder is None:
        pytest.skip("MODALITIES_PIPELINE_TEST_TOKENIZERS names no folder with gpt2/ and sentencepiece_dclm/")
    return Path(folder)
