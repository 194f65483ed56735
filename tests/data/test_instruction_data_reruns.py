"""Runs of stage instruction_data that fail or follow others: the partitions in a folder are always those of one run."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data import instruction_data
from modalities_pipeline.data.instruction_data import create_instruction_tuning_data, split_and_apply_chat_template
from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import DatasetFormatError, OutputNotWritableError, UserError


def _folder(config_path: Path) -> tuple[Path, str]:
    config_hash = hashlib.sha256(config_path.read_bytes()).hexdigest()[:7]
    return Path(f"out/talks_{config_hash}"), config_hash


def _files(folder: Path) -> set[str]:
    """Names without records and locks."""
    return {path.name for path in folder.iterdir() if not path.name.endswith((".manifest.json", ".lock"))}


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


@pytest.mark.parametrize("is_first_run", [True, False])
@pytest.mark.parametrize(
    ("bad_line", "jq_pattern", "message"),
    [('{"talk": [}', ".chat", "line 13: not valid JSON"), ("", ".text", "line 1: jq_pattern of pack.yaml finds no")],
)
def test_a_run_that_fails_changes_no_partition(
    is_first_run, bad_line, jq_pattern, message, write_talks_config, talks_folder
):
    config_path = write_talks_config()
    folder, _ = _folder(config_path)
    if not is_first_run:
        create_instruction_tuning_data(config_path)
    before = {} if is_first_run else _contents(folder)
    pack_config = talks_folder / "pack.yaml"
    pack_config.write_text(pack_config.read_text("utf-8").replace(".chat", jq_pattern), "utf-8")
    lines = (talks_folder / "talks.jsonl").read_text("utf-8").splitlines()
    (talks_folder / "talks.jsonl").write_text("\n".join([*lines[::-1], bad_line]), "utf-8")
    with pytest.raises(DatasetFormatError, match=message):
        create_instruction_tuning_data(config_path)
    assert _contents(folder) == before
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]


def test_partitions_of_two_runs_are_never_side_by_side(write_talks_config, talks_folder, monkeypatch):
    config_path = write_talks_config()
    create_instruction_tuning_data(config_path)
    folder, config_hash = _folder(config_path)
    old = _contents(folder)
    lines = (talks_folder / "talks.jsonl").read_text("utf-8").splitlines(keepends=True)
    (talks_folder / "talks.jsonl").write_text("".join(lines[::-1]), "utf-8")

    def fail_at_the_second(output_path: Path, *arguments: Any) -> Manifest | None:
        if "_test." in output_path.name:
            raise OutputNotWritableError("disk full")
        return produce(output_path, *arguments)

    monkeypatch.setattr(instruction_data, "produce", fail_at_the_second)
    with pytest.raises(OutputNotWritableError):
        create_instruction_tuning_data(config_path)
    train = f"talk.v1_train.{config_hash}.jsonl"
    assert _contents(folder).keys() == {train, f"{train}.manifest.json"}
    assert (folder / train).read_bytes() != old[train]


def test_what_was_made_of_old_partitions_is_gone_with_them(write_talks_config, talks_folder):
    config_path = write_talks_config()
    create_instruction_tuning_data(config_path)
    folder, _ = _folder(config_path)
    assert any(name.endswith((".idx", ".pbin")) for name in _files(folder))
    paths = split_and_apply_chat_template(config_path)
    assert {name for name in _files(folder) if "chat_template" not in name} == {path.name for path in paths.values()}


def test_outputs_are_distinct_and_none_is_an_input(write_talks_config, talks_folder):
    config_path = write_talks_config({"dst_path": "out/pbin_config.yaml"})
    with pytest.raises(UserError, match=r"Two outputs would be .*pbin_config_train.*Give dst_path another name"):
        create_instruction_tuning_data(config_path)
    config_path = write_talks_config()
    folder, config_hash = _folder(config_path)
    folder.mkdir(parents=True)
    for name in (f"pbin_config_test.{config_hash}.yaml", f"talk.v1_test.{config_hash}.jsonl.manifest.json"):
        (folder / name).hardlink_to(config_path)
        with pytest.raises(UserError, match="is also an input"):
            create_instruction_tuning_data(config_path)
        (folder / name).unlink()
    assert _files(folder) == set()


def test_what_a_killed_run_left_is_removed(write_talks_config):
    config_path = write_talks_config()
    code = "import os; from pathlib import Path\nfrom modalities_pipeline.data import instruction_data as stage\n" + (
        "stage._publish = lambda *_: os.kill(os.getpid(), 9)\nstage.create_instruction_tuning_data(Path('config.yaml'))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -9
    folder, _ = _folder(config_path)
    assert [path for path in folder.iterdir() if path.name.endswith(".tmp")]
    create_instruction_tuning_data(config_path)
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]
