"""`check_config` finds all that is wrong with a file of any kind, without torch and without building anything."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.config.check import CheckReport, check_config, check_document
from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.origins import KeyPath
from modalities_pipeline.config.overlays import load_config, parse_override
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.exceptions import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
HEAVY = ["torch", "transformers", "sentencepiece", "wandb", "rich", "dagster", "tokenizers"]


@pytest.fixture(autouse=True)
def _without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths of the example configs lead nowhere from here."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def check(tmp_path):
    """Function (yaml text, options of `check_config`) -> report."""

    def check_text(text: str, **options) -> CheckReport:
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return check_config(path, **options)

    return check_text


def _messages(report: CheckReport) -> list[str]:
    return [str(fault).partition("config.yaml:")[2].strip() for fault in report.faults]


@pytest.mark.parametrize("name", ["train_tiny_cpu", "train_base", "train_gpu", "warmstart", "pipeline"])
def test_every_example_config_is_right(name):
    report = check_config(CONFIGS / f"{name}.yaml", world_size=2)
    assert report.is_ok, report.text()
    assert report.kind == ("pipeline" if name == "pipeline" else "training")


def test_ten_planted_faults_of_a_training_config_are_listed_in_one_go(check):
    """B077, B078"""
    report = check(
        f"""extends: {CONFIGS / "train_base.yaml"}
settings:
  intervals: {{training_log_interval_in_stepz: 5}}
  step_profile:
    local_train_micro_batch_size: "4"
    gradient_acumulation_steps: 2
train_dataset:
  config: {{sequence_length: -3}}
lr_scheduler:
  config:
    optimizer: {{instance_key: optimzer, pass_type: BY_REFERENCE}}
    warmup_steps: 1.5
model_raw:
  config:
    poe_type: NOPES
sharded_model:
  config:
    model: {{instance_key: collate_fn, pass_type: BY_REFERENCE}}
loss_fn:
  variant_key: nce_los
  config: {{}}
mfu_calcluator: {{}}
"""
    )
    assert _messages(report) == [
        "3:15: settings.intervals.training_log_interval_in_stepz: unknown key; "
        "did you mean 'training_log_interval_in_steps'?",
        "5:5: settings.step_profile.local_train_micro_batch_size: has to be an integer (given: '4')",
        "6:5: settings.step_profile.gradient_acumulation_steps: unknown key; "
        "did you mean 'gradient_accumulation_steps'?",
        "8:12: train_dataset.config.sequence_length: has to be greater than 1 (given: -3)",
        "11:17: lr_scheduler.config.optimizer.instance_key: there is no top-level key 'optimzer'; "
        "did you mean 'optimizer'?",
        "12:5: lr_scheduler.config.warmup_steps: has to be an integer (given: 1.5)",
        "15:5: model_raw.config.poe_type: has to be one of ABSOLUTE, NOPE (given: 'NOPES'); did you mean 'NOPE'?",
        "18:5: sharded_model.config.model: has to be a Module or a list of them, "
        "but collate_fn/gpt_2_llm_collator is a CollateFnIF",
        "20:3: loss_fn.variant_key: unknown variant_key 'nce_los' of component 'loss'; did you mean 'nce_loss'?",
        "22:1: mfu_calcluator: nothing uses this key; did you mean 'mfu_calculator', which is not set?",
    ]


def test_what_is_missing_here_is_a_note_and_no_fault():
    report = check_config(CONFIGS / "train_tiny_cpu.yaml", world_size=2)
    assert {note.message.partition("; the value")[0] for note in report.notes} == {
        "not checked, because outputs/train/merged_pbin/merged.pbin does not exist here",
        "outputs/train/merged_pbin/merged.pbin does not exist here",
        "outputs/validation/merged_pbin/merged.pbin does not exist here",
    }
    assert report.training_report is None, "its numbers come from the data"


def test_the_training_report_is_there_once_all_numbers_are_known():
    overrides = [
        parse_override("settings.training_target.num_target_tokens=81920"),
        parse_override("model_raw.config.vocab_size=512"),
    ]
    report = check_config(CONFIGS / "train_tiny_cpu.yaml", world_size=2, overrides=overrides)
    assert report.is_ok, report.text()
    assert "40 steps, 81,920 tokens" in (report.training_report or "")
    assert report.training_report in report.text()


def test_the_world_size_is_what_it_is_checked_for():
    override = parse_override("settings.training_target.num_target_tokens=163840")
    steps = [
        check_config(CONFIGS / "train_tiny_cpu.yaml", world_size=world_size, overrides=[override]).training_report
        for world_size in (1, 4)
    ]
    assert "160 steps" in (steps[0] or "")
    assert "40 steps" in (steps[1] or "")


def test_overrides_are_checked_and_named():
    report = check_config(CONFIGS / "train_base.yaml", overrides=[parse_override("optimizer.config.lr=fast")])
    assert [str(fault) for fault in report.faults] == [
        "--set: optimizer.config.lr: has to be a number (given: 'fast')",
    ]


PIPELINE = """output_dir: outputs
corpora:
  train: {{documents: {{python_docs: train}}}}
  validation: {{documents: {{python_docs: validation}}}}
tokenizer: {{train: {{corpus: train, vocab_size: 512}}, eod_token: <eod>}}
experiments:
  tiny:
    training_config: {training_config}
    train_corpus: train
    validation_corpus: validation
    launcher: {{num_processes: 4}}
    overrides: {overrides}
    generated_text: {{prompts: [The]}}
"""


def _pipeline(**overrides: str) -> str:
    return PIPELINE.format(training_config=CONFIGS / "train_tiny_cpu.yaml", overrides=json.dumps(overrides))


def test_a_pipeline_is_checked_with_the_training_configs_of_its_experiments(check):
    overrides = {"optimizer.config.lr": "fast", "loss_fn.config.target_kye": "x"}
    assert _messages(check(_pipeline(**overrides))) == [
        "12:17: optimizer.config.lr: has to be a number (given: 'fast')",
        "12:48: loss_fn.config.target_kye: unknown key; did you mean 'target_key'?",
    ]


def test_an_experiment_is_checked_for_its_number_of_processes(check):
    numbers = {"settings.training_target.num_target_tokens": 163840, "model_raw.config.vocab_size": 512}
    report = check(_pipeline(**numbers))
    assert report.is_ok, report.text()
    assert report.kind == "pipeline"
    assert "Experiment tiny\nTraining report\n  target: 40 steps" in report.text()


def test_faults_of_the_spec_itself_have_their_place(check):
    report = check(_pipeline().replace("train_corpus: train", "train_corpus: trian"))
    assert _messages(report) == [
        "9:5: experiments.tiny.train_corpus: there is no corpus 'trian'; did you mean 'train'?"
    ]


def test_values_of_a_pipeline_are_not_set_from_outside(check):
    with pytest.raises(ConfigError, match="cannot be set from outside"):
        check(_pipeline(), overrides=[parse_override("output_dir=x")])


def _keys(node: Any, key_path: KeyPath = ()) -> Iterator[KeyPath]:
    """The key paths of all keys of mappings."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if isinstance(node, dict):
            yield (*key_path, key)
        yield from _keys(value, (*key_path, key))


def _misspelt(node: Any, key_path: KeyPath) -> Any:
    """The same content with one key misspelt."""
    if isinstance(node, list):
        return [_misspelt(value, key_path[1:]) if index == key_path[0] else value for index, value in enumerate(node)]
    if len(key_path) == 1:
        return {f"{key}z" if key == key_path[0] else key: value for key, value in node.items()}
    return {key: _misspelt(value, key_path[1:]) if key == key_path[0] else value for key, value in node.items()}


ANY_KEY = [("settings", "paths"), ("settings", "referencing_keys")]  # mappings whose keys are the user's own


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_a_misspelt_key_is_named_at_every_level(every):
    """B077: of a whole training config; a twentieth of the keys, or all."""
    document = load_config(CONFIGS / "train_tiny_cpu.yaml")
    keys = [key_path for key_path in _keys(document.data) if key_path[:2] not in ANY_KEY]
    for key_path in keys[::every]:
        misspelt = dataclasses.replace(document, data=_misspelt(document.data, key_path))
        report = check_document(misspelt, kind="training", world_size=2)
        if key_path != ("app_state",):  # is then made of the sections that it consists of
            assert any(f"{key_path[-1]}z" in str(fault) for fault in report.faults), key_path


class _Config(ComponentConfig):
    size: int


OWN = Registry([ComponentEntity("thing", "plain", "builtins:dict", _Config)])
THING = "{component_key: thing, variant_key: plain, config: {size: 1}}"


def test_a_file_of_no_whole_run_is_checked_part_by_part(check):
    report = check(f"a: {THING}\nb: {THING.replace('1', 'x')}\n", registry=OWN)
    assert report.kind == "parts"
    assert _messages(report) == ["2:56: b.config.size: has to be an integer (given: 'x')"]


def test_plugins_are_known_to_the_check_alone(check, tmp_path):
    (tmp_path / "my_checked_things.py").write_text("def own(size: int):\n    raise SystemExit\n", encoding="utf-8")
    plugins = "plugins:\n- {component_key: thing, variant_key: own, component_path: 'my_checked_things.py:own'}\n"
    report = check(plugins + f"a: {THING.replace('plain', 'own').replace('1', 'x')}\n", registry=OWN)
    assert _messages(report) == ["3:54: a.config.size: has to be an integer (given: 'x')"]
    assert [entity.variant_key for entity in OWN.entities()] == ["plain"]


def test_wrong_plugins_are_faults_like_any_other(check):
    report = check("plugins:\n- {component_key: thing}\nb: 1\n", registry=OWN)
    assert len(report.faults) == 2
    assert all(message.startswith("2:") for message in _messages(report))


def test_an_empty_file_is_not_right(check):
    assert _messages(check("# nothing but a comment\n")) == ["is empty"]


def test_unused_sections_are_noted(check):
    text = (CONFIGS / "train_tiny_cpu.yaml").absolute()
    report = check(f"extends: {text}\nold_loss: {{component_key: loss, variant_key: nce_los, config: {{}}}}\n")
    assert report.is_ok
    notes = [str(note).partition("config.yaml:")[2] for note in report.notes if note.key_path[:1] == ("old_loss",)]
    assert notes[0] == "2:1: old_loss: nothing uses this section"
    assert "unknown variant_key 'nce_los'" in notes[1]


BASE = f"extends: {CONFIGS / 'train_tiny_cpu.yaml'}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimzer: {config: {lr: 1}}", "optimzer: nothing uses this key; did you mean 'optimizer'?"),
        ("settngs: {}", "settngs: nothing uses this key; did you mean 'settings'?"),
        ("extend: base.yaml", "extend: nothing uses this key; did you mean 'extends'?"),
        ("plugin: []", "plugin: nothing uses this key; did you mean 'plugins'?"),
    ],
)
def test_a_slip_in_a_top_level_key_is_a_fault(check, text, message):
    """B077: a config that extends a complete one would otherwise be run without the change."""
    assert _messages(check(f"{BASE}{text}\n")) == [f"2:1: {message}"]


def test_other_top_level_keys_that_nothing_uses_are_noted(check):
    text = "width: 3\nread: {x: 1}\nshared: &a {num_workers: 0}\nsweep: {lr: [1]}\n"
    uses = "train_dataloader: {config: {<<: *a}}\nloss_fn: {config: {target_key: '${oc.select:read.y,target_ids}'}}\n"
    report = check(BASE + text + uses)
    notes = [str(note).partition("config.yaml:")[2] for note in report.notes]
    assert [note for note in notes if "nothing uses" in note] == ["2:1: width: nothing uses this key"]


def test_a_slip_in_a_file_of_parts_is_a_fault(check):
    assert _messages(check(f"extend: base.yaml\na: {THING}\n", registry=OWN)) == [
        "1:1: extend: nothing uses this key; did you mean 'extends'?"
    ]


def test_a_file_without_components_is_not_taken_for_a_checked_one(check):
    report = check("a: {b: 1}\n")
    assert report.is_ok
    assert [note.message for note in report.notes] == [
        "nothing in this file is a component, so there was nothing to check"
    ]


def test_what_cannot_be_built_is_told_in_the_last_line(check):
    planned = Registry([ComponentEntity("thing", name, None, _Config) for name in ("plain", "other")])
    report = check(f"a: {THING}\nb: {THING}\nc: {THING.replace('plain', 'other')}\n", registry=planned)
    assert report.is_ok
    assert report.text().endswith(
        "config.yaml: valid, but this version cannot build thing/plain and thing/other (see the notes) "
        "(checked as: parts)"
    )


def test_a_missing_section_is_one_fault(check):
    report = check(f"{BASE}settings: !remove\n", kind="training")
    (fault,) = [fault for fault in report.faults if "settings" in str(fault.key_path[:1])]
    assert "there is no 'settings'; used by " in fault.message
    assert not any("refers to nothing" in fault.message for fault in report.faults)


@pytest.mark.parametrize("section", ["optimizer", "train_dataset"])
def test_data_in_the_place_of_a_component_are_told_where_they_stand(section):
    report = check_config(CONFIGS / "train_base.yaml", overrides=[parse_override(f"{section}=foo")])
    wrong = [str(fault) for fault in report.faults if "has to be a component" in fault.message]
    assert len(wrong) == 1
    assert wrong[0].startswith(f"--set: {section}: has to be a component (")


def test_a_fault_of_a_copy_alone_is_told_beside_that_of_its_original(check):
    text = "optimizer: {config: {lr: -1}}\nlr_scheduler: {config: {warmup_steps: '${optimizer.config.lr}'}}\n"
    messages = _messages(check(BASE + text))
    assert messages[0] == "2:22: optimizer.config.lr: has to be at least 0.0 (given: -1)"
    assert messages[1].startswith("3:25: lr_scheduler.config.warmup_steps: has to be ")


def test_text_that_looks_like_a_number_is_noted(check):
    notes = [str(note).partition("config.yaml:")[2] for note in check(f"{BASE}settings: {{x: 1:30}}\n").notes]
    assert (
        "2:12: settings.x: 1:30 is read as text; other YAML readers take it for the number 90. Put it in quotes"
        in notes
    )


def test_a_plugin_that_cannot_be_loaded_is_one_fault(check):
    plugin = "plugins: [{component_key: model, variant_key: mine, component_path: 'no_such_module_here:X'}]\n"
    report = check(
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
def test_the_name_of_a_checkpoint_is_checked_although_it_is_not_there(check, name, message):
    component = "{component_key: number_conversion, variant_key: num_seen_steps_from_checkpoint_path, config: "
    report = check(f"a: {component}{{checkpoint_path: /nowhere/{name}}}}}\n")
    assert [fault.message.startswith(message) for fault in report.faults] == ([True] if message else [])


@pytest.mark.parametrize(
    ("kind", "message"), [("trainig", "there is no kind of config 'trainig'; did you mean 'training'?")]
)
def test_kinds_that_do_not_exist_are_refused(check, kind, message):
    with pytest.raises(ConfigError) as error:
        check("a: 1\n", kind=kind)
    assert str(error.value) == message


def test_a_kind_can_be_asked_for(check):
    report = check("a: 1\n", kind="packing")
    assert report.kind == "packing"
    assert "settings: is missing" in _messages(report)


def test_the_text_has_faults_notes_and_a_last_line_that_sums_up(check):
    report = check(f"a: {THING.replace('1', 'x')}\n", registry=OWN)
    lines = report.text().splitlines()
    assert len(lines) == 2
    assert lines[0] == str(report.faults[0])
    assert lines[1].endswith("config.yaml: 1 fault (checked as: parts)")
    assert check(f"a: {THING}\n", registry=OWN).text().endswith("config.yaml: ok (checked as: parts)")


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
