"""`check_config` finds all that is wrong with a file of any kind, without torch and without building anything."""

import subprocess
import sys

import pytest
from check_helpers import CONFIGS, messages_of

from modalities_pipeline.config.check import check_config
from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.exceptions import ConfigError

pytestmark = pytest.mark.usefixtures("without_data")

HEAVY = ["torch", "transformers", "sentencepiece", "wandb", "rich", "dagster", "tokenizers"]


@pytest.mark.parametrize("name", ["train_tiny_cpu", "train_base", "train_gpu", "warmstart", "pipeline"])
def test_every_example_config_is_right(name):
    report = check_config(CONFIGS / f"{name}.yaml", world_size=2)
    assert report.is_ok, report.text()
    assert report.kind == ("pipeline" if name == "pipeline" else "training")


class _Config(ComponentConfig):
    size: int


OWN = Registry([ComponentEntity("thing", "plain", "builtins:dict", _Config)])


THING = "{component_key: thing, variant_key: plain, config: {size: 1}}"


def test_a_file_of_no_whole_run_is_checked_part_by_part(check_yaml):
    report = check_yaml(f"a: {THING}\nb: {THING.replace('1', 'x')}\n", registry=OWN)
    assert report.kind == "parts"
    assert messages_of(report) == ["2:56: b.config.size: has to be an integer (given: 'x')"]


def test_plugins_are_known_to_the_check_alone(check_yaml, tmp_path):
    (tmp_path / "my_checked_things.py").write_text("def own(size: int):\n    raise SystemExit\n", encoding="utf-8")
    plugins = "plugins:\n- {component_key: thing, variant_key: own, component_path: 'my_checked_things.py:own'}\n"
    report = check_yaml(plugins + f"a: {THING.replace('plain', 'own').replace('1', 'x')}\n", registry=OWN)
    assert messages_of(report) == ["3:54: a.config.size: has to be an integer (given: 'x')"]
    assert [entity.variant_key for entity in OWN.entities()] == ["plain"]


def test_wrong_plugins_are_faults_like_any_other(check_yaml):
    report = check_yaml("plugins:\n- {component_key: thing}\nb: 1\n", registry=OWN)
    assert len(report.faults) == 2
    assert all(message.startswith("2:") for message in messages_of(report))


def test_an_empty_file_is_not_right(check_yaml):
    assert messages_of(check_yaml("# nothing but a comment\n")) == ["is empty"]


def test_a_slip_in_a_file_of_parts_is_a_fault(check_yaml):
    assert messages_of(check_yaml(f"extend: base.yaml\na: {THING}\n", registry=OWN)) == [
        "1:1: extend: nothing uses this key; did you mean 'extends'?"
    ]


def test_a_file_without_components_is_not_taken_for_a_checked_one(check_yaml):
    report = check_yaml("a: {b: 1}\n")
    assert report.is_ok
    assert [note.message for note in report.notes] == [
        "nothing in this file is a component, so there was nothing to check"
    ]


def test_a_plugin_that_cannot_be_loaded_is_one_fault(check_yaml):
    plugin = "plugins: [{component_key: model, variant_key: mine, component_path: 'no_such_module_here:X'}]\n"
    report = check_yaml(
        plugin + "".join(f"{key}: {{component_key: model, variant_key: mine, config: {{}}}}\n" for key in "ab")
    )
    assert len(report.faults) == 1
    assert report.faults[0].key_path == ("plugins", 0, "component_path")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("eid_x-seen_steps_3", None),
        ("folder", "'seen_steps_<number>' has to be in the name of a checkpoint exactly once"),
    ],
)
def test_the_name_of_a_checkpoint_is_checked_although_it_is_not_there(check_yaml, name, message):
    component = "{component_key: number_conversion, variant_key: num_seen_steps_from_checkpoint_path, config: "
    report = check_yaml(f"a: {component}{{checkpoint_path: /nowhere/{name}}}}}\n")
    assert [fault.message.startswith(message) for fault in report.faults] == ([True] if message else [])


@pytest.mark.parametrize(
    ("kind", "message"), [("trainig", "there is no kind of config 'trainig'; did you mean 'training'?")]
)
def test_kinds_that_do_not_exist_are_refused(check_yaml, kind, message):
    with pytest.raises(ConfigError) as error:
        check_yaml("a: 1\n", kind=kind)
    assert str(error.value) == message


def test_a_kind_can_be_asked_for(check_yaml):
    report = check_yaml("a: 1\n", kind="packing")
    assert report.kind == "packing"
    assert "settings: is missing" in messages_of(report)


def test_the_text_has_faults_notes_and_a_last_line_that_sums_up(check_yaml):
    report = check_yaml(f"a: {THING.replace('1', 'x')}\n", registry=OWN)
    lines = report.text().splitlines()
    assert len(lines) == 2
    assert lines[0] == str(report.faults[0])
    assert lines[1].endswith("config.yaml: 1 fault (checked as: parts)")
    assert check_yaml(f"a: {THING}\n", registry=OWN).text().endswith("config.yaml: ok (checked as: parts)")


def test_a_check_imports_nothing_heavy():
    code = f"""
import sys
from pathlib import Path
from modalities_pipeline.config.check import check_config
assert check_config(Path({str(CONFIGS / "train_gpu.yaml")!r}), world_size=8).is_ok
assert check_config(Path({str(CONFIGS / "train_tiny_cpu.yaml")!r}), world_size=2).is_ok
print(sorted(set({HEAVY!r}) & sys.modules.keys()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
