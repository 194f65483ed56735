"""What has to hold between the sections of a training config, in exact integers."""

from collections.abc import Iterator
from typing import Any

from modalities_pipeline.config.model_parts import models_inside
from modalities_pipeline.config.schemas.architecture_checks import check_architecture
from modalities_pipeline.config.schemas.data_checks import check_data
from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.model_checks import check_model
from modalities_pipeline.config.schemas.sections import Sections, look, lr_scheduler_of, number, path_of
from modalities_pipeline.config.schemas.warm_start_checks import check_warm_start
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.configs import static_parallel_degree

_TARGET = ("settings", "training_target")
_LAST_STEP = (
    ("logged", "training_log_interval_in_steps"),
    ("evaluated", "evaluation_interval_in_steps"),
    ("checkpointed", "checkpointing_interval_in_steps"),
)


def check_training(sections: Sections) -> Iterator[Finding]:
    """Everything that can be said of the sections, whose components may be built or not.

    What is not known yet is left out; the checks are done again when everything is built.
    """
    settings = sections.get("settings")
    if settings is None:
        return
    yield from _check_progress(settings)
    yield from _check_tokens_per_step(settings)
    yield from _check_last_step(settings)
    yield from _check_world_size(settings, sections)
    yield from _check_data_parallel_degree(settings, sections)
    yield from _check_lr_scheduler(settings, sections)
    yield from _check_model_parts(sections)
    yield from check_data(sections)
    yield from check_model(sections)
    yield from check_architecture(sections)
    yield from check_warm_start(sections)


def _check_progress(settings: Any) -> Iterator[Finding]:
    for seen_name, target_name in (
        ("num_seen_steps", "num_target_steps"),
        ("global_num_seen_tokens", "num_target_tokens"),
    ):
        seen, target = number(settings, "training_progress", seen_name), number(settings, _TARGET[1], target_name)
        if seen is not None and target is not None and seen > target:
            yield Finding((*_TARGET, target_name), f"{seen_name} {seen} is beyond {target_name} {target}; raise it")
    last_step = number(settings, "training_progress", "last_step")
    seen = number(settings, "training_progress", "num_seen_steps")
    if last_step is not None and seen is not None and last_step != seen - 1:
        key_path = ("settings", "training_progress", "last_step")
        yield Finding(key_path, f"is {last_step}, but after {seen} steps the last one is {seen - 1}", is_note=True)


def _check_tokens_per_step(settings: Any) -> Iterator[Finding]:
    """Steps that are left, times the tokens of one, have to be the tokens that are left; also if none are left."""
    target_tokens, target_steps = (
        number(settings, _TARGET[1], name) for name in ("num_target_tokens", "num_target_steps")
    )
    seen_tokens, seen_steps = (
        number(settings, "training_progress", name) for name in ("global_num_seen_tokens", "num_seen_steps")
    )
    factors = [
        number(settings, "step_profile", name)
        for name in ("dp_degree", "gradient_accumulation_steps", "local_train_micro_batch_size", "sequence_length")
    ]
    if target_tokens is None or target_steps is None or seen_tokens is None or seen_steps is None or None in factors:
        return
    per_step = 1
    for factor in factors:
        per_step *= factor or 1
    num_steps, num_tokens = target_steps - seen_steps, target_tokens - seen_tokens
    if num_steps < 0 or num_tokens == num_steps * per_step:
        return
    message = (
        f"{num_tokens} tokens are left for {num_steps} steps, but these consume {num_steps * per_step} "
        f"({per_step} a step: {' x '.join(map(str, factors))}, that is dp_degree x gradient_accumulation_steps x "
        f"local_train_micro_batch_size x sequence_length); num_target_tokens would have to be "
        f"{seen_tokens + num_steps * per_step}"
    )
    dp_degree, world_size = factors[0], number(settings, "cuda_env", "world_size")
    if dp_degree == world_size:
        message += f"; this is for {world_size} processes, `--world_size` checks a config for another number"
    yield _enforced(settings, "enforce_tokens_per_step_consistency", (*_TARGET, "num_target_tokens"), message)


def _enforced(settings: Any, flag: str, key_path: tuple[str | int, ...], message: str) -> Finding:
    """A fault if the flag is set, and says so; else a note."""
    if look(settings, "consistency_enforcement", flag) is False:
        return Finding(key_path, message, is_note=True)
    return Finding(key_path, f"{message}; or set settings.consistency_enforcement.{flag} to false")


def _check_last_step(settings: Any) -> Iterator[Finding]:
    """Say what will be left out at the last step: the loop counts all steps, also those before a warm start."""
    num_steps = number(settings, _TARGET[1], "num_target_steps")
    for what, name in _LAST_STEP:
        interval = number(settings, "intervals", name)
        is_enforced = look(settings, "consistency_enforcement", f"enforce_last_step_{what}") is not False
        if num_steps is not None and interval is not None and not is_enforced and num_steps % interval != 0:
            message = f"the last step ({num_steps}) will not be {what}: it is no multiple of {interval}"
            yield Finding(("settings", "intervals", name), message, is_note=True)


def _check_world_size(settings: Any, sections: Sections) -> Iterator[Finding]:
    """A mesh of another number of processes cannot be made of those that there are."""
    mesh = sections.get("device_mesh")
    given, world_size = number(mesh, "world_size"), number(settings, "cuda_env", "world_size")
    if given is not None and world_size is not None and given != world_size:
        message = (
            f"is {given}, but there are {world_size} processes; write ${{cuda_env:WORLD_SIZE}} (`--world_size` sets "
            "the number of processes that a config is checked for)"
        )
        yield Finding(path_of(mesh, sections, ("device_mesh", "config"), "world_size"), message)


def _check_data_parallel_degree(settings: Any, sections: Sections) -> Iterator[Finding]:
    dp_degree, world_size = number(settings, "step_profile", "dp_degree"), number(settings, "cuda_env", "world_size")
    if dp_degree is None or world_size is None:
        return
    mesh = sections.get("device_mesh")
    expected: int | None = world_size
    why = f"there are {world_size} processes and no device_mesh that uses them otherwise"
    if mesh is not None:
        expected = static_parallel_degree(mesh, ["dp_replicate", "dp_shard"])
        why = "that is the device_mesh's data parallel degree (replicate x shard)"
    if expected is not None and dp_degree != expected:
        message = (
            f"is {dp_degree}, but has to be {expected}: {why}; `--world_size` sets the number of processes that a "
        )
        message += "config is checked for"
        key_path = ("settings", "step_profile", "dp_degree")
        yield _enforced(settings, "enforce_tokens_per_step_consistency", key_path, message)


def _check_model_parts(sections: Sections) -> Iterator[Finding]:
    """The training takes a model in one piece only."""
    refused = "training by pipeline parallelism is not supported in this version"
    if sections.get("scheduled_pipeline") is not None:
        yield Finding(("scheduled_pipeline",), f"{refused}; leave it out, and give app_state one model")
    app_state = sections.get("app_state")
    while (inner := look(app_state, "raw_app_state")) is not None:
        app_state = inner
    model = look(app_state, "model") if isinstance(app_state, Unbuilt) else look(app_state, "model_parts")
    if isinstance(model, list) and len(model) > 1:
        yield Finding(("app_state",), f"the model consists of {len(model)} parts, but {refused}; give it one model")
    elif sections.get("scheduled_pipeline") is None:
        yield from _check_mesh(sections, model, refused)


def _check_mesh(sections: Sections, model: Any, refused: str) -> Iterator[Finding]:
    """Dimensions of the mesh along which the model is not split: ranks would do the same work."""
    for name, field in (("pp", "pipeline_parallel_degree"), ("tp", "tensor_parallel_degree")):
        degree = static_parallel_degree(sections.get("device_mesh"), [name])
        at_degree = ("device_mesh", "config", field)
        if degree is None or degree == 1:
            continue
        if name == "pp":
            yield Finding(at_degree, f"is {degree}, but {refused}; leave it out")
        elif (kinds := [part.variant_key for part in models_inside(model)]) and "gpt2_tp" not in kinds:
            message = f"is {degree}, but no model/gpt2_tp splits the model: {degree} ranks each do the same work"
            yield Finding(at_degree, message, is_note=True)


def _check_lr_scheduler(settings: Any, sections: Sections) -> Iterator[Finding]:
    scheduler = lr_scheduler_of(sections)
    num_steps = number(settings, _TARGET[1], "num_target_steps")
    if num_steps is None or scheduler is None:
        return
    inside = ("app_state", "config", "lr_scheduler")
    warmup_steps = number(scheduler, "warmup_steps")
    name, length = _length_of(scheduler)
    key_path = path_of(scheduler, sections, inside, name)
    if warmup_steps is not None and warmup_steps > num_steps:
        message = f"the warm-up of {warmup_steps} steps is longer than the training of {num_steps}"
        yield Finding(path_of(scheduler, sections, inside, "warmup_steps"), message)
    elif length is None or length == num_steps:
        return
    elif getattr(scheduler, "variant_key", None) == "onecycle_lr" and length < num_steps:
        yield Finding(key_path, f"the schedule ends after {length} steps, but num_target_steps is {num_steps}")
    else:
        rises = "; the learning rate rises again after them" if name == "t_max" and length < num_steps else ""
        message = f"the schedule is made for {length} steps{rises}, but num_target_steps is {num_steps}"
        yield Finding(key_path, message, is_note=True)


def _length_of(scheduler: Any) -> tuple[str, int | None]:
    """(field that says it, number of steps for which a schedule is made), None if it does not say."""
    epochs, steps_per_epoch = number(scheduler, "epochs"), number(scheduler, "steps_per_epoch")
    if number(scheduler, "total_steps") is None and epochs is not None and steps_per_epoch is not None:
        return "epochs", epochs * steps_per_epoch
    name = "t_max" if number(scheduler, "t_max") is not None else "total_steps"
    return name, number(scheduler, name)
