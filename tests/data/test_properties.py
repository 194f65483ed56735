"""What the data stages promise for every input, tried on generated ones.

By default the same examples are generated in each run. `HYPOTHESIS_PROFILE=soak` tries many, other ones each time.
"""

import itertools
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modalities_pipeline import api
from modalities_pipeline.api import FileExistencePolicy
from modalities_pipeline.data.jsonl import LargeFileLinesReader
from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack
from modalities_pipeline.exceptions import DatasetFormatError, UserError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer, PreTrainedSPTokenizer

_COMMON: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("deterministic", max_examples=80, derandomize=True, **_COMMON)
settings.register_profile("soak", max_examples=2000, print_blob=True, **_COMMON)
_PROFILE = settings.get_profile(os.environ.get("HYPOTHESIS_PROFILE", "deterministic"))
_ERROR = FileExistencePolicy.ERROR

_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_blank_lines = st.sampled_from(["", " ", "\t", "\r", "  \r"])
_seeds = st.integers(0, 2**32)


@st.composite
def _files_of_json_lines(draw: st.DrawFn) -> tuple[bytes, list[bytes], list[Any]]:
    """Bytes of a JSON-lines file, its lines that are documents (without LF), and their values."""
    values = draw(st.lists(_json_values, max_size=12))
    content, lines = b"", []
    for value in values:
        content += "".join(f"{blank}\n" for blank in draw(st.lists(_blank_lines, max_size=2))).encode()
        line = json.dumps(value, ensure_ascii=draw(st.booleans())).encode() + draw(st.sampled_from([b"", b"\r", b" "]))
        lines.append(line)
        content += line + b"\n"
    if values and draw(st.booleans()):
        content = content[:-1]
    return content, lines, values


@st.composite
def _packs(draw: st.DrawFn, max_size: int = 3) -> tuple[int, list[list[list[int]]]]:
    """A token size in bytes, and for each of one to `max_size` files its documents; some are empty."""
    token_size = draw(st.sampled_from([1, 2, 4]))
    documents = st.lists(st.integers(0, 256**token_size - 1), max_size=8)
    return token_size, draw(st.lists(st.lists(documents, max_size=12), min_size=1, max_size=max_size))


_line_files = st.lists(st.lists(st.text().map(json.dumps), max_size=10), min_size=1, max_size=3)


@contextmanager
def _folder() -> Iterator[Path]:
    """An empty folder of one example; the fixture `tmp_path` would be the same one for all."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def _write_packs(folder: Path, token_size: int, files: Sequence[Sequence[Sequence[int]]]) -> list[Path]:
    paths = [folder / f"{number}.pbin" for number in range(len(files))]
    for path, documents in zip(paths, files, strict=True):
        with PackedFileWriter(path, token_size) as writer:
            for document in documents:
                writer.write_document(document)
    return paths


def _read_pack(path: Path) -> list[list[int]]:
    with PackedFile(path) as file:
        file.check_index()
        return [file.document(position).tolist() for position in range(file.num_documents)]


def _write_lines(folder: Path, files: Sequence[Sequence[str]]) -> list[Path]:
    """Files of lines, of which the last one has no LF."""
    paths = [folder / f"{number}.jsonl" for number in range(len(files))]
    for path, lines in zip(paths, files, strict=True):
        path.write_bytes("\n".join(lines).encode())
    return paths


@_PROFILE
@given(_files_of_json_lines())
def test_indexing_and_reading_gives_back_every_document(case: tuple[bytes, list[bytes], list[Any]]) -> None:
    content, lines, values = case
    with _folder() as folder:
        source, index = folder / "x.jsonl", folder / "x.idx"
        source.write_bytes(content)
        if not lines:
            with pytest.raises(DatasetFormatError):
                build_raw_index(source, index)
            return
        build_raw_index(source, index)
        with LargeFileLinesReader(source, index, encoding=None) as reader:
            assert list(reader) == lines
        with LargeFileLinesReader(source, index) as reader:
            assert [json.loads(line) for line in reader] == values


@pytest.fixture(scope="module")
def tokenizers(tiny_wordlevel_dir: Path, tiny_sp_file: Path) -> list[tuple[TokenizerWrapper, str]]:
    """A word-level and a SentencePiece tokenizer, each with its end-of-document token."""
    word_level = PreTrainedHFTokenizer(str(tiny_wordlevel_dir))
    return [(word_level, "<eod>"), (PreTrainedSPTokenizer(str(tiny_sp_file)), "</s>")]


_words = st.sampled_from(["the", "cat", "sat", "<eod>", "</s>", "<unk>", "über", "中文", "😀", "\n", "a" * 300])
_texts = st.text() | st.lists(_words, max_size=8).map(" ".join)


@_PROFILE
@given(texts=st.lists(_texts, min_size=1, max_size=12), batch_size=st.integers(1, 5))
def test_every_packed_document_is_its_text_tokenized_anew(
    tokenizers: list[tuple[TokenizerWrapper, str]], texts: list[str], batch_size: int
) -> None:
    for tokenizer, eod_token in tokenizers:
        eod_id = tokenizer.get_token_id(eod_token)
        expected = [ids if ids[-1] == eod_id else [*ids, eod_id] for ids in map(tokenizer.tokenize, texts) if ids]
        with _folder() as folder:
            source = folder / "x.jsonl"
            source.write_bytes(b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts))
            build_raw_index(source)
            pack_settings = TokenizedPackSettings(
                src_path=source,
                dst_path=folder / "x.pbin",
                jq_pattern=".text",
                eod_token=eod_token,
                processing_batch_size=batch_size,
                on_bad_sample="skip",
            )
            manifest = build_tokenized_pack(pack_settings, tokenizer)
            assert _read_pack(folder / "x.pbin") == expected
        assert manifest is not None
        assert manifest.counts["num_documents"] + manifest.counts["num_skipped"] == len(texts)


@_PROFILE
@given(pack=_packs(), num_chunks=st.integers(1, 4), seed=_seeds)
def test_the_chunks_of_packs_have_every_document_once(
    pack: tuple[int, list[list[list[int]]]], num_chunks: int, seed: int
) -> None:
    token_size, files = pack
    with _folder() as folder:
        paths = _write_packs(folder, token_size, files)
        found: list[tuple[int, ...]] = []
        for chunk_id in range(num_chunks):
            output = folder / "chunk" / f"{chunk_id}.pbin"
            if all(len(documents) <= chunk_id for documents in files):
                with pytest.raises(UserError):
                    api.create_shuffled_dataset_chunk(paths, output, chunk_id, num_chunks, _ERROR, global_seed=seed)
                continue
            api.create_shuffled_dataset_chunk(paths, output, chunk_id, num_chunks, _ERROR, global_seed=seed)
            found += map(tuple, _read_pack(output))
    assert Counter(found) == Counter(tuple(document) for documents in files for document in documents)


@_PROFILE
@given(files=_line_files, num_chunks=st.integers(1, 4), seed=_seeds)
def test_the_chunks_of_line_files_have_every_line_once(files: list[list[str]], num_chunks: int, seed: int) -> None:
    with _folder() as folder:
        paths = _write_lines(folder, files)
        found: list[bytes] = []
        for chunk_id in range(num_chunks):
            output = folder / "chunk" / f"{chunk_id}.jsonl"
            output.parent.mkdir(exist_ok=True)
            if all(len(lines) <= chunk_id for lines in files):
                with pytest.raises(UserError):
                    api.create_shuffled_jsonl_dataset_chunk(
                        paths, output, chunk_id, num_chunks, _ERROR, global_seed=seed
                    )
                continue
            api.create_shuffled_jsonl_dataset_chunk(paths, output, chunk_id, num_chunks, _ERROR, global_seed=seed)
            found += output.read_bytes().splitlines(keepends=True)
    assert Counter(found) == Counter(f"{line}\n".encode() for lines in files for line in lines)


@_PROFILE
@given(pack=_packs())
def test_a_merged_pack_is_its_inputs_one_after_the_other(pack: tuple[int, list[list[list[int]]]]) -> None:
    token_size, files = pack
    with _folder() as folder:
        api.merge_packed_data_files(_write_packs(folder, token_size, files), folder / "merged.pbin")
        assert _read_pack(folder / "merged.pbin") == list(itertools.chain(*files))


@_PROFILE
@given(pack=_packs(max_size=1), seed=_seeds, batch_size=st.integers(1, 5))
def test_a_shuffled_pack_has_the_documents_in_the_order_of_the_seed(
    pack: tuple[int, list[list[list[int]]]], seed: int, batch_size: int
) -> None:
    token_size, (documents,) = pack
    with _folder() as folder:
        (source,) = _write_packs(folder, token_size, [documents])
        api.shuffle_tokenized_data(source, folder / "shuffled.pbin", batch_size, _ERROR, seed=seed)
        assert _read_pack(folder / "shuffled.pbin") == _shuffled(documents, seed)


@_PROFILE
@given(lines=st.lists(st.text().map(json.dumps), max_size=15), seed=_seeds)
def test_a_shuffled_line_file_has_the_lines_in_the_order_of_the_seed(lines: list[str], seed: int) -> None:
    with _folder() as folder:
        (source,) = _write_lines(folder, [lines])
        api.shuffle_jsonl_data(source, folder / "shuffled.jsonl", _ERROR, seed=seed)
        expected = "".join(f"{line}\n" for line in _shuffled(lines, seed))
        assert (folder / "shuffled.jsonl").read_bytes() == expected.encode()


@_PROFILE
@given(pack=_packs(max_size=1), data=st.data())
def test_a_filtered_pack_has_the_chosen_documents_in_their_order(
    pack: tuple[int, list[list[list[int]]]], data: st.DataObject
) -> None:
    token_size, (documents,) = pack
    kept = data.draw(st.lists(st.booleans(), min_size=len(documents), max_size=len(documents)))
    with _folder() as folder:
        (source,) = _write_packs(folder, token_size, [documents])
        output = folder / "filtered.pbin"
        if not any(kept):
            with pytest.raises(UserError):
                api.create_filtered_tokenized_dataset(source, kept.__getitem__, output, _ERROR)
            return
        api.create_filtered_tokenized_dataset(source, kept.__getitem__, output, _ERROR)
        assert _read_pack(output) == list(itertools.compress(documents, kept))


def _shuffled(items: Sequence[Any], seed: int) -> list[Any]:
    """In the order in which Modalities puts them."""
    shuffled = list(items)
    random.Random(seed).shuffle(shuffled)
    return shuffled
