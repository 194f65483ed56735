"""What has to hold between the sections of a training config is checked before and after anything is built."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.interfaces import NUMBER
from modalities_pipeline.config.schemas.settings import TrainingSettings
from modalities_pipeline.config.schemas.training_checks import check_training
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.data.manifest import BuildResult, StageIdentity, record
from modalities_pipeline.data.pbin import PackedFileWriter

ENFORCE_NOTHING = dict.fromkeys(
    (
        "enforce_tokens_per_step_consistency",
        "enforce_last_step_logged",
        "enforce_last_step_evaluated",
        "enforce_last_step_checkpointed",
        "enforce_enough_tokens_in_dataset",
    ),
    False,
)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Ten steps of 96 tokens on two ranks."""
    config = tmp_path / "config.yaml"
    config.touch()
    return {
        "experiment_id": "x",
        "config_file_path": config,
        "cuda_env": {"local_rank": 0, "world_size": 2, "global_rank": 0},
        "paths": {"train_dataset_path": "data/train.pbin"},
        "intervals": {
            "training_log_interval_in_steps": 1,
            "checkpointing_interval_in_steps": 4,
            "evaluation_interval_in_steps": 5,
        },
        "step_profile": {
            "gradient_accumulation_steps": 2,
            "local_train_micro_batch_size": 3,
            "sequence_length": 8,
            "dp_degree": 2,
        },
        "training_target": {"num_target_tokens": 960, "num_target_steps": 10},
    }


def changed(settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Settings with changes, given as section__key=value."""
    result = dict(settings)
    for name, value in changes.items():
        section, key = name.split("__")
        result[section] = {**result.get(section, {}), key: value}
    return result


def component(variant_key: str = "custom", **config: Any) -> Unbuilt:
    """A component that is not built, with the fields of its config."""
    return Unbuilt("some", variant_key, None, SimpleNamespace(**config))  # type: ignore[arg-type]


def findings(settings: dict[str, Any], **sections: Any) -> dict[str, tuple[str, bool]]:
    """Dotted key -> (message, whether it is a note)."""
    validated = TrainingSettings.model_validate(settings)
    found = list(check_training({"settings": validated, **sections}))
    assert len({finding.key_path for finding in found}) == len(found), found
    return {".".join(map(str, path)): (message, is_note) for path, message, is_note in found}


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


def test_a_warm_up_longer_than_the_training_is_a_fault_where_the_scheduler_stands(settings):
    """B078"""
    scheduler = component(warmup_steps=11, total_steps=12)
    app_state = component(lr_scheduler=scheduler)
    [(key, (message, is_note))] = findings(settings, app_state=app_state, lr_scheduler=scheduler).items()
    assert key == "lr_scheduler.config.warmup_steps"
    assert message == "the warm-up of 11 steps is longer than the training of 10"
    assert not is_note
    shorter = component(warmup_steps=1, total_steps=12)
    loaded = component(raw_app_state=component(lr_scheduler=shorter))
    [(key, (_, is_note))] = findings(settings, app_state=loaded).items()
    assert key == "app_state.config.lr_scheduler"
    assert is_note


class _Sized:
    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def loader(dataset: Any, batch_size: int = 3, num_replicas: int = 2, **sampler: Any) -> Any:
    """A built data loader."""
    batch_sampler = SimpleNamespace(
        batch_size=batch_size, sampler=SimpleNamespace(num_replicas=num_replicas, **sampler)
    )
    return SimpleNamespace(dataset=dataset, batch_sampler=batch_sampler, dataloader_tag="val")


@pytest.mark.parametrize(("num_samples", "num_epochs", "is_enough"), [(120, 1, True), (119, 1, False), (60, 2, True)])
def test_the_target_needs_enough_tokens(settings, num_samples, num_epochs, is_enough):
    dataset = _Sized(num_samples)
    sections = {"train_dataset": dataset, "train_dataloader": loader(dataset, num_epochs=num_epochs)}
    found = findings(settings, **sections)
    assert not found if is_enough else found.keys() == {"settings.training_target.num_target_tokens"}
    lenient = changed(settings, consistency_enforcement__enforce_enough_tokens_in_dataset=False)
    assert all(is_note for _, is_note in findings(lenient, **sections).values())


def test_a_step_larger_than_the_data_is_a_fault(settings):
    """B078: micro batch larger than the dataset."""
    [(key, (message, is_note))] = findings(settings, train_dataset=_Sized(11)).items()
    assert key == "settings.step_profile.local_train_micro_batch_size"
    assert message.startswith("one step takes 12 samples (2 x 2 x 3, that is dp_degree x ")
    assert "the training dataset has only 11" in message
    assert not is_note


def test_the_size_of_packed_data_is_known_before_they_are_built(settings, tmp_path):
    path = tmp_path / "train.pbin"
    with PackedFileWriter(path, 1) as writer:
        writer.write_document([1] * (8 * 120))  # the last sample lacks the token after its last one
    config = {"raw_data_path": path, "sequence_length": 8}
    enough = component("packed_mem_map_dataset_continuous", reuse_last_target=False, **config)
    assert findings(settings, train_dataset=enough) == {}
    too_few = component("packed_mem_map_dataset_continuous", reuse_last_target=True, **config)
    [(key, (message, _))] = findings(settings, train_dataset=too_few).items()
    assert key == "settings.training_target.num_target_tokens"
    assert message.startswith("the training dataset has 952 tokens (119 samples of 8), num_target_tokens is 960")


@pytest.mark.parametrize("is_built", [True, False])
def test_evaluation_data_without_a_batch_are_a_fault(settings, is_built):
    loaders = [loader(_Sized(6)), loader(_Sized(5))]
    loaders[0].dataloader_tag = "other"
    if not is_built:
        sampler = component("distributed_sampler", num_replicas=2)
        batches = component("default", batch_size=3, sampler=sampler)
        dataset = component("dummy_dataset", num_samples=5)
        loaders[1] = component("default", dataset=dataset, batch_sampler=batches, dataloader_tag="val")
    [(key, (message, is_note))] = findings(settings, eval_dataloaders=loaders).items()
    assert key == "eval_dataloaders.1.config.batch_sampler"
    assert message.startswith(
        "the evaluation data loader 'val' has no batch: its dataset has 5 samples, a batch on all ranks needs 6 "
        "(2 ranks x 3)"
    )
    assert not is_note


def test_data_loaders_have_tags_of_their_own(settings):
    train, first, second = (component(dataloader_tag=tag) for tag in ("val", "val", "test"))
    found = findings(settings, train_dataloader=train, eval_dataloaders=[first, second])
    message = "the tag 'val' is that of train_dataloader, too; give each data loader a dataloader_tag of its own"
    assert found == {"eval_dataloaders.0": (message, False)}


def test_a_wrong_number_of_tokens_names_the_flag_in_full_and_the_option_for_the_number_of_processes(settings):
    found = findings(changed(settings, training_target__num_target_tokens=961))
    message, is_note = found["settings.training_target.num_target_tokens"]
    assert "or set settings.consistency_enforcement.enforce_tokens_per_step_consistency to false" in message
    assert "for 2 processes, `--world_size`" in message
    assert not is_note


def test_lengths_of_model_data_and_steps_have_to_agree(settings):
    model, dataset = component("gpt2", sequence_length=7), component(sequence_length=9)
    wrapped = component("model_initialized", model=component("fsdp2_wrapped", model=model))
    found = findings(settings, model_raw=wrapped, base=model, train_dataset=dataset)
    assert found.keys() == {"base.config.sequence_length", "train_dataset.config.sequence_length"}
    assert not any(is_note for _, is_note in found.values())
    assert found["base.config.sequence_length"][0].startswith("the model takes 7 tokens at once, but ")


def test_a_vocabulary_smaller_than_the_tokenizers_is_a_fault(settings, tmp_path):
    """B021"""
    path = tmp_path / "train.pbin"
    with PackedFileWriter(path, 1) as writer:
        writer.write_document([1] * 1000)
    record(StageIdentity("tokenized_pack", "1", {}, {}), path, BuildResult(details={"num_token_ids": 200}), 0.0)
    dataset = component(raw_data_path=path)
    model = component("gpt2", vocab_size=128)
    [(key, (message, is_note))] = findings(settings, model_raw=model, train_dataset=dataset).items()
    assert key == "model_raw.config.vocab_size"
    assert message == f"the model knows 128 token ids, but the tokenizer of {path} has 200"
    assert not is_note
    assert findings(settings, model_raw=component("gpt2", vocab_size=200), train_dataset=dataset) == {}


def test_tensors_are_found_under_one_name_from_the_data_to_the_loss(settings):
    collator = component(sample_key="input_ids", target_key="target_ids")
    masking = component(wrapped_collate_fn=collator)
    train = component(collate_fn=masking, dataset=component(sample_key="text"))
    found = findings(
        settings,
        model_raw=component(sample_key="tokens", prediction_key="logits"),
        loss_fn=component(prediction_key="logit", target_key="targets"),
        train_dataloader=train,
        collate_fn=collator,
    )
    assert {key: message for key, (message, is_note) in found.items() if not is_note} == {
        "loss_fn.config.prediction_key": "is 'logit', but the model's is 'logits'; they have to be the same",
        "train_dataloader.config.dataset.config.sample_key": (
            "is 'text', but the collator's sample_key is 'input_ids'; they have to be the same"
        ),
        "collate_fn.config.sample_key": (
            "is 'input_ids', but the model's sample_key is 'tokens'; they have to be the same"
        ),
        "collate_fn.config.target_key": (
            "is 'target_ids', but the loss's target_key is 'targets'; they have to be the same"
        ),
    }


def test_parts_that_the_training_does_not_use_are_noted(settings):
    found = findings(settings, mfu_calculator=component("gpt2"), profiler=component("no_profiler"))
    assert found == {"mfu_calculator": ("is not used by the training yet, and ignored", True)}


def test_everything_is_found_together(settings):
    """B078"""
    wrong = changed(
        settings,
        training_target__num_target_tokens=959,
        step_profile__dp_degree=3,
    )
    scheduler = component(warmup_steps=11)
    sections = {"app_state": component(lr_scheduler=scheduler), "eval_dataloaders": [loader(_Sized(5))]}
    assert findings(wrong, **sections).keys() == {
        "settings.training_target.num_target_tokens",
        "settings.step_profile.dp_degree",
        "app_state.config.lr_scheduler",
        "eval_dataloaders.0.config.batch_sampler",
    }
