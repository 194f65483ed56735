"""Old and short training configs become complete ones; the file's positions stay usable."""

from pathlib import Path

import pytest

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.config.resolution import ResolverContext, resolve
from modalities_pipeline.config.schemas.preparation import prepare
from modalities_pipeline.config.schemas.settings import TrainingSettings

OLD = """\
settings: {}
model_raw: {component_key: model, variant_key: gpt2, config: {}}
model:
  component_key: model
  variant_key: fsdp_wrapped
  config: {model: {instance_key: model_raw, pass_type: BY_REFERENCE}}
optimizer:
  component_key: optimizer
  variant_key: adam_w
  config:
    wrapped_model: {instance_key: model, pass_type: BY_REFERENCE}
"""
SCHEDULER = "{name}: {{component_key: scheduler, variant_key: dummy_lr, config: {{}}}}\n"


def reference(name: str) -> dict[str, str]:
    return {"instance_key": name, "pass_type": "BY_REFERENCE"}


@pytest.fixture
def prepared(tmp_path: Path):
    """Function: the text of a file -> (its prepared content, the notes)."""

    def make(text: str, kind: str = "training"):
        path = tmp_path / "old.yaml"
        path.write_text(text)
        return prepare(load_yaml(path), kind)

    return make


@pytest.mark.parametrize("name", ["lr_scheduler", "scheduler", None])
def test_without_app_state_it_is_made_of_model_optimizer_and_scheduler(prepared, name):
    document, [note] = prepared(OLD + (SCHEDULER.format(name=name) if name else ""))
    scheduler = {"lr_scheduler": reference(name)} if name else {}
    assert document.data["app_state"] == {
        "component_key": "app_state",
        "variant_key": "raw",
        "config": {"model": reference("model"), "optimizer": reference("optimizer"), **scheduler},
    }
    assert note.is_note
    assert note.message.startswith("there is no app_state; it is made of model, optimizer")
    # a fault in what was made is reported where it came from
    assert str(document.origin(("app_state", "config", "optimizer"))).endswith("old.yaml:7:1")
    assert str(document.origin(note.key_path)).endswith("old.yaml:7:1")


def test_an_app_state_that_is_there_stays(prepared):
    document, notes = prepared(OLD + "app_state: {component_key: app_state, variant_key: x, config: {}}\n")
    assert document.data["app_state"]["variant_key"] == "x"
    assert notes == []


def test_without_model_raw_it_is_the_model_inside_the_wrappers(prepared):
    document, [note, _] = sorted_notes(prepared(OLD.replace("model_raw", "base")))
    assert document.data["model_raw"] == reference("base")
    assert note.message == "there is no model_raw; it is base"


def sorted_notes(result):
    document, notes = result
    return document, sorted(notes, key=lambda note: note.message, reverse=True)


@pytest.mark.parametrize(
    "text",
    [
        "settings: {}\noptimizer: 3\n",
        "settings: {}\noptimizer: {component_key: optimizer, variant_key: adam, config: [1]}\n",
        "settings: []\nmodel: {component_key: model, variant_key: x, config: {model: {instance_key: model}}}\n",
        "settings: null\n",
        "model: 3\n",
    ],
)
def test_what_is_wrong_is_left_for_validation_to_name(prepared, text):
    document, notes = prepared(text)
    assert notes == []
    assert document.data.keys() <= {"settings", "optimizer", "model"}


def test_settings_that_are_nearly_always_the_same_may_be_left_out(prepared):
    document, _ = prepared("settings: {paths: null, seed: 3}\nseen: '${settings.training_progress.num_seen_steps}'\n")
    context = ResolverContext(experiment_id="e", experiments_root_path=Path("root"), world_size=2)
    data = resolve(document, context).data
    assert data["seen"] == 0
    assert data["settings"] == {
        "seed": 3,
        "experiment_id": "e",
        "config_file_path": document.path,
        "referencing_keys": {"sample_key": "input_ids", "target_key": "target_ids", "prediction_key": "logits"},
        "cuda_env": {"local_rank": 0, "global_rank": 0, "world_size": 2},
        "paths": {},
        "consistency_enforcement": {},
        "training_progress": {
            "global_num_seen_tokens": 0,
            "num_seen_steps": 0,
            "num_seen_samples": 0,
            "last_step": -1,
        },
    }
    fields = TrainingSettings.model_fields
    required = {name for name, field in fields.items() if field.is_required()}
    assert required - data["settings"].keys() == {"intervals", "step_profile", "training_target"}


def test_what_is_there_wins_and_the_file_is_not_changed(prepared):
    text = "settings: {referencing_keys: {sample_key: tokens}}\n"
    document, _ = prepared(text)
    assert document.data["settings"]["referencing_keys"] == {"sample_key": "tokens"}
    again, _ = prepared(text)
    again.data["settings"]["training_progress"]["num_seen_steps"] = 5
    assert document.data["settings"]["training_progress"]["num_seen_steps"] == 0


@pytest.mark.parametrize("mesh", [True, False])
def test_without_dp_degree_it_is_that_of_the_mesh_or_the_number_of_processes(prepared, mesh):
    text = "settings: {step_profile: {sequence_length: 8}}\n" + ("device_mesh: {}\n" if mesh else "")
    document, [note] = prepared(text)
    dp_degree = document.data["settings"]["step_profile"]["dp_degree"]
    if mesh:
        config = {"device_mesh": reference("device_mesh"), "parallelism_methods": ["dp_replicate", "dp_shard"]}
        assert dp_degree == {"component_key": "number_conversion", "variant_key": "parallel_degree", "config": config}
    else:
        assert dp_degree == "${settings.cuda_env.world_size}"
    assert note.is_note
    assert str(document.origin(note.key_path)).endswith("old.yaml:1:12")


@pytest.mark.parametrize("name", ["dp_degree", "dp_degre"])
def test_a_dp_degree_that_is_there_stays_also_if_it_is_misspelt(prepared, name):
    document, notes = prepared(f"settings: {{step_profile: {{{name}: 2}}}}\n")
    assert document.data["settings"]["step_profile"] == {name: 2}
    assert notes == []


def test_a_sweep_is_checked_with_the_first_value_of_each_list(prepared):
    document, [note] = prepared("lr: 1\nsweep: {lr: [1, 2], model: {depth: [3, 4], name: x}, none: []}\n", "parts")
    assert document.data["sweep"] == {"lr": 1, "model": {"depth": 3, "name": "x"}, "none": []}
    assert note.key_path == ("sweep",)
    assert note.is_note
    assert "prepare_sweep_configs` writes a config for each combination" in note.message


def test_a_list_in_a_config_of_one_combination_is_a_value(tmp_path):
    folder = tmp_path / "2" / "0123456789abcdef_2030-01-01__00-00-00"
    folder.mkdir(parents=True)
    path = folder / "config.yaml"
    path.write_text("sweep: {betas: [0.9, 0.95]}\n")
    document, findings = prepare(load_yaml(path), "parts", is_run=True)
    assert document.data["sweep"] == {"betas": [0.9, 0.95]}
    assert findings == []


def test_other_kinds_stay_as_they_are(prepared):
    document, notes = prepared(OLD, "parts")
    assert document.data["settings"] == {}
    assert "app_state" not in document.data
    assert notes == []
