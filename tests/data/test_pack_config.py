"""Packing configs: which are taken and which are refused."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from modalities_pipeline import api
from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack
from modalities_pipeline.exceptions import ConfigError, DatasetNotFoundError, UserError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

Config = dict[str, Any]
Pack = Callable[..., Manifest]

CHANGES: Mapping[str, Callable[[Config, Path], Any]] = {
    "as given": lambda config, _: None,
    "num_cpus absent": lambda config, _: config["settings"].pop("num_cpus"),
    "index_path absent (default next to source is missing)": lambda config, _: config["settings"].pop("index_path"),
    "dst_path absent": lambda config, _: config["settings"].pop("dst_path"),
    "jq_pattern absent": lambda config, _: config["settings"].pop("jq_pattern"),
    "eod_token absent": lambda config, _: config["settings"].pop("eod_token"),
    "processing_batch_size absent": lambda config, _: config["settings"].pop("processing_batch_size"),
    "num_cpus 0": lambda config, _: config["settings"].update(num_cpus=0),
    "num_cpus '2'": lambda config, _: config["settings"].update(num_cpus="2"),
    "raw_samples_queue_size 0": lambda config, _: config["settings"].update(raw_samples_queue_size=0),
    "unknown key in settings": lambda config, _: config["settings"].update(num_cpu=2),
    "src_path missing file": lambda config, folder: config["settings"].update(src_path=str(folder / "nowhere")),
    "index_path missing file": lambda config, folder: config["settings"].update(index_path=str(folder / "nowhere")),
    "jq syntax error": lambda config, _: config["settings"].update(jq_pattern=".text |"),
    "unknown key in tokenizer config": lambda config, _: config["tokenizer"]["config"].update(pad=True),
    "unknown tokenizer variant": lambda config, _: config["tokenizer"].update(variant_key="nothing"),
    "no tokenizer section": lambda config, _: config.pop("tokenizer"),
    "no settings section": lambda config, _: config.pop("settings"),
    "extra top-level section": lambda config, _: config.update(extra={"a": 1}),
}
# Modalities ignores the one silently and fails on the other only after the work has begun.
INTENDED = {"dst_path absent": ValidationError, "unknown key in settings": ValidationError}
TYPES = {
    "ValidationError": ValidationError,
    "ValueError": ValueError,
    "KeyError": KeyError,
    "FileNotFoundError": FileNotFoundError,
}


@pytest.fixture
def config(vectors: Path, tmp_path: Path, tiny_wordlevel_dir: Path) -> Config:
    source = tmp_path / "source" / "five.jsonl"
    source.parent.mkdir()
    source.write_bytes((vectors / "five.jsonl").read_bytes())
    build_raw_index(source, tmp_path / "elsewhere.idx")
    return {
        "settings": {
            "src_path": str(source),
            "index_path": str(tmp_path / "elsewhere.idx"),
            "dst_path": str(tmp_path / "x.pbin"),
            "jq_pattern": ".text",
            "eod_token": "<eod>",
            "num_cpus": 2,
            "processing_batch_size": 3,
            "raw_samples_queue_size": 4,
            "processed_samples_queue_size": 5,
        },
        "tokenizer": {
            "component_key": "tokenizer",
            "variant_key": "pretrained_hf_tokenizer",
            "config": {"pretrained_model_name_or_path": str(tiny_wordlevel_dir)},
        },
    }


def test_every_change_of_the_vector_is_tried(expected: dict[str, Any]) -> None:
    assert [change for change, _ in expected["pack_config"]["expect"]["table"]] == list(CHANGES)


@pytest.mark.parametrize("change", CHANGES)
def test_configs_are_taken_and_refused_as_by_modalities(
    change: str, config: Config, expected: dict[str, Any], tmp_path: Path
) -> None:
    """B077."""
    outcome = dict(expected["pack_config"]["expect"]["table"])[change]
    error = INTENDED.get(change) or TYPES.get(outcome)
    CHANGES[change](config, tmp_path)
    if error is None:
        api.pack_encoded_data(config, api.FileExistencePolicy.ERROR)
        assert (tmp_path / "x.pbin").exists()
        return
    with pytest.raises(error) as caught:
        api.pack_encoded_data(config, api.FileExistencePolicy.ERROR)
    assert isinstance(caught.value, ValidationError | UserError)
    assert not (tmp_path / "x.pbin").exists()


@pytest.mark.parametrize("tokenizer", [5, None, [1], "x", {}, {"variant_key": "pretrained_hf_tokenizer"}])
def test_a_tokenizer_that_is_no_component_is_a_config_error(config: Config, tokenizer: Any) -> None:
    """B077."""
    with pytest.raises(ConfigError, match="tokenizer: has to be a component"):
        api.pack_encoded_data({**config, "tokenizer": tokenizer}, api.FileExistencePolicy.ERROR)


def test_a_missing_index_in_a_config_is_told_with_how_to_make_it(config: Config, tmp_path: Path) -> None:
    config["settings"]["index_path"] = str(tmp_path / "nowhere.idx")
    with pytest.raises(ValidationError, match=r"nowhere\.idx does not exist.*data create_raw_index"):
        api.pack_encoded_data(config, api.FileExistencePolicy.ERROR)


def test_a_missing_index_is_named(
    vectors: Path, tmp_path: Path, write_lines: Callable[..., Path], utf8_tokenizer: TokenizerWrapper
) -> None:
    settings = TokenizedPackSettings(
        src_path=write_lines("a.jsonl", ["1"]), dst_path=tmp_path / "x.pbin", jq_pattern=".", eod_token="\n"
    )
    with pytest.raises(DatasetNotFoundError, match=r"a\.idx.*Create the raw index.*data create_raw_index"):
        build_tokenized_pack(settings, utf8_tokenizer)


def test_the_source_is_never_overwritten(
    pack: Pack, tmp_path: Path, vectors: Path, write_lines: Callable[..., Path], utf8_tokenizer: TokenizerWrapper
) -> None:
    """B008."""
    source = write_lines("a.jsonl", ['{"text": "a"}'])
    with pytest.raises(UserError, match="also an input"):
        pack(source, utf8_tokenizer, dst_path=tmp_path / ".." / tmp_path.name / "a.jsonl")


def test_a_wrong_jq_pattern_is_a_config_error(pack: Pack, vectors: Path, utf8_tokenizer: TokenizerWrapper) -> None:
    with pytest.raises(ConfigError, match="jq_pattern"):
        pack(vectors / "five.jsonl", utf8_tokenizer, jq_pattern=".text |")


@pytest.mark.parametrize(
    ("change", "location"),
    [
        ({"num_cpu": 2}, "num_cpu"),
        ({"num_cpus": 0}, "num_cpus"),
        ({"num_cpus": "2"}, "num_cpus"),
        ({"num_cpus": True}, "num_cpus"),
        ({"raw_samples_queue_size": 0}, "raw_samples_queue_size"),
        ({"jq_pattern": None}, "jq_pattern"),
        ({"dst_path": None}, "dst_path"),
        ({"on_bad_sample": "ignore"}, "on_bad_sample"),
    ],
)
def test_wrong_settings_are_refused(vectors: Path, change: dict[str, Any], location: str) -> None:
    """B077."""
    valid = {"src_path": vectors / "five.jsonl", "dst_path": "x.pbin", "jq_pattern": ".text", "eod_token": "\n"}
    TokenizedPackSettings.model_validate(valid)
    with pytest.raises(ValidationError) as caught:
        TokenizedPackSettings.model_validate({**valid, **change})
    assert [error["loc"] for error in caught.value.errors()] == [(location,)]


@pytest.mark.parametrize("key", ["src_path", "index_path"])
def test_a_missing_input_is_named(vectors: Path, tmp_path: Path, utf8_tokenizer: TokenizerWrapper, key: str) -> None:
    valid = {"src_path": vectors / "five.jsonl", "index_path": vectors / "five.idx"}
    settings = TokenizedPackSettings.model_validate(
        {**valid, "dst_path": tmp_path / "x.pbin", "jq_pattern": ".text", "eod_token": "\n", key: "nowhere"}
    )
    with pytest.raises(DatasetNotFoundError, match="nowhere does not exist"):
        build_tokenized_pack(settings, utf8_tokenizer)
