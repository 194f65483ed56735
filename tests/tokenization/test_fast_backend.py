"""The fast encoder."""

import builtins
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.tokenization import fast_backend
from modalities_pipeline.tokenization.adversarial_texts import adversarial_texts
from modalities_pipeline.tokenization.encoders import Encoder, version_of
from modalities_pipeline.tokenization.fast_backend import FastokensEncoder, fast_encoder_of
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer


@pytest.fixture
def backend(tiny_bpe_dir: Path) -> Any:
    """The `tokenizers.Tokenizer` of a byte-level BPE tokenizer."""
    return PreTrainedHFTokenizer(str(tiny_bpe_dir)).tokenizer.backend_tokenizer


def test_it_gives_the_ids_of_the_reference(tiny_bpe_dir: Path) -> None:
    tokenizer = PreTrainedHFTokenizer(str(tiny_bpe_dir))
    encoder = tokenizer.fast_encoder()
    assert isinstance(encoder, FastokensEncoder)
    assert (encoder.name, encoder.version) == ("fastokens", version_of("fastokens"))
    texts = [*adversarial_texts(tokenizer.added_tokens), Path(__file__).read_text("utf-8")]
    found, expected = encoder.encode(texts), tokenizer.reference_encoder().encode(texts)
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.lengths, expected.lengths)
    assert (found.ids.dtype, found.lengths.dtype) == (np.uint32, np.int64)


def test_special_tokens_that_the_tokenizer_adds_by_itself_are_added(backend: Any) -> None:
    from tokenizers.processors import TemplateProcessing

    backend.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    encoder = fast_encoder_of(backend)
    assert isinstance(encoder, Encoder)
    assert encoder.encode(["a", ""]).ids.tolist() == [*backend.encode("a").ids, 0]
    assert backend.encode("a").ids[0] == 0


def test_no_texts_give_no_ids(backend: Any) -> None:
    ids, lengths = FastokensEncoder(backend.to_str()).encode([])
    assert (ids.shape, lengths.shape) == ((0,), (0,))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda backend: backend.enable_truncation(5), "cut"),
        (lambda backend: backend.enable_padding(length=5), "padded"),
        (lambda backend: setattr(backend, "encode_special_tokens", True), "special tokens in texts are split"),
        (lambda backend: setattr(backend.model, "dropout", 0.1), "dropout"),
    ],
)
def test_what_it_must_not_be_used_for_is_named(backend: Any, change: Callable[[Any], None], reason: str) -> None:
    assert isinstance(fast_encoder_of(backend), Encoder)
    change(backend)
    assert reason in str(fast_encoder_of(backend))


def test_a_tokenizer_that_it_is_not_proven_for_is_named(tiny_wordlevel_dir: Path) -> None:
    reason = PreTrainedHFTokenizer(str(tiny_wordlevel_dir)).fast_encoder()
    assert "is not proven to give the reference's ids" in str(reason)


def test_a_tokenizer_that_it_does_not_know_is_named(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unknown(FastokensEncoder):
        def __init__(self, tokenizer_json: str) -> None:
            super().__init__(tokenizer_json.replace('"BPE"', '"Unknown"'))

    monkeypatch.setattr(fast_backend, "FastokensEncoder", Unknown)
    assert "fastokens does not support this tokenizer (" in str(fast_encoder_of(backend))


def test_its_absence_is_named(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", None)
    assert "fastokens cannot be imported" in str(fast_encoder_of(backend))


def test_a_panic_is_a_reason_and_an_interrupt_is_not(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})

    def raise_it(error: BaseException) -> None:
        monkeypatch.setattr(fast_backend, "FastokensEncoder", lambda _: (_ for _ in ()).throw(error))

    raise_it(panic("index out of range"))
    assert "index out of range" in str(fast_encoder_of(backend))
    raise_it(builtins.KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        fast_encoder_of(backend)


def test_it_starts_no_threads_and_leaves_the_environment_alone(tiny_bpe_dir: Path) -> None:
    code = f"""
import os
from modalities_pipeline.tokenization.fast_backend import FastokensEncoder
before = dict(os.environ)
encoder = FastokensEncoder(open({str(tiny_bpe_dir / "tokenizer.json")!r}).read())
encoder.encode(["hello world " * 1000] * 100)
print(len(os.listdir("/proc/self/task")), dict(os.environ) == before)
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert result.stdout.split() == ["1", "True"]
