"""The check that packing keeps every document and every id."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.pbin import PackedFileWriter
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.tokenization_consistency import (
    ConsistencyReport,
    build_hf_tokenization_components,
    build_sp_tokenization_components,
    compare_with_source,
    verify_tokenization_consistency,
)
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, UserError

TEXTS = ["hello world", "the cat\u2028sat", "a\u0085b", "<eod>", "x <eod>", "on the mat ."]


def test_hugging_face_packs_are_consistent(write_lines: Callable[..., Path], tiny_wordlevel_dir: Path) -> None:
    source = write_lines("a.jsonl", [json.dumps({"body": text}, ensure_ascii=False) for text in TEXTS])
    tokenize, config, eod_token_id = build_hf_tokenization_components(tiny_wordlevel_dir, "<eod>")
    assert (tokenize("hello world"), eod_token_id) == ([5, 6], 1)
    report = verify_tokenization_consistency(source, "<eod>", eod_token_id, tokenize, config, "body")
    num_tokens = sum(len(tokenize(text)) + (tokenize(text)[-1] != 1) for text in TEXTS)
    assert report == ConsistencyReport(6, 6, 6, num_tokens, "tokenizers")
    assert sorted(path.name for path in source.parent.iterdir()) == ["a.jsonl"]


def test_sentencepiece_packs_are_consistent(write_lines: Callable[..., Path], tiny_sp_file: Path) -> None:
    source = write_lines("a.jsonl", [json.dumps({"te xt": text}) for text in TEXTS])
    tokenize, config, eod_token_id = build_sp_tokenization_components(tiny_sp_file, "</s>")
    report = verify_tokenization_consistency(source, "</s>", eod_token_id, tokenize, config, "te xt")
    assert (report.num_lines, report.num_documents, report.tokenizer_backend) == (6, 6, "sentencepiece")


@pytest.mark.parametrize("content", ['{"text": "a"}\r\n\r\n{"text": "b c"}\r\n', '{"text": "a"}\n\n{"text": "b c"}'])
def test_line_ends_and_blank_lines_are_no_difference(content: str, tmp_path: Path, tiny_wordlevel_dir: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(content.encode())
    tokenize, config, eod_token_id = build_hf_tokenization_components(tiny_wordlevel_dir, "<eod>")
    report = verify_tokenization_consistency(source, "<eod>", eod_token_id, tokenize, config, "text")
    assert (report.num_lines, report.num_index_entries, report.num_documents, report.num_tokens) == (2, 2, 2, 5)


def test_a_tokenizer_that_gives_other_ids_is_found_out(
    write_lines: Callable[..., Path], tiny_wordlevel_dir: Path
) -> None:
    source = write_lines("a.jsonl", [json.dumps({"text": text}) for text in TEXTS])
    tokenize, config, eod_token_id = build_hf_tokenization_components(tiny_wordlevel_dir, "<eod>")

    def differs_late(text: str) -> list[int]:
        return [9 if place == 3 else token_id for place, token_id in enumerate(tokenize(text))]

    with pytest.raises(DatasetFormatError, match=r"a\.jsonl, line 6: .*differ from id 3 on"):
        verify_tokenization_consistency(source, "<eod>", eod_token_id, differs_late, config, "text")


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([[5, 6, 1]], "2 lines that are not blank, its index 2 entries, its pack 1 documents"),
        ([[5, 6, 1], [7, 8, 1], [1]], "its pack 3 documents"),
        ([[5, 6, 1], [7, 8]], r"line 2: the pack has 2 ids, the tokenizer gives 3"),
        ([[5, 6, 1, 1], [7, 8, 1]], r"line 1: the pack has 4 ids, the tokenizer gives 3 .*differ from id 3 on"),
        ([[5, 7, 1], [7, 8, 1]], r"line 1: .*differ from id 1 on \(\[7, 1\] instead of \[6, 1\]\)"),
    ],
)
def test_a_wrong_pack_is_found_out(
    tmp_path: Path, tiny_wordlevel_dir: Path, documents: list[list[int]], message: str
) -> None:
    """B006: the check of Modalities passes on a truncated pack."""
    source, index_path, pack_path = (tmp_path / f"a.{suffix}" for suffix in ("jsonl", "idx", "pbin"))
    source.write_text('{"text": "hello world"}\n{"text": "the cat"}\n')
    build_raw_index(source)
    with PackedFileWriter(pack_path, 1) as writer:
        for document in documents:
            writer.write_document(document)
    tokenize, _, eod_token_id = build_hf_tokenization_components(tiny_wordlevel_dir, "<eod>")
    with pytest.raises(DatasetFormatError, match=message):
        compare_with_source(source, index_path, pack_path, tokenize, eod_token_id, "text")


def test_bad_documents_and_missing_files_are_errors(
    write_lines: Callable[..., Path], tmp_path: Path, tiny_wordlevel_dir: Path
) -> None:
    tokenize, config, eod_token_id = build_hf_tokenization_components(tiny_wordlevel_dir, "<eod>")
    source = write_lines("a.jsonl", ['{"text": "a"}', '{"text": ""}'])
    with pytest.raises(DatasetFormatError, match="line 2"):
        verify_tokenization_consistency(source, "<eod>", eod_token_id, tokenize, config, "text")
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        verify_tokenization_consistency(tmp_path / "nowhere", "<eod>", eod_token_id, tokenize, config, "text")


def test_an_end_token_that_is_not_there_is_an_error(tiny_sp_file: Path, tiny_wordlevel_dir: Path) -> None:
    """B017: that there is an unknown token does not make it known."""
    with pytest.raises(UserError, match="not in the tokenizer's vocabulary"):
        build_sp_tokenization_components(tiny_sp_file, "<no such token>")
    with pytest.raises(UserError, match="not in the tokenizer's vocabulary"):
        build_hf_tokenization_components(tiny_wordlevel_dir, "<no such token>")
