"""Documents that yield no tokens."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.data.packing import bad_documents
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack
from modalities_pipeline.exceptions import DatasetFormatError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

Pack = Callable[..., Manifest]


@pytest.mark.parametrize("batch_size", [1, 2, 100])
@pytest.mark.parametrize(("name", "reason"), [("empty_doc", "empty_text"), ("missing_key", "missing_text")])
def test_a_bad_document_costs_only_itself_when_skipping(
    name: str,
    reason: str,
    batch_size: int,
    pack: Pack,
    tmp_path: Path,
    vectors: Path,
    expected: dict[str, Any],
    utf8_tokenizer: TokenizerWrapper,
    read_documents: Callable[[Path], list[list[int]]],
) -> None:
    """B006."""
    intended = expected[f"pbin/{name}/batch_1"]["intended"]["skip_policy_docs"]
    manifest = pack(vectors / f"{name}.jsonl", utf8_tokenizer, on_bad_sample="skip", processing_batch_size=batch_size)
    assert read_documents(tmp_path / "x.pbin") == intended
    counts = manifest.counts
    assert counts["num_documents"] + counts["num_skipped"] == counts["num_documents_in"] == len(intended) + 1
    assert counts[f"num_skipped_{reason}"] == 1
    lines = (vectors / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
    assert manifest.details["skipped"] == [
        {"document": 2, "line": 3, "byte_offset": len(lines[0] + lines[1]), "reason": reason}
    ]


@pytest.mark.parametrize(
    ("bad_line", "message"),
    [
        ('{"body": "x", "id": 3}', r"finds nothing \(keys found: body, id\)"),
        ('{"text": null}', "finds nothing"),
        ('{"text": 3}', "a number instead of a string"),
        ('{"text": ["x"]}', "a list instead of a string"),
        ('{"text": ""}', "no tokens"),
        ('"text"', r"'\.text' fails: Cannot index string"),
        ('{"text": "\\ud800"}', "jq cannot read it"),
    ],
)
def test_a_bad_document_stops_the_pack_by_default_and_names_the_line(
    bad_line: str,
    message: str,
    pack: Pack,
    tmp_path: Path,
    write_lines: Callable[..., Path],
    utf8_tokenizer: TokenizerWrapper,
) -> None:
    """B002, B006."""
    source = write_lines("a.jsonl", ['{"text": "good"}', "", bad_line])
    with pytest.raises(DatasetFormatError, match=r"a\.jsonl, line 3 \(byte 18\)") as caught:
        pack(source, utf8_tokenizer)
    assert caught.match(message)
    assert not (tmp_path / "x.pbin").exists()


@pytest.mark.parametrize("lines", [["", " "], ['{"text": ""}', '{"words": "a"}'], ["{"]])
def test_a_raw_file_without_any_good_document_gives_an_empty_pack_only_if_bad_ones_are_skipped(
    write_lines: Callable[..., Path],
    tmp_path: Path,
    utf8_tokenizer: TokenizerWrapper,
    lines: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One bad file must not stop a corpus whose bad documents are to be left out."""
    source = write_lines("a.jsonl", lines)
    build_raw_index(source, drop_faulty_entries=True)
    settings = TokenizedPackSettings(
        src_path=source, dst_path=tmp_path / "x.pbin", jq_pattern=".text", eod_token="\n", on_bad_sample="skip"
    )
    manifest = build_tokenized_pack(settings, utf8_tokenizer)
    assert manifest is not None
    assert manifest.counts["num_documents"] == 0
    assert "a.jsonl has no documents" in caplog.text
    with pytest.raises(DatasetFormatError, match=r"a\.jsonl"):
        build_tokenized_pack(
            settings.model_copy(update={"on_bad_sample": "error", "dst_path": tmp_path / "y.pbin"}), utf8_tokenizer
        )
    assert not (tmp_path / "y.pbin").exists()


def test_counts_add_up_with_many_bad_documents_and_only_the_first_are_listed(
    pack: Pack,
    tmp_path: Path,
    write_lines: Callable[..., Path],
    utf8_tokenizer: TokenizerWrapper,
    read_documents: Callable[[Path], list[list[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B005, B006: bad documents of every kind between good and blank lines; line numbers are those of the file."""
    kinds = {
        "empty_text": '{"text": ""}',
        "missing_text": '{"x": "y"}',
        "not_a_string": '{"text": [1]}',
        "unreadable_line": '{"text": "\\ud800"}',
        "jq_failed": '"text"',
    }
    lines = []
    for number in range(100):
        lines += [json.dumps({"text": f"{number}"}), "", *kinds.values()]
    monkeypatch.setattr(bad_documents, "_MAX_REPORTED", 7)
    manifest = pack(write_lines("a.jsonl", lines), utf8_tokenizer, on_bad_sample="skip", processing_batch_size=7)
    counts = manifest.counts
    assert read_documents(tmp_path / "x.pbin") == [[*f"{number}\n".encode()] for number in range(100)]
    assert (counts["num_documents_in"], counts["num_documents"], counts["num_skipped"]) == (600, 100, 500)
    assert {kind: counts[f"num_skipped_{kind}"] for kind in kinds} == dict.fromkeys(kinds, 100)
    assert counts["num_eod_tokens"] == 100
    assert [(entry["document"], entry["line"], entry["reason"]) for entry in manifest.details["skipped"]] == [
        (1, 3, "empty_text"),
        (2, 4, "missing_text"),
        (3, 5, "not_a_string"),
        (4, 6, "unreadable_line"),
        (5, 7, "jq_failed"),
        (7, 10, "empty_text"),
        (8, 11, "missing_text"),
    ]


def test_the_first_bad_document_is_named_whatever_its_kind(
    pack: Pack, write_lines: Callable[..., Path], utf8_tokenizer: TokenizerWrapper
) -> None:
    lines = ['{"text": "a"}', '{"text": ""}', '{"x": 1}']
    with pytest.raises(DatasetFormatError, match=r"line 2 \(byte 14\): the text has no tokens"):
        pack(write_lines("a.jsonl", lines), utf8_tokenizer)
