"""What has to hold between the sections of a training config is checked, and everything is found together."""

from training_check_helpers import Sized, changed, component, findings, loader


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
    sections = {"app_state": component(lr_scheduler=scheduler), "eval_dataloaders": [loader(Sized(5))]}
    assert findings(wrong, **sections).keys() == {
        "settings.training_target.num_target_tokens",
        "settings.step_profile.dp_degree",
        "app_state.config.lr_scheduler",
        "eval_dataloaders.0.config.batch_sampler",
    }
