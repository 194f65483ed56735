"""Rendering: one pass over the source, and only complete files of lines that can be packed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.files import digest_file
from modalities_pipeline.data.instruction.instruction_config import load_plan
from modalities_pipeline.data.instruction.rendering import render_partitions
from modalities_pipeline.data.packing.text_extraction import TextExtractor
from modalities_pipeline.data.raw.raw_source import RawSource
from modalities_pipeline.exceptions import DatasetFormatError


def test_one_pass_writes_all_partitions(talks_folder: Path, write_talks_config: Callable[..., Path]) -> None:
    plan = load_plan(write_talks_config())
    source = RawSource(Path("talks.jsonl"))
    source_digest = digest_file(source.path)
    rendered = render_partitions(plan, source, talks_folder, None)
    assert source.known_digest == source_digest  # taken on the way, so the pass was whole
    assert list(rendered) == ["train", "test"]
    assert sum(part.num_documents for part in rendered.values()) == 12
    for part in rendered.values():
        assert part.path.read_bytes().count(b"\n") == part.num_documents
        assert part.result.output_digest == digest_file(part.path)


def test_a_source_that_grows_while_it_is_read_is_refused(
    talks_folder: Path, write_talks_config: Callable[..., Path]
) -> None:
    plan = load_plan(write_talks_config())
    source = RawSource(Path("talks.jsonl"))
    with open(source.path, "ab") as file:
        file.write(b"\n")
    with pytest.raises(DatasetFormatError, match="changed while it was read"):
        render_partitions(plan, source, talks_folder, None)


@pytest.mark.parametrize("jq_pattern", [".text", ".talk", '.chat | ""'])
def test_a_line_in_which_packing_would_find_no_text_is_refused(
    talks_folder: Path, write_talks_config: Callable[..., Path], jq_pattern: str
) -> None:
    plan = load_plan(write_talks_config())
    with pytest.raises(DatasetFormatError, match=r"talks\.jsonl, line 1: jq_pattern of pack\.yaml"):
        render_partitions(plan, RawSource(Path("talks.jsonl")), talks_folder, TextExtractor(jq_pattern))
