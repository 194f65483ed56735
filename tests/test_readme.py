"""What the README says is true: its commands, files, links and stages exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from modalities_pipeline.orchestration.graph import build_definitions
from modalities_pipeline.orchestration.spec import load_pipeline_spec

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STAGES = re.findall(r"^\| `(\w+)` \| .+ \| (`.+`) \| ?(.*?) ?\|$", README, flags=re.MULTILINE)
EXPECTED_STAGES = [
    *("raw_index", "tokenized_pack", "shuffled_chunks", "merged_pbin"),
    *("trained_checkpoint", "hf_model", "generated_text"),
]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_the_table_lists_the_seven_stages_in_order() -> None:
    assert [name for name, _, _ in STAGES] == EXPECTED_STAGES


@pytest.mark.parametrize(("stage", "files"), [(name, files) for name, files, _ in STAGES])
def test_each_stage_names_library_files_that_exist(stage: str, files: str) -> None:
    for file in re.findall(r"`([^`]+)`", files):
        assert (ROOT / "modalities_pipeline" / file).is_file(), f"{stage}: {file}"


@pytest.mark.parametrize("words", [words.strip("`") for _, _, words in STAGES if words])
def test_each_cli_word_of_the_table_explains_itself(words: str) -> None:
    command = [sys.executable, "-m", "modalities_pipeline", *words.split(), "--help"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "usage" in result.stdout.lower()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\((?!https?:)([^)#]+)", README))))
def test_relative_links_and_pictures_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


def test_every_make_command_is_a_target() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    commands = set(re.findall(r"\bmake (?:\w+=\S+ )*(\w+)", "\n".join(_blocks("bash"))))
    assert {"demo", "ui", "test"} <= commands <= targets


def test_the_example_of_a_spec_is_a_complete_spec(tmp_path: Path) -> None:
    [example] = _blocks("yaml")
    path = tmp_path / "web.yaml"
    path.write_text(example.replace("/path/to/modalities_pipeline", str(ROOT)))
    spec = load_pipeline_spec(path)
    assert len(build_definitions(spec).resolve_asset_graph().get_all_asset_keys()) >= 14
