"""Check that indexing and packing a raw file keeps every document and every id.

The file is indexed and packed into a temporary folder; then the results are compared with the file's own lines and with
what a plain call of the tokenizer gives, one document at a time. All counts are compared, so a truncated pack is seen.
"""

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from modalities_pipeline.data.jsonl import LargeFileLinesReader
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError
from modalities_pipeline.tokenization.saved_tokenizer import build_tokenizer, tokenizer_details
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

_UNLIMITED_LENGTH_IN_TOKENS = 51_200_000

Tokenize = Callable[[str], Sequence[int]]


@dataclasses.dataclass(frozen=True)
class ConsistencyReport:
    """What was compared and found equal.

    Attributes:
        num_lines: lines of the raw file that are not blank.
        num_index_entries: entries of its index.
        num_documents: documents of its pack.
        num_tokens: tokens of all documents, end-of-document tokens included.
        tokenizer_backend: name of the library that packed.
    """

    num_lines: int
    num_index_entries: int
    num_documents: int
    num_tokens: int
    tokenizer_backend: str


def verify_tokenization_consistency(
    src_path: Path,
    eod_token: str,
    eod_token_id: int,
    tokenizer: Tokenize,
    tokenizer_config: Mapping[str, Any],
    jsonl_text_key: str,
) -> ConsistencyReport:
    """Index and pack a raw file and compare the result with the file and the tokenizer.

    Args:
        src_path: a JSON-lines file; lines end with LF or CRLF.
        eod_token: the end-of-document token.
        eod_token_id: its id.
        tokenizer: gives the ids of a text, without the end-of-document token.
        tokenizer_config: the same tokenizer as a component node, as a packing config has it.
        jsonl_text_key: the key of the text in each line.

    Raises:
        DatasetNotFoundError: there is no such file.
        DatasetFormatError: counts, lines or ids differ; or a line cannot be packed.
    """
    if not src_path.is_file():
        raise DatasetNotFoundError(f"{src_path} does not exist or is not a file.")
    with tempfile.TemporaryDirectory() as folder:
        index_path, pack_path = Path(folder) / "x.idx", Path(folder) / "x.pbin"
        build_raw_index(src_path, index_path)
        settings = TokenizedPackSettings(
            src_path=src_path,
            dst_path=pack_path,
            index_path=index_path,
            jq_pattern=f".{jsonl_text_key}" if jsonl_text_key.isidentifier() else f".[{json.dumps(jsonl_text_key)}]",
            eod_token=eod_token,
        )
        manifest = build_tokenized_pack(settings, build_tokenizer(tokenizer_config))
        backend = str(manifest.details["tokenizer_backend"]) if manifest is not None else "unknown"
        return compare_with_source(src_path, index_path, pack_path, tokenizer, eod_token_id, jsonl_text_key, backend)


def compare_with_source(
    src_path: Path,
    index_path: Path,
    pack_path: Path,
    tokenizer: Tokenize,
    eod_token_id: int,
    jsonl_text_key: str,
    tokenizer_backend: str = "unknown",
) -> ConsistencyReport:
    """Compare an index and a pack of a raw file with the file, read in the plainest way.

    Raises:
        DatasetFormatError: counts, lines or ids differ.
    """
    with LargeFileLinesReader(src_path, index_path, encoding=None) as reader, PackedFile(pack_path) as pack:
        num_lines = sum(1 for _ in _lines(src_path))
        if not num_lines == len(reader) == pack.num_documents:
            raise DatasetFormatError(
                f"{src_path} has {num_lines} lines that are not blank, its index {len(reader)} entries, its pack "
                f"{pack.num_documents} documents."
            )
        for position, (number, line) in enumerate(_lines(src_path)):
            place = f"{src_path}, line {number}"
            if reader[position] != line:
                raise DatasetFormatError(f"{place}: the index points to {reader[position]!r} instead of {line!r}.")
            expected = list(tokenizer(json.loads(line)[jsonl_text_key]))
            if expected[-1:] != [eod_token_id]:
                expected.append(eod_token_id)
            _compare_ids(place, pack.document(position).tolist(), expected)
        return ConsistencyReport(num_lines, len(reader), pack.num_documents, pack.num_tokens, tokenizer_backend)


def build_hf_tokenization_components(
    tokenizer_path_or_name: str | Path, eod_token: str
) -> tuple[Tokenize, dict[str, Any], int]:
    """A Hugging Face tokenizer as a function of a text, as a component node, and its end-of-document token's id.

    Raises:
        DatasetNotFoundError: nothing can be loaded from there.
        UserError: the end-of-document token is not in the vocabulary.
    """
    config = {
        "pretrained_model_name_or_path": str(tokenizer_path_or_name),
        "padding": False,
        "truncation": False,
        "max_length": _UNLIMITED_LENGTH_IN_TOKENS,
    }
    return _components("pretrained_hf_tokenizer", config, eod_token)


def build_sp_tokenization_components(
    tokenizer_path: str | Path, eod_token: str
) -> tuple[Tokenize, dict[str, Any], int]:
    """A SentencePiece tokenizer as a function of a text, as a component node, and its end-of-document token's id.

    Raises:
        DatasetNotFoundError: there is no such file.
        UserError: it is no model, or the end-of-document token is not in the vocabulary.
    """
    return _components("pretrained_sp_tokenizer", {"tokenizer_model_file": str(tokenizer_path)}, eod_token)


def _components(variant_key: str, config: dict[str, Any], eod_token: str) -> tuple[Tokenize, dict[str, Any], int]:
    node = {"component_key": "tokenizer", "variant_key": variant_key, "config": config}
    tokenizer: TokenizerWrapper = build_tokenizer(node)
    return tokenizer.tokenize, node, tokenizer_details(tokenizer, eod_token)["eod_token_id"]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, bytes without the LF) of each line that is not blank; lines end at LF alone."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line.removesuffix(b"\n")


def _compare_ids(place: str, found: list[int], expected: list[int]) -> None:
    if found == expected:
        return
    same = next(
        (at for at, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]),
        min(len(found), len(expected)),
    )
    raise DatasetFormatError(
        f"{place}: the pack has {len(found)} ids, the tokenizer gives {len(expected)} with the end-of-document token; "
        f"they differ from id {same} on ({found[same : same + 5]} instead of {expected[same : same + 5]})."
    )
