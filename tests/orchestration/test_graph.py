"""The graph of assets that a spec gives."""

from pathlib import Path

import dagster as dg
import pytest

from modalities_pipeline.orchestration.graph import build_definitions
from modalities_pipeline.orchestration.spec import load_pipeline_spec

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shipped() -> dg.Definitions:
    return build_definitions(load_pipeline_spec(REPOSITORY / "configs" / "pipeline.yaml"))


def ancestors(definitions: dg.Definitions, key: str) -> set[str]:
    graph = definitions.resolve_asset_graph()
    found = graph.get_ancestor_asset_keys(dg.AssetKey.from_user_string(key))
    return {ancestor.to_user_string() for ancestor in found}


def test_the_shipped_definitions_are_loadable(shipped: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(shipped)


def test_every_stage_is_an_asset_under_its_own_name(shipped: dg.Definitions) -> None:
    keys = {key.to_user_string() for key in shipped.resolve_asset_graph().get_all_asset_keys()}
    corpus_stages = {"raw_files", "raw_index", "tokenized_pack", "shuffled_chunks", "merged_pbin"}
    assert keys == {
        "raw_documents",
        "tokenizer",
        *(f"{corpus}/{stage}" for corpus in ("train", "validation") for stage in corpus_stages),
        *(f"tiny/{stage}" for stage in ("trained_checkpoint", "hf_model", "generated_text")),
    }


def test_generated_text_descends_from_all_other_assets(shipped: dg.Definitions) -> None:
    everything = shipped.resolve_asset_graph().get_all_asset_keys()
    assert ancestors(shipped, "tiny/generated_text") == {key.to_user_string() for key in everything} - {
        "tiny/generated_text"
    }


def test_every_asset_has_a_description_a_group_kinds_and_a_code_version(shipped: dg.Definitions) -> None:
    graph = shipped.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description, key
        assert node.group_name != "default", key
        assert node.kinds, key
        assert node.code_version, key


def test_the_data_job_trains_nothing(shipped: dg.Definitions) -> None:
    selected = shipped.resolve_job_def("data").asset_layer.executable_asset_keys
    assert {key.path[0] for key in selected} == {"raw_documents", "tokenizer", "train", "validation"}
    assert len(shipped.resolve_job_def("pipeline").asset_layer.executable_asset_keys) == len(selected) + 3


def test_a_setting_changes_the_code_version_of_its_stage_alone(tmp_path: Path) -> None:
    text = (REPOSITORY / "configs" / "pipeline.yaml").read_text()
    for name in ("train_tiny_cpu.yaml", "train_base.yaml"):
        (tmp_path / name).write_text((REPOSITORY / "configs" / name).read_text())

    def code_versions(text: str) -> dict[str, str | None]:
        (tmp_path / "pipeline.yaml").write_text(text)
        graph = build_definitions(load_pipeline_spec(tmp_path / "pipeline.yaml")).resolve_asset_graph()
        return {key.to_user_string(): graph.get(key).code_version for key in graph.get_all_asset_keys()}

    before = code_versions(text)
    for old, new, changed in (
        ("vocab_size: 2048", "vocab_size: 1024", {"tokenizer"}),
        ("    seed: 42  ", "    seed: 43  ", {"train/shuffled_chunks"}),
        ("temperature: 0.7", "temperature: 0.0", {"tiny/generated_text"}),
        ("overrides: {}", "overrides: {optimizer.config.lr: 0.1}", {"tiny/trained_checkpoint"}),
        ("# The whole pipeline", "# A pipeline", set()),
    ):
        assert old in text
        after = code_versions(text.replace(old, new))
        assert {key for key in before if before[key] != after[key]} == changed


def test_files_from_outside_appear_in_the_lineage(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "output_dir: out\ncorpora: {web: {files: [data/*.jsonl]}}\n"
        "tokenizer: {train: {corpus: web, vocab_size: 300}, eod_token: <eod>}\n"
    )
    definitions = build_definitions(load_pipeline_spec(tmp_path / "pipeline.yaml"))
    assert "web/raw_data" in ancestors(definitions, "web/merged_pbin")
    assert "raw_documents" not in {
        key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()
    }


def test_steps_run_in_processes_of_their_own(shipped: dg.Definitions) -> None:
    """The in-process executor turns a termination into a retry."""
    executor = shipped.executor
    assert isinstance(executor, dg.ExecutorDefinition)
    assert executor.name == "multiprocess"
