"""Section `settings` of a packing config. Imports nothing that packs."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FilePath, field_validator

HOW_TO_INDEX = "`modalities-pipeline data create_raw_index` makes it"  # how the index of a raw file comes about
_PositiveInt = Annotated[int, Field(strict=True, ge=1)]


class TokenizedPackSettings(BaseModel):
    """Section `settings` of a packing config.

    Those of Modalities' configs, and two more: `on_bad_sample` and `tokenizer_backend`. The last five never change the
    output.

    Attributes:
        src_path: the raw file.
        dst_path: the `.pbin` file.
        index_path: the raw file's index; default: beside it, with suffix `.idx`.
        jq_pattern: where the text of a line is, for example `.text`.
        eod_token: the end-of-document token.
        on_bad_sample: "error" stops at a document without text; "skip" leaves it out and counts it.
        tokenizer_backend: "auto" takes a fast backend where it proves to give the same ids; "reference" never does.
        num_cpus: threads that may work at once. Threads, since the tokenizers' libraries let go of Python's lock:
            they were measured to be as fast as processes, start at once, and cannot die alone.
        processing_batch_size: documents that are tokenized at once, at most; a batch is also bounded in bytes.
        raw_samples_queue_size: accepted and not needed: batches in flight are as many as threads, plus two.
        processed_samples_queue_size: likewise.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    src_path: Path
    dst_path: Path
    index_path: Path | None = None
    jq_pattern: str
    eod_token: str
    on_bad_sample: Literal["error", "skip"] = "error"
    tokenizer_backend: Literal["auto", "reference"] = "auto"
    num_cpus: _PositiveInt = Field(default_factory=lambda: os.cpu_count() or 1)
    processing_batch_size: _PositiveInt = 10_000
    raw_samples_queue_size: _PositiveInt = 300
    processed_samples_queue_size: _PositiveInt = 300


class PackConfigSettings(TokenizedPackSettings):
    """Section `settings` of a packing config of Modalities: its files must exist, and its batch size is not optional.

    Where settings are made by a program, `TokenizedPackSettings` leaves these faults to the errors of the stage.
    """

    src_path: FilePath
    index_path: Path | None = None
    processing_batch_size: _PositiveInt

    @field_validator("index_path")
    @classmethod
    def _index_exists(cls, index_path: Path | None) -> Path | None:
        if index_path is not None and not index_path.is_file():
            raise ValueError(f"{index_path} does not exist or is not a file; {HOW_TO_INDEX}")
        return index_path

    @field_validator("jq_pattern")
    @classmethod
    def _jq_pattern_compiles(cls, jq_pattern: str) -> str:
        from modalities_pipeline.data.packing.text_extraction import TextExtractor  # jq is only needed here

        TextExtractor(jq_pattern)
        return jq_pattern
