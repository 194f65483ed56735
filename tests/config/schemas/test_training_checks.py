"""What has to hold between the sections of a training config is checked, and everything is found together."""

from typing import Any

from training_check_helpers import Sized, changed, component, findings, loader

from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.configs import DeviceMeshConfig


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


def test_lengths_of_model_data_and_steps_have_to_agree(settings):
    model, dataset = component("gpt2", sequence_length=7), component(sequence_length=9)
    wrapped = component("model_initialized", model=component("fsdp2_wrapped", model=model))
    found = findings(settings, model_raw=wrapped, base=model, train_dataset=dataset)
    assert found.keys() == {"base.config.sequence_length", "train_dataset.config.sequence_length"}
    assert not any(is_note for _, is_note in found.values())
    assert found["base.config.sequence_length"][0].startswith("the model takes 7 tokens at once, but ")


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


def test_a_loss_that_the_model_computes_is_the_one_that_is_asked_for(settings):
    """Also where it is one of a sum; else the loss of other targets would be reported, or with another rounding."""
    model = component("gpt2", prediction_key="logits", fused_loss=component(target_key="target_ids"))
    clm = component(target_key="targets", prediction_key="logits", computes_in_fp32=False)
    messages = ["is 'targets', but that of the model's fused_loss is 'target_ids'; they have to be the same"]
    messages += ["is false, but the model's fused_loss is computed in float32"]
    for loss, place in (
        (clm, "loss_fn.config"),
        (component(losses=[component(prediction_key1="a"), clm]), "loss_fn.config.losses.1.config"),
    ):
        keys = [f"{place}.target_key", f"{place}.computes_in_fp32"]
        found = findings(settings, model_raw=model, loss_fn=loss)
        assert found == {key: (message, False) for key, message in zip(keys, messages, strict=True)}
    right = component(target_key="target_ids", prediction_key="logits", computes_in_fp32=True)
    assert findings(settings, model_raw=model, loss_fn=right) == {}


def test_a_schedule_of_another_length_is_a_fault_where_it_cannot_go_on(settings):
    """B078: one cycle raises at its end; others stay at their last rate, or rise again."""
    for variant, fields, key, part, is_note in (
        ("onecycle_lr", {"total_steps": 9}, "total_steps", "ends after 9 steps", False),
        ("onecycle_lr", {"total_steps": 11}, "total_steps", "made for 11 steps", True),
        ("onecycle_lr", {"total_steps": None, "epochs": 3, "steps_per_epoch": 3}, "epochs", "after 9 steps", False),
        ("cosine_annealing_lr", {"t_max": 9}, "t_max", "rises again", True),
    ):
        scheduler = component(variant, **fields)
        found = findings(settings, app_state=component(lr_scheduler=scheduler), lr_scheduler=scheduler)
        [(place, (message, found_note))] = found.items()
        assert (place, found_note) == (f"lr_scheduler.config.{key}", is_note)
        assert part in message


def test_pipelines_and_several_model_parts_are_faults(settings):
    """They are found before anything is built, not after the first step."""
    app_state = component(raw_app_state=component(model=[component("a"), component("b")]))
    found = findings(settings, scheduled_pipeline=component("scheduled"), app_state=app_state)
    assert found.keys() == {"scheduled_pipeline", "app_state"}
    assert all("not supported in this version" in message and not is_note for message, is_note in found.values())
    whole = component(model=[component("a")])
    assert findings(settings, app_state=whole, profiler=component(), mfu_calculator=component("gpt2")) == {}


def test_everything_is_found_together(settings):
    """B078"""
    wrong = changed(
        settings,
        training_target__num_target_tokens=959,
        step_profile__dp_degree=3,
    )
    scheduler = component(warmup_steps=11)
    sections = {"app_state": component(lr_scheduler=scheduler), "eval_dataloaders": [loader(Sized(5))]}
    assert findings(wrong, **sections).keys() == {
        "settings.training_target.num_target_tokens",
        "settings.step_profile.dp_degree",
        "app_state.config.lr_scheduler",
        "eval_dataloaders.0.config.batch_sampler",
    }


def test_a_mesh_of_another_number_of_processes_is_a_fault(settings):
    def mesh(world_size: int) -> Any:
        return component(world_size=world_size)

    assert findings(settings, device_mesh=mesh(2)) == {}
    [(key, (message, is_note))] = findings(settings, device_mesh=mesh(1)).items()
    assert key == "device_mesh.config.world_size"
    assert message.startswith("is 1, but there are 2 processes; write ${cuda_env:WORLD_SIZE}")
    assert not is_note


def test_a_mesh_along_which_the_model_is_not_split_is_told(settings):
    """W18: with a dimension pp the gradients of ranks that do the same work were added up in their norm."""
    mesh = {"world_size": 4, "data_parallel_shard_degree": 1}
    found = {}
    for name in ("pipeline", "tensor"):
        config = DeviceMeshConfig(**mesh, **{f"{name}_parallel_degree": 4})
        device_mesh = Unbuilt("device_mesh", "default", None, config)
        found[name] = findings(settings, device_mesh=device_mesh, app_state=component(model=component("gpt2")))
    message, is_note = found["pipeline"]["device_mesh.config.pipeline_parallel_degree"]
    assert "not supported in this version" in message
    assert not is_note
    message, is_note = found["tensor"]["device_mesh.config.tensor_parallel_degree"]
    assert "no model/gpt2_tp splits the model" in message
    assert is_note
    split = component(model=component("fsdp2_wrapped", model=component("gpt2_tp", model=component("gpt2"))))
    assert not any("tensor" in key for key in findings(settings, device_mesh=device_mesh, app_state=split))
