"""Packing documents into tokens."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data.manifest import Manifest, digest_of
from modalities_pipeline.data.packing import document_packer
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack, identity
from modalities_pipeline.exceptions import DatasetFormatError, UserError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer, PreTrainedSPTokenizer

Pack = Callable[..., Manifest]


@pytest.mark.parametrize("name", ["stub_utf8", "gpt2", "tiny_wordlevel", "tiny_sp"])
def test_packs_are_byte_for_byte_those_of_modalities(
    name: str,
    pack: Pack,
    tmp_path: Path,
    vectors: Path,
    expected: dict[str, Any],
    utf8_tokenizer: TokenizerWrapper,
    make_tokenizer: Callable[..., TokenizerWrapper],
    tiny_wordlevel_dir: Path,
    tiny_sp_file: Path,
) -> None:
    """B015: the vector has texts equal to, and ending in, the end-of-document token."""
    vector = expected[f"pbin/five/{name}"]
    lines = (vectors / "five.jsonl").read_text("utf-8").splitlines()
    recorded = {json.loads(line)["text"]: ids for line, ids in zip(lines, vector["expect"]["docs"], strict=True)}
    makers: dict[str, Callable[[], TokenizerWrapper]] = {
        "stub_utf8": lambda: utf8_tokenizer,
        "gpt2": lambda: make_tokenizer(recorded.__getitem__, 50257, ("<|endoftext|>", 50256)),
        "tiny_wordlevel": lambda: PreTrainedHFTokenizer(str(tiny_wordlevel_dir)),
        "tiny_sp": lambda: PreTrainedSPTokenizer(str(tiny_sp_file)),
    }
    manifest = pack(vectors / "five.jsonl", makers[name](), eod_token=vector["params"]["eod_token"])
    assert (tmp_path / "x.pbin").read_bytes() == (vectors / vector["expect"]["file"]).read_bytes()
    assert manifest.counts["num_documents"] == manifest.counts["num_documents_in"] == 5
    assert manifest.details["token_size_in_bytes"] == vector["expect"]["token_size"]


def test_the_bytes_do_not_depend_on_batches(
    pack: Pack,
    tmp_path: Path,
    write_lines: Callable[..., Path],
    utf8_tokenizer: TokenizerWrapper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = write_lines("a.jsonl", [json.dumps({"text": "x" * length}) for length in range(1, 20)])
    pack(source, utf8_tokenizer, dst_path=tmp_path / "whole.pbin")
    monkeypatch.setattr(document_packer, "_MAX_BATCH_OF_SLOW_ENCODER_IN_BYTES", 40)
    pack(source, utf8_tokenizer, dst_path=tmp_path / "bytes.pbin")
    pack(source, utf8_tokenizer, dst_path=tmp_path / "one.pbin", processing_batch_size=1)
    assert (tmp_path / "whole.pbin").read_bytes() == (tmp_path / "bytes.pbin").read_bytes()
    assert (tmp_path / "whole.pbin").read_bytes() == (tmp_path / "one.pbin").read_bytes()


def test_patterns_beyond_key_paths_use_jq(
    pack: Pack,
    tmp_path: Path,
    write_lines: Callable[..., Path],
    utf8_tokenizer: TokenizerWrapper,
    read_documents: Callable[[Path], list[list[int]]],
) -> None:
    source = write_lines("a.jsonl", ['{"a": {"b": ["x", "y"]}}', '{"a": {"b": ["z"]}}'])
    pack(source, utf8_tokenizer, jq_pattern='.a.b | join("-")')
    assert read_documents(tmp_path / "x.pbin") == [[*b"x-y\n"], [*b"z\n"]]


def test_a_byte_order_mark_is_no_obstacle(
    pack: Pack, tmp_path: Path, vectors: Path, utf8_tokenizer: TokenizerWrapper
) -> None:
    assert pack(vectors / "bom.jsonl", utf8_tokenizer).counts["num_documents"] == 2


def test_every_document_ends_with_one_end_token(
    pack: Pack, tmp_path: Path, write_lines: Callable[..., Path], make_tokenizer: Callable[..., TokenizerWrapper]
) -> None:
    """B015, B016: also if the tokenizer appends its own."""
    source = write_lines("a.jsonl", [json.dumps({"text": str(number)}) for number in range(100)])
    appending = make_tokenizer(lambda text: [*text.encode(), 10], 256, ("\n", 10))
    assert pack(source, appending).counts["num_eod_tokens"] == 100


def test_an_unknown_end_token_is_an_error_before_anything_is_written(
    pack: Pack, tmp_path: Path, vectors: Path, tiny_wordlevel_dir: Path
) -> None:
    """B017: that the tokenizer maps it to its unknown token does not make it known."""
    with pytest.raises(UserError, match=r"<\|end\|>.*special tokens are: .*<eod>"):
        pack(vectors / "five.jsonl", PreTrainedHFTokenizer(str(tiny_wordlevel_dir)), eod_token="<|end|>")
    assert sorted(path.name for path in tmp_path.iterdir() if "five" not in path.name) == []


def test_long_documents_are_never_cut(
    pack: Pack,
    tmp_path: Path,
    write_lines: Callable[..., Path],
    tiny_wordlevel_dir: Path,
    recwarn: pytest.WarningsRecorder,
) -> None:
    """B019: the tokenizer's model_max_length is 64."""
    manifest = pack(
        write_lines("a.jsonl", [json.dumps({"text": "hello " * 10_000})]),
        PreTrainedHFTokenizer(str(tiny_wordlevel_dir)),
        eod_token="<eod>",
    )
    assert manifest.counts["num_tokens"] == 10_001
    assert not recwarn.list


def test_the_token_size_holds_the_end_token_beyond_the_base_vocabulary(
    pack: Pack, tmp_path: Path, write_lines: Callable[..., Path], make_tokenizer: Callable[..., TokenizerWrapper]
) -> None:
    """B021."""
    tokenizer = make_tokenizer(lambda text: list(text.encode()), 256, ("<eod>", 256))
    manifest = pack(write_lines("a.jsonl", ['{"text": "ab"}']), tokenizer, eod_token="<eod>")
    assert manifest.details["num_token_ids"] == 257
    with PackedFile(tmp_path / "x.pbin") as file:
        assert file.token_size_in_bytes == 2
        assert file.tokens.tolist() == [97, 98, 256]


def test_large_ids_survive_and_impossible_ids_are_named(
    pack: Pack, tmp_path: Path, write_lines: Callable[..., Path], make_tokenizer: Callable[..., TokenizerWrapper]
) -> None:
    """B011."""
    source = write_lines("a.jsonl", ['{"text": "69999"}'])
    pack(source, make_tokenizer(lambda text: [int(text)], 70_000, ("<eod>", 0)), eod_token="<eod>")
    with PackedFile(tmp_path / "x.pbin") as file:
        assert file.token_size_in_bytes == 4
        assert file.tokens.tolist() == [69_999, 0]
    with pytest.raises(DatasetFormatError, match=r"a\.jsonl, line 1 \(byte 0\).* id 69999,.*69999 ids only"):
        pack(
            source,
            make_tokenizer(lambda text: [int(text)], 69_999, ("<eod>", 0)),
            eod_token="<eod>",
            dst_path=tmp_path / "y.pbin",
        )


def test_documents_cut_at_a_padded_length_keep_that_length(
    pack: Pack,
    tmp_path: Path,
    vectors: Path,
    expected: dict[str, Any],
    tiny_wordlevel_dir: Path,
    read_documents: Callable[[Path], list[list[int]]],
) -> None:
    tokenizer = PreTrainedHFTokenizer(
        str(tiny_wordlevel_dir),
        padding="max_length",
        truncation=True,
        max_length=4,
        special_tokens={"pad_token": "<eod>"},
    )
    pack(vectors / "pad.jsonl", tokenizer, eod_token="<eod>")
    assert read_documents(tmp_path / "x.pbin") == expected["pbin/padded_to_max_length"]["intended"]["docs"]


def test_an_index_older_than_its_file_is_refused(
    pack: Pack, tmp_path: Path, write_lines: Callable[..., Path], utf8_tokenizer: TokenizerWrapper
) -> None:
    """B007."""
    source = write_lines("a.jsonl", ['{"text": "a"}'])
    build_raw_index(source)
    write_lines("a.jsonl", ['{"text": "a"}', '{"text": "b"}'])
    with pytest.raises(DatasetFormatError, match=r"a\.idx is out of date.*Create the raw index again"):
        pack(source, utf8_tokenizer, index_path=source.with_suffix(".idx"))


def test_a_raw_file_that_changes_while_it_is_packed_leaves_no_pack(
    write_lines: Callable[..., Path], tmp_path: Path, make_tokenizer: Callable[..., TokenizerWrapper]
) -> None:
    source = write_lines("a.jsonl", ['{"text": "a"}'])
    build_raw_index(source)

    def to_ids(text: str) -> list[int]:
        source.write_text('{"text": "b"}\n')
        return list(text.encode())

    settings = TokenizedPackSettings(src_path=source, dst_path=tmp_path / "x.pbin", jq_pattern=".text", eod_token="\n")
    with pytest.raises(DatasetFormatError, match=r"a\.jsonl changed while it was read"):
        build_tokenized_pack(settings, make_tokenizer(to_ids, 256, ("\n", 10)))
    assert not (tmp_path / "x.pbin").exists()


def test_the_manifest_has_the_published_identity(
    pack: Pack, tmp_path: Path, vectors: Path, utf8_tokenizer: TokenizerWrapper
) -> None:
    source = vectors / "five.jsonl"
    manifest = pack(source, utf8_tokenizer)
    published = identity(
        digest_of(source), digest_of(tmp_path / "five.idx"), utf8_tokenizer.fingerprint(), ".text", "\n"
    )
    assert manifest.fingerprint == published.fingerprint


@pytest.mark.parametrize(
    "change", [{"num_cpus": 7}, {"processing_batch_size": 1}, {"raw_samples_queue_size": 1}, {"on_bad_sample": "skip"}]
)
def test_only_what_can_change_bytes_is_part_of_the_identity(
    pack: Pack, tmp_path: Path, vectors: Path, utf8_tokenizer: TokenizerWrapper, change: dict[str, Any]
) -> None:
    plain = pack(vectors / "five.jsonl", utf8_tokenizer)
    changed = pack(vectors / "five.jsonl", utf8_tokenizer, dst_path=tmp_path / "y.pbin", **change)
    assert (plain.fingerprint == changed.fingerprint) == ("on_bad_sample" not in change)


def test_the_histogram_counts_every_document(
    pack: Pack, tmp_path: Path, write_lines: Callable[..., Path], utf8_tokenizer: TokenizerWrapper
) -> None:
    lengths_with_end_token = [2, 3, 4, 7, 8, 40]
    lines = [json.dumps({"text": "x" * (length - 1)}) for length in lengths_with_end_token]
    histogram = pack(write_lines("a.jsonl", lines), utf8_tokenizer).details["token_length_histogram"]
    assert histogram == {"edges": [2, 4, 8, 16, 32, 64], "counts": [2, 2, 1, 0, 1]}
