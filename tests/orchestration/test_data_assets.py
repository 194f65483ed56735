"""What the data assets do again after a change, and what they do not; and what they say of bad input."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from modalities_pipeline.data.manifest import read_manifest
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.orchestration.graph import build_definitions
from modalities_pipeline.orchestration.spec import load_pipeline_spec

STAGES = ["raw_index", "tokenized_pack", "shuffled_chunks", "merged_pbin"]

SPEC = """\
output_dir: outputs
corpora:
  train: {files: ["data/*.jsonl"], num_chunks: 2, on_bad_sample: ON_BAD_SAMPLE, seed: SEED}
tokenizer:
  train: {corpus: train, vocab_size: VOCAB_SIZE}
  eod_token: EOD_TOKEN
"""


class Corpus:
    """A folder with a spec and two raw files; materializes everything and tells how often each asset built."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = folder / "outputs" / "train"
        self.vocab_size = 300
        self.on_bad_sample = "error"
        self.eod_token = "<eod>"
        self.seed = "42"
        self.instance = dg.DagsterInstance.ephemeral()
        (folder / "data").mkdir()
        for name in ("one", "two"):
            self.append(name, *(f"Document {number} of file {name}, which is a little text." for number in range(20)))

    def append(self, name: str, *texts: str) -> None:
        with self.file(name).open("a") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)

    def file(self, name: str) -> Path:
        return self.folder / "data" / f"{name}.jsonl"

    def materialize(self, *assets: str) -> dg.ExecuteInProcessResult:
        path = self.folder / "pipeline.yaml"
        text = SPEC.replace("VOCAB_SIZE", str(self.vocab_size)).replace("ON_BAD_SAMPLE", self.on_bad_sample)
        path.write_text(text.replace("EOD_TOKEN", self.eod_token).replace("SEED", self.seed))
        job = build_definitions(load_pipeline_spec(path)).resolve_implicit_global_asset_job_def()
        selection = [dg.AssetKey(["train", asset]) for asset in assets] or None
        return job.execute_in_process(instance=self.instance, raise_on_error=False, asset_selection=selection)

    def misses(self) -> dict[str, int]:
        """Materialize all; the number of outputs that each asset built."""
        result = self.materialize()
        assert result.success
        built = {}
        for event in result.get_asset_materialization_events():
            metadata = event.step_materialization_data.materialization.metadata
            if "cache_misses" in metadata:
                built[event.asset_key.path[-1]] = metadata["cache_misses"].value
        return built


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path)


def test_everything_is_built_once(corpus: Corpus) -> None:
    assert corpus.misses() == {"tokenizer": 1, **dict(zip(STAGES, (2, 2, 2, 1), strict=True))}
    assert set(corpus.misses().values()) == {0}


def test_touching_a_file_does_nothing(corpus: Corpus) -> None:
    corpus.misses()
    corpus.file("one").touch()
    assert set(corpus.misses().values()) == {0}


def test_a_changed_tokenizer_rebuilds_the_pack_and_what_follows_and_nothing_else(corpus: Corpus) -> None:
    corpus.misses()
    corpus.vocab_size = 280
    assert corpus.misses() == {"tokenizer": 1, **dict(zip(STAGES, (0, 2, 2, 1), strict=True))}


def test_a_renamed_end_token_reaches_the_merged_manifest_although_no_token_changes(corpus: Corpus) -> None:
    corpus.misses()
    merged_path = corpus.outputs / "merged_pbin" / "merged.pbin"
    before = merged_path.read_bytes()
    corpus.eod_token = "<end>"
    assert corpus.misses() == {"tokenizer": 1, **dict(zip(STAGES, (0, 2, 2, 1), strict=True))}
    merged = read_manifest(merged_path)
    assert merged is not None
    assert merged.details["eod_token"] == "<end>"
    assert merged_path.read_bytes() == before


def test_without_a_seed_the_documents_keep_their_order(corpus: Corpus) -> None:
    corpus.seed = "null"
    corpus.misses()
    documents = []
    for name in ("one", "two"):
        with PackedFile(corpus.outputs / "tokenized_pack" / f"{name}.pbin") as pack:
            documents += [pack.document(position).tolist() for position in range(pack.num_documents)]
    with PackedFile(corpus.outputs / "merged_pbin" / "merged.pbin") as merged:
        assert [merged.document(position).tolist() for position in range(merged.num_documents)] == documents


@pytest.mark.parametrize(
    ("output", "made_by", "consumer"),
    [
        ("raw_index/two.idx", "train/raw_index", "tokenized_pack"),
        ("../tokenizer", "tokenizer", "tokenized_pack"),
        ("tokenized_pack/two.pbin", "train/tokenized_pack", "shuffled_chunks"),
        ("shuffled_chunks/chunk_1.pbin", "train/shuffled_chunks", "merged_pbin"),
    ],
)
def test_a_damaged_or_missing_input_is_refused_with_the_asset_that_makes_it(
    corpus: Corpus, output: str, made_by: str, consumer: str
) -> None:
    corpus.misses()
    path = corpus.outputs / output
    file = path / "tokenizer.json" if path.is_dir() else path
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert f"is damaged: its bytes differ from its manifest; materialize {made_by} again" in failure_of(
        corpus, consumer
    )
    file.unlink()
    if path != file:
        (path / "tokenizer_config.json").unlink()
        path.rmdir()
    assert f"does not exist. Materialize {made_by} first." in failure_of(corpus, consumer)


def test_a_file_changed_since_it_was_listed_does_not_poison_the_index(corpus: Corpus) -> None:
    corpus.misses()
    corpus.append("one", "One document more.")
    (corpus.outputs / "raw_index" / "one.idx").unlink()
    assert "changed since raw_files listed it; materialize raw_files again" in failure_of(corpus, "raw_index")
    assert not (corpus.outputs / "raw_index" / "one.idx").exists()


def failure_of(corpus: Corpus, asset: str) -> str:
    """Materialize one asset alone; the message that it fails with."""
    failure = corpus.materialize(asset).failure_data_for_node(f"train__{asset}")
    assert failure is not None
    assert failure.user_failure_data is not None
    return str(failure.user_failure_data.description)


def test_a_file_that_grew_is_indexed_alone(corpus: Corpus) -> None:
    corpus.misses()
    corpus.append("one", "One document more.")
    misses = corpus.misses()
    assert misses["raw_index"] == 1
    assert misses["merged_pbin"] == 1


def test_a_deleted_chunk_is_built_again_and_nothing_after_it(corpus: Corpus) -> None:
    corpus.misses()
    (corpus.outputs / "shuffled_chunks" / "chunk_1.pbin").unlink()
    assert corpus.misses() == {"tokenizer": 0, **dict(zip(STAGES, (0, 0, 1, 0), strict=True))}


def test_outputs_of_a_removed_file_are_not_used_any_more(corpus: Corpus) -> None:
    corpus.misses()
    corpus.file("two").unlink()
    corpus.misses()
    assert (corpus.outputs / "tokenized_pack" / "two.pbin").exists()
    with PackedFile(corpus.outputs / "merged_pbin" / "merged.pbin") as merged:
        assert merged.num_documents == 20


def test_the_cache_needs_no_dagster_history(corpus: Corpus) -> None:
    corpus.misses()
    corpus.instance = dg.DagsterInstance.ephemeral()
    assert set(corpus.misses().values()) == {0}


def test_no_document_is_lost_between_raw_files_and_the_merged_file(corpus: Corpus) -> None:
    corpus.misses()
    manifests = [read_manifest(corpus.outputs / "tokenized_pack" / f"{name}.pbin") for name in ("one", "two")]
    merged = read_manifest(corpus.outputs / "merged_pbin" / "merged.pbin")
    assert merged is not None
    assert (
        sum(manifest.counts["num_documents"] for manifest in manifests if manifest)
        == merged.counts["num_documents"]
        == 40
    )


def test_the_pack_shows_its_token_lengths_as_a_picture(corpus: Corpus) -> None:
    [event] = [
        event
        for event in corpus.materialize().get_asset_materialization_events()
        if event.asset_key.path[-1] == "tokenized_pack"
    ]
    metadata: dict[str, Any] = dict(event.step_materialization_data.materialization.metadata)
    assert metadata["token_lengths"].value.startswith("![Length of the documents](data:image/png;base64,")
    assert metadata["num_documents"].value == 40


def break_line(corpus: Corpus) -> None:
    with corpus.file("two").open("a") as file:
        file.write('{"text": \n')


def drop_key(corpus: Corpus) -> None:
    with corpus.file("two").open("a") as file:
        file.write('{"words": "no text here"}\n')


def remove_files(corpus: Corpus) -> None:
    for path in corpus.folder.glob("data/*"):
        path.unlink()


def empty_file(corpus: Corpus) -> None:
    corpus.file("two").write_text("")


@pytest.mark.parametrize(
    ("harm", "asset", "words"),
    [
        (break_line, "train__raw_index", ["two.jsonl", "line 21"]),
        (drop_key, "train__tokenized_pack", ["two.jsonl", "line 21", "words"]),
        (remove_files, "train__raw_files", ["data/*.jsonl"]),
        (empty_file, "train__raw_index", ["two.jsonl", "empty"]),
    ],
)
def test_bad_input_fails_its_asset_with_one_message_and_keeps_what_was_there(
    corpus: Corpus, harm: Callable[[Corpus], None], asset: str, words: list[str]
) -> None:
    corpus.misses()
    merged = (corpus.outputs / "merged_pbin" / "merged.pbin").read_bytes()
    harm(corpus)
    result = corpus.materialize()
    assert not result.success
    failure = result.failure_data_for_node(asset)
    assert failure is not None
    assert failure.user_failure_data is not None
    message = str(failure.user_failure_data.description)
    assert all(word in message for word in words), message
    assert (corpus.outputs / "merged_pbin" / "merged.pbin").read_bytes() == merged


def test_bad_lines_are_skipped_and_counted_if_the_spec_says_so(corpus: Corpus) -> None:
    break_line(corpus)
    corpus.on_bad_sample = "skip"
    corpus.misses()
    index = read_manifest(corpus.outputs / "raw_index" / "two.idx")
    merged = read_manifest(corpus.outputs / "merged_pbin" / "merged.pbin")
    assert index is not None
    assert merged is not None
    assert index.counts["num_faulty_lines"] == 1
    assert merged.counts["num_documents"] == 40
