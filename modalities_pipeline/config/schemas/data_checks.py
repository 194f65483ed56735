"""Whether the data of a training config suffice, and are cut as the rest expects."""

from collections.abc import Iterator
from typing import Any

from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.sections import (
    Sections,
    data_loaders_of,
    look,
    num_epochs_of,
    num_replicas_of,
    num_samples_of,
    number,
    path_of,
    text,
)

_PROFILE = ("settings", "step_profile")


def check_data(sections: Sections) -> Iterator[Finding]:
    """What is wrong with the datasets and data loaders."""
    yield from _check_amount(sections)
    yield from _check_train_batches(sections)
    for key_path, loader in data_loaders_of(sections):
        if key_path[0] == "eval_dataloaders":
            yield from _check_has_batch(loader, (*key_path, "config", "batch_sampler"))
    yield from _check_tags(sections)
    yield from _check_sequence_length(sections)


def _check_tags(sections: Sections) -> Iterator[Finding]:
    """Results are kept by the tag of their data loader, so that those of a second one would replace the first one's."""
    seen: dict[str, str] = {}
    for key_path, loader in data_loaders_of(sections):
        tag = text(loader, "dataloader_tag")
        if tag is None:
            continue
        where = ".".join(map(str, key_path))
        if tag in seen:
            message = f"the tag '{tag}' is that of {seen[tag]}, too; give each data loader a dataloader_tag of its own"
            yield Finding(path_of(loader, sections, key_path, "dataloader_tag"), message)
        seen.setdefault(tag, where)


def _check_amount(sections: Sections) -> Iterator[Finding]:
    """One step has to fit into the data, and all of the target."""
    settings, loader = sections["settings"], sections.get("train_dataloader")
    num_samples, num_epochs = num_samples_of(sections.get("train_dataset")), num_epochs_of(loader)
    sizes = [
        number(settings, "step_profile", name)
        for name in ("dp_degree", "gradient_accumulation_steps", "local_train_micro_batch_size")
    ]
    sequence_length = number(settings, "step_profile", "sequence_length")
    if num_samples is None or sequence_length is None:
        return
    epochs = f", {num_epochs} epochs" if num_epochs > 1 else ""
    samples_per_step = 1
    for size in sizes:
        samples_per_step *= size or 1
    if samples_per_step > num_samples * num_epochs:
        yield Finding(
            (*_PROFILE, "local_train_micro_batch_size"),
            f"one step takes {samples_per_step} samples ({' x '.join(map(str, sizes))}, that is dp_degree x "
            f"gradient_accumulation_steps x local_train_micro_batch_size), but the training dataset has only "
            f"{num_samples}{epochs}; lower one of these, or use more data",
        )
        return
    num_tokens = num_samples * sequence_length * num_epochs
    num_target_tokens = number(settings, "training_target", "num_target_tokens")
    if num_target_tokens is not None and num_tokens < num_target_tokens:
        is_enforced = look(settings, "consistency_enforcement", "enforce_enough_tokens_in_dataset") is not False
        yield Finding(
            ("settings", "training_target", "num_target_tokens"),
            f"the training dataset has {num_tokens} tokens ({num_samples} samples of {sequence_length}{epochs}), "
            f"num_target_tokens is {num_target_tokens}; use more data, or lower the target",
            is_note=not is_enforced,
        )


def _check_train_batches(sections: Sections) -> Iterator[Finding]:
    """The loader of training should give what the step profile counts."""
    profile, loader = look(sections, *_PROFILE), sections.get("train_dataloader")
    batch_sampler = look(loader, "batch_sampler")
    batch_size, expected = number(batch_sampler, "batch_size"), number(profile, "local_train_micro_batch_size")
    key_path = ("train_dataloader", "config", "batch_sampler", "config")
    if batch_size is not None and expected is not None and batch_size != expected:
        message = f"is {batch_size}, but settings.step_profile.local_train_micro_batch_size is {expected}"
        yield Finding((*key_path, "batch_size"), message, is_note=True)
    sampler = look(batch_sampler, "sampler")
    num_replicas, dp_degree = num_replicas_of(sampler), number(profile, "dp_degree")
    if sampler is not None and num_replicas is not None and dp_degree is not None and num_replicas != dp_degree:
        message = f"spreads the data over {num_replicas} ranks, but settings.step_profile.dp_degree is {dp_degree}"
        yield Finding((*key_path, "sampler"), message, is_note=True)


def _check_has_batch(loader: Any, key_path: tuple[str | int, ...]) -> Iterator[Finding]:
    num_samples = num_samples_of(look(loader, "dataset"))
    batch_size = number(loader, "batch_sampler", "batch_size")
    num_replicas = num_replicas_of(look(loader, "batch_sampler", "sampler"))
    if num_samples is None or batch_size is None or num_replicas is None or num_samples >= num_replicas * batch_size:
        return
    tag = text(loader, "dataloader_tag")
    yield Finding(
        key_path,
        f"the evaluation data loader '{tag}' has no batch: its dataset has {num_samples} samples, a batch on all ranks "
        f"needs {batch_size * num_replicas} ({num_replicas} ranks x {batch_size}); use more data, or smaller batches",
    )


def _check_sequence_length(sections: Sections) -> Iterator[Finding]:
    """Tokens are counted by the step profile's length, so samples of another one would be counted wrongly."""
    settings, dataset = sections["settings"], sections.get("train_dataset")
    given, expected = number(dataset, "sequence_length"), number(settings, "step_profile", "sequence_length")
    if given is None or expected is None or given == expected:
        return
    flag = "enforce_tokens_per_step_consistency"
    yield Finding(
        path_of(dataset, sections, ("train_dataset",), "sequence_length"),
        f"samples have {given} tokens, but settings.step_profile.sequence_length is {expected}",
        is_note=look(settings, "consistency_enforcement", flag) is False,
    )
