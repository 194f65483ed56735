"""`check_config` finds every slip in a training config, and reports on the training once its numbers are known."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from check_helpers import CONFIGS, messages_of

from modalities_pipeline.config.check import check_config, check_document
from modalities_pipeline.config.origins import KeyPath
from modalities_pipeline.config.overlays import load_config, parse_override

pytestmark = pytest.mark.usefixtures("without_data")


def test_ten_planted_faults_of_a_training_config_are_listed_in_one_go(check_yaml):
    """B077, B078"""
    report = check_yaml(
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
    assert messages_of(report) == [
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


def test_unused_sections_are_noted(check_yaml):
    text = (CONFIGS / "train_tiny_cpu.yaml").absolute()
    report = check_yaml(f"extends: {text}\nold_loss: {{component_key: loss, variant_key: nce_los, config: {{}}}}\n")
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
def test_a_slip_in_a_top_level_key_is_a_fault(check_yaml, text, message):
    """B077: a config that extends a complete one would otherwise be run without the change."""
    assert messages_of(check_yaml(f"{BASE}{text}\n")) == [f"2:1: {message}"]


def test_other_top_level_keys_that_nothing_uses_are_noted(check_yaml):
    text = "width: 3\nread: {x: 1}\nshared: &a {num_workers: 0}\nsweep: {lr: [1]}\n"
    uses = "train_dataloader: {config: {<<: *a}}\nloss_fn: {config: {target_key: '${oc.select:read.y,target_ids}'}}\n"
    report = check_yaml(BASE + text + uses)
    notes = [str(note).partition("config.yaml:")[2] for note in report.notes]
    assert [note for note in notes if "nothing uses" in note] == ["2:1: width: nothing uses this key"]


def test_a_missing_section_is_one_fault(check_yaml):
    report = check_yaml(f"{BASE}settings: !remove\n", kind="training")
    (fault,) = [fault for fault in report.faults if "settings" in str(fault.key_path[:1])]
    assert "there is no 'settings'; used by " in fault.message
    assert not any("refers to nothing" in fault.message for fault in report.faults)


@pytest.mark.parametrize("section", ["optimizer", "train_dataset"])
def test_data_in_the_place_of_a_component_are_told_where_they_stand(section):
    report = check_config(CONFIGS / "train_base.yaml", overrides=[parse_override(f"{section}=foo")])
    wrong = [str(fault) for fault in report.faults if "has to be a component" in fault.message]
    assert len(wrong) == 1
    assert wrong[0].startswith(f"--set: {section}: has to be a component (")


def test_a_fault_of_a_copy_alone_is_told_beside_that_of_its_original(check_yaml):
    text = "optimizer: {config: {lr: -1}}\nlr_scheduler: {config: {warmup_steps: '${optimizer.config.lr}'}}\n"
    messages = messages_of(check_yaml(BASE + text))
    assert messages[0] == "2:22: optimizer.config.lr: has to be at least 0.0 (given: -1)"
    assert messages[1].startswith("3:25: lr_scheduler.config.warmup_steps: has to be ")


def test_text_that_looks_like_a_number_is_noted(check_yaml):
    notes = [str(note).partition("config.yaml:")[2] for note in check_yaml(f"{BASE}settings: {{x: 1:30}}\n").notes]
    assert (
        "2:12: settings.x: 1:30 is read as text; other YAML readers take it for the number 90. Put it in quotes"
        in notes
    )
