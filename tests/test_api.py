"""The public functions of Modalities that concern data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from modalities_pipeline import api
from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter
from modalities_pipeline.exceptions import ConfigError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An indexed raw file of three documents."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "hello world"}\n{"text": "the cat"}\n{"text": "a b"}\n')
    assert api.create_raw_data_index(path, None) is None
    return path


@pytest.fixture
def config(source: Path, tiny_wordlevel_dir: Path) -> dict[str, Any]:
    """A packing config as Modalities' users have them."""
    return {
        "settings": {
            "src_path": str(source),
            "index_path": str(source.with_suffix(".idx")),
            "dst_path": str(source.with_suffix(".pbin")),
            "jq_pattern": ".text",
            "eod_token": "<eod>",
            "num_cpus": 1,
            "processing_batch_size": 5,
            "raw_samples_queue_size": 300,
            "processed_samples_queue_size": 300,
        },
        "tokenizer": {
            "component_key": "tokenizer",
            "variant_key": "pretrained_hf_tokenizer",
            "config": {"pretrained_model_name_or_path": str(tiny_wordlevel_dir)},
        },
    }


def _documents(path: Path) -> list[list[int]]:
    with PackedFile(path) as file:
        return [file.document(position).tolist() for position in range(file.num_documents)]


def test_raw_text_becomes_one_packed_file_by_the_names_of_modalities(
    tmp_path: Path, source: Path, config: dict[str, Any]
) -> None:
    override = api.FileExistencePolicy("override")
    assert api.pack_encoded_data(config, api.FileExistencePolicy.ERROR) is None
    packed = source.with_suffix(".pbin")
    assert _documents(packed) == [[5, 6, 1], [7, 8, 1], [16, 17, 1]]
    chunks = [tmp_path / f"chunk_{chunk_id}.pbin" for chunk_id in range(2)]
    for chunk_id, chunk in enumerate(chunks):
        api.create_shuffled_dataset_chunk([packed], chunk, chunk_id, 2, override, global_seed=1)
    assert api.merge_packed_data_files(chunks, tmp_path / "merged.pbin") is None
    assert sorted(_documents(tmp_path / "merged.pbin")) == sorted(_documents(packed))
    with pytest.raises(FileExistsError):
        api.merge_packed_data_files(chunks, tmp_path / "merged.pbin")


@pytest.mark.parametrize("section", ["settings", "tokenizer"])
def test_a_missing_section_is_named(config: dict[str, Any], section: str) -> None:
    del config[section]
    with pytest.raises(KeyError) as caught:
        api.pack_encoded_data(config, api.FileExistencePolicy.ERROR)
    assert isinstance(caught.value, ConfigError)
    assert str(caught.value).startswith(f"The packing config has no section '{section}'")


def test_other_sections_are_allowed_and_wrong_ones_refused(config: dict[str, Any]) -> None:
    """B077."""
    policy = api.FileExistencePolicy.OVERRIDE
    api.pack_encoded_data({**config, "other": 1}, policy)
    with pytest.raises(ValueError, match="colour"):
        api.pack_encoded_data({**config, "settings": {**config["settings"], "colour": 1}}, policy)
    without_target = {key: value for key, value in config["settings"].items() if key != "dst_path"}
    with pytest.raises(ValidationError, match="dst_path"):
        api.pack_encoded_data({**config, "settings": without_target}, policy)
    tokenizer = config["tokenizer"]
    for wrong in (
        {**tokenizer, "variant_key": "pretrained_hf_tokeniser"},
        {**tokenizer, "config": {**tokenizer["config"], "max_len": 1}},
    ):
        with pytest.raises(ValueError, match=r"pretrained_hf_tokenizer|max_length"):
            api.pack_encoded_data({**config, "tokenizer": wrong}, policy)


def test_a_failed_override_leaves_the_old_file(config: dict[str, Any], source: Path) -> None:
    api.pack_encoded_data(config, api.FileExistencePolicy.ERROR)
    old = source.with_suffix(".pbin").read_bytes()
    config["settings"]["jq_pattern"] = ".body"
    with pytest.raises(ValueError, match=r"finds nothing \(keys found: text\)"):
        api.pack_encoded_data(config, api.FileExistencePolicy.OVERRIDE)
    assert source.with_suffix(".pbin").read_bytes() == old


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda source, target: api.create_shuffled_dataset_chunk([source], target, 0, 1, api.FileExistencePolicy.ERROR),
        lambda source, target: api.merge_packed_data_files([source], target),
    ],
)
def test_the_token_size_is_carried_over_and_never_guessed_from_the_ids(
    tmp_path: Path, rewrite: Callable[[Path, Path], None]
) -> None:
    """B014."""
    with PackedFileWriter(tmp_path / "x.pbin", 4) as writer:
        writer.write_document([1, 2])
    rewrite(tmp_path / "x.pbin", tmp_path / "y.pbin")
    with PackedFile(tmp_path / "y.pbin") as file:
        assert file.token_size_in_bytes == 4
