"""The numbers of the training settings have to agree; what the run does anyway is no finding, what is unknown waits."""

import pytest
from pydantic import ValidationError
from training_check_helpers import ENFORCE_NOTHING, changed, findings

from modalities_pipeline.config.interfaces import NUMBER
from modalities_pipeline.config.schemas.settings import TrainingSettings
from modalities_pipeline.config.unbuilt import Unbuilt


def test_consistent_settings_have_no_finding(settings):
    assert findings(settings) == {}
    assert findings({**settings, "consistency_enforcement": ENFORCE_NOTHING}).keys() == {
        "settings.intervals.checkpointing_interval_in_steps"
    }


@pytest.mark.parametrize(
    "key",
    [
        "intervals__training_log_intervall",
        "step_profile__gradient_acumulation_steps",
        "consistency_enforcement__enforce_last_step_loged",
        "training_target__num_steps",
        "cuda_env__rank",
    ],
)
def test_misspelt_settings_are_refused(settings, key):
    """B077"""
    with pytest.raises(ValidationError, match="extra_forbidden"):
        TrainingSettings.model_validate(changed(settings, **{key: True}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("intervals__evaluation_interval_in_steps", 0),
        ("training_target__num_target_steps", 1e3),
        ("training_target__num_target_steps", -1),
        ("training_target__num_target_tokens", 0),
        ("step_profile__sequence_length", "8"),
        ("step_profile__dp_degree", True),
        ("cuda_env__global_rank", 2),
        ("paths__any", 3),
        ("paths__any", None),
    ],
)
def test_values_that_cannot_work_are_refused(settings, key, value):
    """B078"""
    with pytest.raises(ValidationError):
        TrainingSettings.model_validate(changed(settings, **{key: value}))


def test_tokens_that_do_not_fit_the_steps_are_a_fault_or_a_note(settings):
    """B078: tokens per step not dividing the target."""
    wrong = changed(settings, training_target__num_target_tokens=959)
    key = "settings.training_target.num_target_tokens"
    message, is_note = findings(wrong)[key]
    assert message.startswith("959 tokens are left for 10 steps, but these consume 960 (96 a step: 2 x 2 x 3 x 8, ")
    assert "num_target_tokens would have to be 960" in message
    assert not is_note
    wrong = changed(wrong, consistency_enforcement__enforce_tokens_per_step_consistency=False)
    assert findings(wrong)[key][1]


def test_large_numbers_are_compared_exactly(settings):
    """A float would not tell these apart."""
    num_steps = 10**15
    target = {"num_target_steps": num_steps, "num_target_tokens": num_steps * 96}
    assert findings({**settings, "training_target": target}) == {}
    target["num_target_tokens"] += 1
    assert findings({**settings, "training_target": target}).keys() == {"settings.training_target.num_target_tokens"}


def test_a_run_that_is_already_finished_is_consistent(settings):
    progress = {"global_num_seen_tokens": 960, "num_seen_steps": 10, "num_seen_samples": 120, "last_step": 9}
    assert findings({**settings, "training_progress": progress}) == {}
    beyond = {**progress, "num_seen_steps": 11, "last_step": 10}
    [(key, (message, is_note))] = findings({**settings, "training_progress": beyond}).items()
    assert key == "settings.training_target.num_target_steps"
    assert (message, is_note) == ("num_seen_steps 11 is beyond num_target_steps 10; raise it", False)


@pytest.mark.parametrize(("seen", "target", "interval"), [(s, t, i) for s in (0, 3, 4) for t in (8, 9) for i in (3, 4)])
def test_the_last_step_is_left_out_exactly_if_the_loop_leaves_it_out(settings, seen, target, interval):
    """The loop counts all steps, not those that remain after a warm start."""
    progress = {"global_num_seen_tokens": seen * 96, "num_seen_steps": seen, "num_seen_samples": 0}
    given = {
        **settings,
        "training_progress": {**progress, "last_step": seen - 1},
        "training_target": {"num_target_steps": target, "num_target_tokens": target * 96},
        "intervals": dict.fromkeys(settings["intervals"], interval),
    }
    events = [step for step in range(seen + 1, target + 1) if step % interval == 0]
    assert findings(given) == {}  # the loop does it anyway
    noted = findings({**given, "consistency_enforcement": ENFORCE_NOTHING})
    assert len(noted) == (0 if target in events else 3)
    assert all(is_note for _, is_note in noted.values())


def test_numbers_that_are_not_known_yet_are_left_to_the_building(settings):
    later = Unbuilt("number_conversion", "custom", NUMBER)
    unknown = changed(settings, training_target__num_target_tokens=later, step_profile__dp_degree=later)
    assert findings(unknown) == {}
    tag = Unbuilt("loss", "custom", "module:Class")
    with pytest.raises(ValidationError, match="num_target_tokens"):
        TrainingSettings.model_validate(changed(settings, training_target__num_target_tokens=tag))


@pytest.mark.parametrize("mesh", [None, "2 x 2"])
def test_the_data_parallel_degree_is_that_of_the_ranks_or_the_mesh(settings, mesh):
    from modalities_pipeline.distributed.configs import DeviceMeshConfig

    given = changed(settings, step_profile__dp_degree=3, training_target__num_target_tokens=1440)
    sections = {}
    if mesh is not None:
        given = changed(given, cuda_env__world_size=8)
        config = DeviceMeshConfig(
            data_parallel_replicate_degree=2, data_parallel_shard_degree=-1, tensor_parallel_degree=2, world_size=8
        )
        sections["device_mesh"] = Unbuilt("device_mesh", "default", None, config)
    [(key, (message, is_note))] = findings(given, **sections).items()
    assert key == "settings.step_profile.dp_degree"
    assert message.startswith(f"is 3, but has to be {4 if mesh else 2}: ")
    assert not is_note


def test_a_wrong_number_of_tokens_names_the_flag_in_full_and_the_option_for_the_number_of_processes(settings):
    found = findings(changed(settings, training_target__num_target_tokens=961))
    message, is_note = found["settings.training_target.num_target_tokens"]
    assert "or set settings.consistency_enforcement.enforce_tokens_per_step_consistency to false" in message
    assert "for 2 processes, `--world_size`" in message
    assert not is_note
