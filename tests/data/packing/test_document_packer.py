"""Packing with the fast backend, the reference, and several threads: the same bytes, or an error and no output."""

import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.data.packing import document_packer
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack
from modalities_pipeline.exceptions import DatasetFormatError, UserError
from modalities_pipeline.tokenization import certification
from modalities_pipeline.tokenization.encoders import Encoder, FlatTokens, version_of
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer, PreTrainedSPTokenizer

BPE_DIR = Path(__file__).parents[2] / "tokenization" / "vectors" / "tiny_bpe"
EOD = "<|endoftext|>"


@pytest.fixture
def tokenizer() -> PreTrainedHFTokenizer:
    """A tokenizer that the fast backend supports."""
    return PreTrainedHFTokenizer(str(BPE_DIR))


@pytest.fixture
def source(write_lines: Callable[..., Path]) -> Path:
    """An indexed raw file of documents in many scripts, some empty, some with the end-of-document token."""
    texts = [f"Grüße {number} 日本語 😀\u200d x{EOD} e\u0301 \u2028 {'long ' * (number % 50)}" for number in range(400)]
    texts[7] = texts[8] = texts[-1] = f"ends with {EOD}"
    texts[9] = EOD
    path = write_lines("a.jsonl", [json.dumps({"text": text}) for text in texts])
    build_raw_index(path)
    return path


def _pack(source: Path, tokenizer: TokenizerWrapper, name: str = "x.pbin", **settings: Any) -> Manifest:
    values = {"src_path": source, "dst_path": source.with_name(name), "jq_pattern": ".text", "eod_token": EOD}
    manifest = build_tokenized_pack(TokenizedPackSettings.model_validate({**values, **settings}), tokenizer)
    assert manifest is not None
    return manifest


class OffByOne(Encoder):
    """Another encoder's ids, one off in the texts that hold a certain word."""

    name, version = "off-by-one", "1"
    is_fast = is_concurrent = True

    def __init__(self, right: Encoder, word: str) -> None:
        self._right = right
        self._word = word

    def encode(self, texts: Sequence[str]) -> FlatTokens:
        ids, lengths = self._right.encode(texts)
        ids = ids.copy()
        starts = np.cumsum(lengths) - lengths
        for text, start in zip(texts, starts.tolist(), strict=True):
            if self._word in text:
                ids[start] ^= 1
        return FlatTokens(ids, lengths)


def test_the_fast_backend_is_used_and_recorded_with_the_bytes_of_the_reference(
    source: Path, tokenizer: PreTrainedHFTokenizer
) -> None:
    fast = _pack(source, tokenizer)
    reference = _pack(source, tokenizer, "y.pbin", tokenizer_backend="reference")
    keys = ("tokenizer_backend", "tokenizer_backend_version", "tokenizer_backend_fallback_reason")
    assert [fast.details[key] for key in keys] == ["fastokens", version_of("fastokens"), None]
    assert [reference.details[key] for key in keys] == [
        "tokenizers",
        version_of("tokenizers"),
        "the settings ask for the reference",
    ]
    assert (fast.digest, fast.fingerprint) == (reference.digest, reference.fingerprint)
    assert fast.counts == reference.counts


@pytest.mark.parametrize("num_cpus", [1, 2, 7])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_the_bytes_do_not_depend_on_threads(
    source: Path,
    tokenizer: PreTrainedHFTokenizer,
    monkeypatch: pytest.MonkeyPatch,
    num_cpus: int,
    backend: str,
) -> None:
    expected = _pack(source, tokenizer, num_cpus=1)
    monkeypatch.setattr(document_packer, "_MAX_BATCH_IN_BYTES", 500)
    monkeypatch.setattr(document_packer, "_MAX_BATCH_OF_SLOW_ENCODER_IN_BYTES", 500)
    found = _pack(source, tokenizer, "y.pbin", num_cpus=num_cpus, tokenizer_backend=backend)
    assert found.digest == expected.digest


@pytest.mark.parametrize("num_cpus", [1, 3])
def test_sentencepiece_packs_the_same_bytes_in_threads(
    source: Path, tiny_sp_file: Path, monkeypatch: pytest.MonkeyPatch, num_cpus: int
) -> None:
    expected = _pack(source, PreTrainedSPTokenizer(str(tiny_sp_file)), eod_token="</s>", num_cpus=1)
    monkeypatch.setattr(document_packer, "_MAX_BATCH_OF_SLOW_ENCODER_IN_BYTES", 500)
    monkeypatch.setattr(document_packer, "_MAX_BATCH_IN_BYTES", 500)
    tokenizer = PreTrainedSPTokenizer(str(tiny_sp_file))
    found = _pack(source, tokenizer, "y.pbin", eod_token="</s>", num_cpus=num_cpus)
    assert found.digest == expected.digest
    assert found.details["tokenizer_backend"] == "sentencepiece"
    assert "there is none for PreTrainedSPTokenizer" in found.details["tokenizer_backend_fallback_reason"]


@pytest.mark.parametrize("word", ["Grüße 0 ", "ends with", "antidisestablishmentarianism"])
def test_a_fast_backend_that_is_one_id_off_is_refused(
    source: Path,
    tokenizer: PreTrainedHFTokenizer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    word: str,
) -> None:
    expected = _pack(source, tokenizer, tokenizer_backend="reference")
    wrong = OffByOne(tokenizer.reference_encoder(), word)
    monkeypatch.setattr(tokenizer, "fast_encoder", lambda: wrong)
    with caplog.at_level(logging.INFO):
        found = _pack(source, tokenizer, "y.pbin")
    assert found.digest == expected.digest
    assert found.details["tokenizer_backend"] == "tokenizers"
    assert "off-by-one 1 gives other ids than tokenizers" in found.details["tokenizer_backend_fallback_reason"]
    assert "not by the fast backend: off-by-one 1 gives other ids" in caplog.text


def test_without_fastokens_the_reference_packs_and_says_so(
    source: Path, tokenizer: PreTrainedHFTokenizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastokens", None)
    with caplog.at_level(logging.INFO):
        manifest = _pack(source, tokenizer)
    assert manifest.details["tokenizer_backend"] == "tokenizers"
    assert "fastokens cannot be imported" in manifest.details["tokenizer_backend_fallback_reason"]
    assert "fastokens cannot be imported" in caplog.text


def test_a_fast_backend_that_fails_after_it_was_certified_leaves_no_output(
    source: Path, tokenizer: PreTrainedHFTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = tokenizer.reference_encoder()

    class Failing(OffByOne):
        def encode(self, texts: Sequence[str]) -> FlatTokens:
            raise ValueError("worn out")

    monkeypatch.setattr(
        document_packer, "choose_encoder", lambda *_: certification.ChosenEncoder(Failing(right, ""), None)
    )
    with pytest.raises(
        UserError, match=r"off-by-one 1 cannot tokenize documents 0 to 399.*tokenizer_backend: reference"
    ):
        _pack(source, tokenizer)
    assert not list(source.parent.glob("*x.pbin"))


@pytest.mark.parametrize("old", [None, "true"])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_environment_variables_are_given_back(
    source: Path, tokenizer: PreTrainedHFTokenizer, monkeypatch: pytest.MonkeyPatch, old: str | None, backend: str
) -> None:
    for name in ("TOKENIZERS_PARALLELISM", "FASTOKENS_BPE_THREADS"):
        monkeypatch.delenv(name, raising=False)
        if old is not None:
            monkeypatch.setenv(name, old)
    before = dict(os.environ)
    _pack(source, tokenizer, num_cpus=2, tokenizer_backend=backend)
    assert dict(os.environ) == before
    with pytest.raises(DatasetFormatError):
        _pack(source, tokenizer, "y.pbin", num_cpus=2, tokenizer_backend=backend, jq_pattern=".nothing")
    assert dict(os.environ) == before


def test_many_small_files_are_certified_at_little_cost(
    tmp_path: Path, tokenizer: PreTrainedHFTokenizer, write_lines: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    difference = certification._difference

    def counted(fast: Encoder, reference: Encoder, texts: Sequence[str], kind: str) -> str | None:
        compared.append(sum(map(len, texts)))
        return difference(fast, reference, texts, kind)

    monkeypatch.setattr(certification, "_difference", counted)
    for number in range(5):
        path = write_lines(f"{number}.jsonl", [json.dumps({"text": "some words " * 40})] * 200)
        build_raw_index(path)
        assert _pack(path, tokenizer, f"{number}.pbin").details["tokenizer_backend"] == "fastokens"
    assert compared[0] > 100_000
    assert len(compared) == 6
    assert all(0 < size < 6_000 for size in compared[1:])
