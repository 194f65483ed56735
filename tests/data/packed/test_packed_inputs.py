"""What several packed files must agree in, and opening thousands of them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.filtered_pbin import build_filtered_pbin
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, record
from modalities_pipeline.data.merged_pbin import build_merged_pbin
from modalities_pipeline.data.packed.packed_inputs import open_packed_files, packed_details
from modalities_pipeline.data.repaired_pbin import build_repaired_pbin
from modalities_pipeline.data.shuffled_chunks import build_shuffled_chunk
from modalities_pipeline.data.shuffled_pbin import build_shuffled_pbin
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, UserError


def test_files_of_different_token_sizes_and_no_files_are_refused(write_pbin: Callable[..., Path]) -> None:
    """B026."""
    paths = [write_pbin("a.pbin", [[1]], 2), write_pbin("b.pbin", [[1]], 4)]
    with pytest.raises(UserError, match=r"a\.pbin has 2 bytes per token, .*b\.pbin has 4"):
        open_packed_files(paths)
    with pytest.raises(UserError, match="There are no"):
        open_packed_files([])
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        open_packed_files([paths[0], paths[0].with_name("nowhere.pbin")])


def test_details_of_files_of_unknown_origin_are_their_token_size(write_pbin: Callable[..., Path]) -> None:
    assert packed_details(open_packed_files([write_pbin("a.pbin", [[1]], 4)])) == {"token_size_in_bytes": 4}


def test_there_may_be_more_files_than_a_process_may_have_open(tmp_path: Path, write_pbin: Callable[..., Path]) -> None:
    paths = []
    content = write_pbin("a.pbin", [[1], [2]]).read_bytes()
    for number in range(400):
        paths.append(tmp_path / f"{number}.pbin")
        paths[-1].write_bytes(content)
    code = """
import resource, sys
from pathlib import Path
from modalities_pipeline.data.merged_pbin import build_merged_pbin
from modalities_pipeline.data.shuffled_chunks import build_shuffled_chunk

folder = Path(sys.argv[1])
inputs = [folder / f"{number}.pbin" for number in range(400)]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
assert build_merged_pbin(inputs, folder / "merged.pbin").counts["num_documents"] == 800
assert build_shuffled_chunk(inputs, folder / "chunk.pbin", 1, 2).counts["num_documents"] == 400
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)


def _packed(path: Path) -> dict[str, object]:
    """Give a pack a manifest that names its tokenizer; returns what every later stage must hand on."""
    details: dict[str, object] = {
        "tokenizer_fingerprint": "xxh128:one",
        "vocab_size": 100,
        "num_token_ids": 101,
        "eod_token": "<eod>",
        "eod_token_id": 0,
        "token_size_in_bytes": 2,
    }
    record(StageIdentity("tokenized_pack", "1", {}, {}), path, BuildResult({}, {**details, "skipped": []}), 0.0)
    return details


@pytest.mark.parametrize(
    "stage",
    [
        lambda source, output: build_shuffled_pbin(source, output, seed=1),
        lambda source, output: build_shuffled_chunk([source], output, 0, 1, global_seed=1),
        lambda source, output: build_merged_pbin([source], output),
        lambda source, output: build_filtered_pbin(source, lambda _: True, output),
    ],
    ids=["shuffled_pbin", "shuffled_chunks", "merged_pbin", "filtered_pbin"],
)
def test_what_is_known_of_the_tokenizer_is_handed_on_by_every_stage(
    tmp_path: Path, write_pbin: Callable[..., Path], stage: Callable[[Path, Path], Manifest]
) -> None:
    """B022, and part of the identity: another end-of-document token gives another fingerprint."""
    source = write_pbin("a.pbin", [[1], [2]])
    unknown = stage(source, tmp_path / "x.pbin")
    details = _packed(source)
    known = stage(source, tmp_path / "y.pbin")
    assert {name: known.details[name] for name in details} == details
    assert known.fingerprint != unknown.fingerprint
    assert known.digest == unknown.digest


def test_what_is_known_of_the_tokenizer_is_handed_on_by_repair(tmp_path: Path, vectors: Path) -> None:
    """B022."""
    source = tmp_path / "a.pbin"
    source.write_bytes((vectors / "merged_upstream.pbin").read_bytes())
    details = _packed(source)
    manifest = build_repaired_pbin(source, tmp_path / "x.pbin")
    assert manifest is not None
    assert manifest.details == details


@pytest.mark.parametrize(
    ("name", "value"), [("tokenizer_fingerprint", 5), ("vocab_size", "x"), ("eod_token", None), ("eod_token_id", {})]
)
def test_a_record_that_was_changed_is_told_and_no_fault_of_the_program(
    tmp_path: Path, write_pbin: Callable[..., Path], name: str, value: object
) -> None:
    details: dict[str, object] = {**_packed(write_pbin("a.pbin", [[1]])), name: value}
    record(StageIdentity("x", "1", {}, {}), tmp_path / "a.pbin", BuildResult({}, details), 0.0)
    with pytest.raises(DatasetFormatError, match=rf"a\.pbin\.manifest\.json: {name} is .*changed"):
        build_merged_pbin([tmp_path / "a.pbin"], tmp_path / "x.pbin")


@pytest.mark.parametrize("content", ['{"details": 5}', "[]", "5", "{", "\udc80"])
def test_a_record_that_cannot_be_read_has_no_say(tmp_path: Path, write_pbin: Callable[..., Path], content: str) -> None:
    source = write_pbin("a.pbin", [[1]])
    (tmp_path / "a.pbin.manifest.json").write_bytes(content.encode(errors="surrogateescape"))
    assert packed_details(open_packed_files([source])) == {"token_size_in_bytes": 2}
