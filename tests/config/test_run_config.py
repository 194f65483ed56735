"""The config of a run is prepared, resolved, and continued from its newest checkpoint."""

from pathlib import Path

import pytest

from modalities_pipeline.config.overlays import Override, load_config
from modalities_pipeline.config.resolution import ResolverContext
from modalities_pipeline.config.run_config import in_our_order, resolve_run_config, resume_run_config
from modalities_pipeline.exceptions import ConfigError

CONTEXT = ResolverContext(experiment_id="e")
CHECKPOINT = "eid_e-seen_steps_2-seen_tokens_32-target_steps_4-target_tokens_64"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """An old training config, which has no app_state, and checkpoints in a folder beside it."""
    path = tmp_path / "old.yaml"
    path.write_text(
        f"""\
settings: {{step_profile: {{sequence_length: 8}}}}
model_raw: {{component_key: model, variant_key: gpt2, config: {{}}}}
optimizer:
  component_key: optimizer
  variant_key: adam
  config: {{wrapped_model: {{instance_key: model_raw, pass_type: BY_REFERENCE}}, lr: 1}}
loss_fn: {{}}
checkpoint_saving:
  config: {{checkpoint_saving_execution: {{config: {{checkpoint_path: {tmp_path}/checkpoints}}}}}}
"""
    )
    return path


def test_a_config_is_prepared_and_resolved(config):
    run = resolve_run_config(load_config(config), CONTEXT)
    assert run.resolved.data["settings"]["experiment_id"] == "e"
    assert run.resolved.data["app_state"]["variant_key"] == "raw"
    assert "app_state" not in run.given.data
    assert [str(note) for note in run.found] == [
        f"{config}:3:1: optimizer: there is no app_state; it is made of model_raw, optimizer",
        f"{config}:1:12: settings.step_profile: there is no dp_degree; it is the number of processes",
    ]
    assert run.resumed_from is None


def test_a_config_that_is_profiled_gets_no_notes_on_what_a_training_ignores(config):
    with config.open("a") as file:
        file.write("profiler: {component_key: steppable_profiler, variant_key: no_profiler, config: {}}\n")
        file.write("mfu_calculator: {}\nsteppable_component: {}\n")
    run = resolve_run_config(load_config(config), CONTEXT)
    assert run.found == ()
    assert run.resolved.data["settings"]["cuda_env"]["world_size"] == 1


def test_a_sweep_is_not_run_before_its_lists_are_combined(config):
    with config.open("a") as file:
        file.write("sweep: {lr: [1, 2]}\n")
    [fault] = [fault for fault in resolve_run_config(load_config(config), CONTEXT).found if not fault.is_note]
    assert str(fault).startswith(f"{config}:10:1: sweep: holds lists")
    assert "`modalities-pipeline benchmark prepare_sweep_configs`" in fault.message


def test_without_a_checkpoint_a_run_begins_at_the_start(config):
    run = resolve_run_config(load_config(config), CONTEXT)
    assert resume_run_config(run, (), CONTEXT) is run


def test_files_of_fsdp1_are_not_taken_for_no_checkpoint(config, tmp_path):
    """The run would begin anew, and replace what lies there."""
    run = resolve_run_config(load_config(config), CONTEXT)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / f"{CHECKPOINT.replace('-seen_steps', '-model-seen_steps', 1)}.bin").touch()
    with pytest.raises(ConfigError, match=r"checkpoints of FSDP1.* Go on with `warmstart`"):
        resume_run_config(run, (), CONTEXT)


def test_a_run_goes_on_from_its_newest_checkpoint_with_its_overrides(config, tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints" / CHECKPOINT
    folder.mkdir(parents=True)
    (folder / ".metadata").touch()
    overrides = [Override("optimizer.config.lr", 2)]
    run = resolve_run_config(load_config(config, overrides), CONTEXT)
    resumed = resume_run_config(run, overrides, CONTEXT)
    assert resumed.resumed_from == folder
    assert resumed.given == run.given
    data = resumed.resolved.data
    assert data["optimizer"]["config"]["lr"] == 2
    assert data["settings"]["training_progress"] == {
        "global_num_seen_tokens": 32,
        "num_seen_steps": 2,
        "num_seen_samples": 4,
        "last_step": 1,
    }
    assert data["app_state"]["variant_key"] == "dcp"
    assert data["app_state"]["config"]["checkpoint_dir_path"] == str(folder)
    assert data["app_state_raw"]["config"]["model"] == {"instance_key": "model_raw", "pass_type": "BY_REFERENCE"}


@pytest.mark.parametrize(
    "given",
    [
        ({"f": abs}, "id", "root"),
        ("root", {"f": abs}, "id"),
        (Path("root"), None, "id"),
        (Path("root"), "id", None),
        (Path("root"), None, None),
        (None, None, None),
    ],
)
def test_arguments_of_main_are_understood_in_both_orders(given):
    resolvers, experiment_id, root = in_our_order(*given)
    assert resolvers == next((value for value in given if isinstance(value, dict)), None)
    assert experiment_id == ("id" if "id" in given else None)
    assert root is None or str(root) == "root"


def test_a_plugins_file_is_found_from_wherever_the_resolved_config_lies(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("plugins: [{component_key: model, variant_key: mine, component_path: 'mine.py:Mine'}]\n")
    resolved = resolve_run_config(load_config(path), CONTEXT).resolved
    assert resolved.data["plugins"][0]["component_path"] == f"{tmp_path}/mine.py:Mine"


def test_options_without_effect_are_faults(config, tmp_path):
    config.write_text(config.read_text().replace("settings: {", "settings: {experiment_id: mine, "))
    context = ResolverContext(experiment_id="other", last_checkpoint_info_file_path=tmp_path / "info.json")
    found = [found for found in resolve_run_config(load_config(config), context, "other").found if not found.is_note]
    assert [fault.message.split(";")[0].split(",")[0] for fault in found] == [
        "a warm start was asked for",
        "is 'mine'",
    ]
