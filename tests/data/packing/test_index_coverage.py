"""An index that does not list every line of its file is refused, whoever made it."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import Manifest, manifest_path
from modalities_pipeline.data.packing import index_coverage
from modalities_pipeline.data.packing.document_batches import DocumentBatches
from modalities_pipeline.data.packing.text_extraction import TextExtractor
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack
from modalities_pipeline.exceptions import DatasetFormatError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

Repack = Callable[[bytes, bytes], Manifest | None]


@pytest.fixture
def repack(tmp_path: Path, utf8_tokenizer: TokenizerWrapper) -> Repack:
    """Function (content when the file was indexed, content now) -> the pack; the index has no manifest."""
    source = tmp_path / "s.jsonl"
    settings = TokenizedPackSettings(src_path=source, dst_path=tmp_path / "x.pbin", jq_pattern=".text", eod_token="\n")

    def run(then: bytes, now: bytes) -> Manifest | None:
        source.write_bytes(then)
        build_raw_index(source, file_existence_policy=FileExistencePolicy.OVERRIDE)
        manifest_path(source.with_suffix(".idx")).unlink()
        source.write_bytes(now)
        return build_tokenized_pack(settings, utf8_tokenizer, FileExistencePolicy.OVERRIDE)

    return run


def _lines(*texts: str) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (_lines("a", "b", "c"), "it has lines from byte 27 on"),
        (_lines("a", "b") + b"{", "it has lines from byte 27 on"),
        (_lines("aaa", "b", "c", "d"), "it has lines from byte 27 on"),
        (_lines("aa", "") + b"\n", "an entry ends there, but no line"),
        (b"1\n" * 14, "an entry holds more than one line"),
        (b"\n" + _lines("a", "b")[:-1], "it has lines from byte 27 on"),
        (b"\n" + _lines("a", "b")[:-2] + b"\n", "an entry ends there, but no line"),
        (_lines("a")[:-1] + b" " + _lines("b"), "an entry ends there, but no line"),
    ],
)
def test_a_file_that_changed_after_it_was_indexed_is_refused(repack: Repack, now: bytes, what: str) -> None:
    """B007: no document may be lost without a word."""
    with pytest.raises(DatasetFormatError, match=rf"s\.idx .*s\.jsonl.*{what}.*reate the raw index again"):
        repack(_lines("a", "b"), now)


@pytest.mark.parametrize("content", [_lines("a", "b"), b" \n\n" + _lines("a") + b"\t\r\n\n" + _lines("b")[:-1]])
@pytest.mark.parametrize("behind", [b"", b"\n", b"\n \n\t"])
def test_blank_lines_and_a_missing_last_line_end_are_no_fault(repack: Repack, content: bytes, behind: bytes) -> None:
    manifest = repack(content + behind, content + behind)
    assert manifest is not None
    assert manifest.counts["num_documents"] == 2


def test_many_blank_lines_are_looked_at_in_pieces(repack: Repack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_coverage, "_GAP_BLOCK_IN_BYTES", 1000)
    content = _lines("a") + b"\n" * 200_000 + _lines("b", "c") + b" \n" * 5000
    manifest = repack(content, content)
    assert manifest is not None
    assert manifest.counts["num_documents"] == 3
    with pytest.raises(DatasetFormatError, match="a line begins there that it does not list"):
        repack(content, content[:150_000] + b"7\n" + content[150_002:])


def test_lines_that_were_left_out_on_purpose_are_known_by_the_manifest(
    tmp_path: Path, utf8_tokenizer: TokenizerWrapper
) -> None:
    """An index of Modalities, which leaves faulty lines out as well, has none: it is refused."""
    source = tmp_path / "s.jsonl"
    source.write_bytes(_lines("a") + b"{\n" + _lines("b"))
    build_raw_index(source, drop_faulty_entries=True)
    settings = TokenizedPackSettings(src_path=source, dst_path=tmp_path / "x.pbin", jq_pattern=".text", eod_token="\n")
    manifest = build_tokenized_pack(settings, utf8_tokenizer)
    assert manifest is not None
    assert manifest.counts["num_documents"] == 2
    (tmp_path / "x.pbin").unlink()
    manifest_path(source.with_suffix(".idx")).unlink()
    with pytest.raises(DatasetFormatError, match=r"faulty lines were left out.*on_bad_sample: skip"):
        build_tokenized_pack(settings, utf8_tokenizer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("coverage")


@given(st.lists(st.sampled_from([b"", b" ", b"{}", b"12", b"[1]"]), max_size=8), st.data())
def test_an_index_is_taken_only_if_it_is_that_of_the_file(
    folder: Path, lines: list[bytes], data: st.DataObject
) -> None:
    content = b"\n".join(lines)
    source, index_path = folder / "s.jsonl", folder / "s.idx"
    source.write_bytes(content or b"\n")
    right, offset = [], 0
    for line in lines:
        if line.strip():
            right.append((offset, len(line)))
        offset += len(line) + 1
    numbers = st.integers(0, len(content))
    pairs = st.tuples(numbers, numbers).filter(lambda pair: sum(pair) <= len(content))
    changed = data.draw(st.one_of(st.just(right), st.lists(pairs, max_size=4), _subsets(right)))
    index_path.write_bytes(pickle.dumps(changed))
    try:
        with DocumentBatches(source, index_path, TextExtractor(".")) as documents:
            list(documents.batches(2, 100))
    except DatasetFormatError:
        assert changed != right
    else:
        blank = [(start, size) for start, size in changed if not content[start : start + size].strip()]
        assert [pair for pair in changed if pair not in blank] == right


def _subsets(pairs: list[tuple[int, int]]) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.sampled_from(pairs), max_size=len(pairs)) if pairs else st.just([])
