"""The stages that `kill_campaign` kills, and inputs for them; what the killed processes import."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.filtered_pbin import build_filtered_pbin
from modalities_pipeline.data.merged_pbin import build_merged_pbin
from modalities_pipeline.data.pbin import PackedFileWriter
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.shuffled_chunks import build_shuffled_chunk
from modalities_pipeline.data.shuffled_jsonl import build_shuffled_jsonl
from modalities_pipeline.data.shuffled_jsonl_chunks import build_shuffled_jsonl_chunk
from modalities_pipeline.data.shuffled_pbin import build_shuffled_pbin
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack

_TOKENIZER_DIR = Path(__file__).parents[1] / "tokenization" / "vectors" / "tiny_wordlevel"
_WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog")
_OVERRIDE = FileExistencePolicy.OVERRIDE


@dataclasses.dataclass(frozen=True)
class Stage:
    """How a stage is run on two inputs of the same kind, replacing its output."""

    input_suffix: str
    output_name: str
    build: Callable[[Sequence[Path], Path], None]


def _index(inputs: Sequence[Path], output_path: Path) -> None:
    build_raw_index(inputs[0], output_path, _OVERRIDE)


def _pack(inputs: Sequence[Path], output_path: Path) -> None:
    from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer

    settings = TokenizedPackSettings(src_path=inputs[0], dst_path=output_path, jq_pattern=".text", eod_token="<eod>")
    build_tokenized_pack(settings, PreTrainedHFTokenizer(str(_TOKENIZER_DIR)), _OVERRIDE)


def _chunk(inputs: Sequence[Path], output_path: Path) -> None:
    build_shuffled_chunk(inputs, output_path, 0, 1, _OVERRIDE, global_seed=1)


def _merge(inputs: Sequence[Path], output_path: Path) -> None:
    build_merged_pbin(inputs, output_path, _OVERRIDE)


def _shuffle(inputs: Sequence[Path], output_path: Path) -> None:
    build_shuffled_pbin(inputs[0], output_path, file_existence_policy=_OVERRIDE, seed=1)


def _filter(inputs: Sequence[Path], output_path: Path) -> None:
    build_filtered_pbin(inputs[0], lambda position: position % 2 == 0, output_path, _OVERRIDE)


def _shuffle_lines(inputs: Sequence[Path], output_path: Path) -> None:
    build_shuffled_jsonl(inputs[0], output_path, _OVERRIDE, seed=1)


def _chunk_lines(inputs: Sequence[Path], output_path: Path) -> None:
    build_shuffled_jsonl_chunk(inputs, output_path, 0, 1, _OVERRIDE, global_seed=1)


STAGES = {
    "raw_index": Stage(".jsonl", "out.idx", _index),
    "tokenized_pack": Stage(".jsonl", "out.pbin", _pack),
    "shuffled_chunks": Stage(".pbin", "out.pbin", _chunk),
    "merged_pbin": Stage(".pbin", "out.pbin", _merge),
    "shuffled_pbin": Stage(".pbin", "out.pbin", _shuffle),
    "filtered_pbin": Stage(".pbin", "out.pbin", _filter),
    "shuffled_jsonl": Stage(".jsonl", "out.jsonl", _shuffle_lines),
    "shuffled_jsonl_chunks": Stage(".jsonl", "out.jsonl", _chunk_lines),
}


def run_stage(stage: Stage, inputs: Sequence[Path], output_path: Path, started: Connection) -> None:
    """Run a stage after sending a message."""
    started.send_bytes(b"started")
    stage.build(inputs, output_path)


def write_input(path: Path, num_documents: int, seed: int) -> None:
    """A file of documents of random lengths; a JSON-lines file gets an index too."""
    generator = random.Random(seed)
    texts = (" ".join(generator.choices(_WORDS, k=generator.randrange(1, 20))) for _ in range(num_documents))
    if path.suffix == ".jsonl":
        path.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
        build_raw_index(path, file_existence_policy=_OVERRIDE)
        return
    with PackedFileWriter(path, 2) as writer:
        for text in texts:
            writer.write_document(np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64))
