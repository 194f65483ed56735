"""Whether model, loss, collator and data of a training config fit each other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from modalities_pipeline.config.origins import KeyPath
from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.sections import (
    Sections,
    base_model_of,
    data_loaders_of,
    look,
    number,
    path_of,
    text,
)


def check_model(sections: Sections) -> Iterator[Finding]:
    """What of the model does not fit the data, the collators and the loss."""
    model = base_model_of(sections)
    yield from _check_lengths(model, sections)
    yield from _check_vocabulary(model, sections)
    yield from _check_prediction(model, sections)
    for key_path, loader in data_loaders_of(sections):
        yield from _check_keys(model, loader, (*key_path, "config"), sections)


def _check_lengths(model: Any, sections: Sections) -> Iterator[Finding]:
    longest, length = number(model, "sequence_length"), number(sections, "settings", "step_profile", "sequence_length")
    if longest is not None and length is not None and longest < length:
        yield Finding(
            path_of(model, sections, ("model_raw",), "sequence_length"),
            f"the model takes {longest} tokens at once, but settings.step_profile.sequence_length is {length}",
        )


def _check_vocabulary(model: Any, sections: Sections) -> Iterator[Finding]:
    vocab_size = number(model, "vocab_size")
    if vocab_size is None:
        return
    datasets = [sections.get("train_dataset"), *(look(loader, "dataset") for _, loader in data_loaders_of(sections))]
    paths = {path: None for dataset in datasets if isinstance(path := look(dataset, "raw_data_path"), Path)}
    for path in paths:
        num_token_ids = _num_token_ids(path)
        if num_token_ids is not None and num_token_ids > vocab_size:
            yield Finding(
                path_of(model, sections, ("model_raw",), "vocab_size"),
                f"the model knows {vocab_size} token ids, but the tokenizer of {path} has {num_token_ids}",
            )


def _num_token_ids(path: Path) -> int | None:
    from modalities_pipeline.data.manifest import read_manifest  # only where there are data

    manifest = read_manifest(path) if path.is_file() else None
    number_of_ids = manifest.details.get("num_token_ids") if manifest else None
    return number_of_ids if isinstance(number_of_ids, int) else None


def _check_prediction(model: Any, sections: Sections) -> Iterator[Finding]:
    for key_path, loss in _losses(sections):
        at_field = path_of(loss, sections, (*key_path, "config"))
        given = text(loss, "prediction_key")
        yield from _differ((*at_field, "prediction_key"), given, "the model's", _key(model, "prediction"))
        yield from _check_fused_loss(model, loss, at_field)


def _check_fused_loss(model: Any, loss: Any, at_loss: KeyPath) -> Iterator[Finding]:
    """What a model computes itself is taken over by the loss as it is."""
    fused_loss = look(model, "fused_loss")
    if fused_loss is None or text(loss, "prediction_key") is None:  # others do not look at it
        return
    target_key, expected = text(loss, "target_key"), text(fused_loss, "target_key")
    yield from _differ((*at_loss, "target_key"), target_key, "that of the model's fused_loss", expected)
    if look(loss, "computes_in_fp32") is False:
        yield Finding((*at_loss, "computes_in_fp32"), "is false, but the model's fused_loss is computed in float32")


def _losses(sections: Sections) -> Iterator[tuple[KeyPath, Any]]:
    """The loss with its key path, or those of which it is the sum."""
    loss = sections.get("loss_fn")
    parts = look(loss, "losses")
    if not isinstance(parts, list):
        yield ("loss_fn",), loss
        return
    for index, part in enumerate(parts):
        yield ("loss_fn", "config", "losses", index), part


def _check_keys(model: Any, loader: Any, key_path: KeyPath, sections: Sections) -> Iterator[Finding]:
    """From the dataset through the collator into model and loss: each has to find the tensors under its name."""
    collator = _innermost_collator(look(loader, "collate_fn"))
    at_collator = path_of(collator, sections, (*key_path, "collate_fn", "config"))
    dataset = look(loader, "dataset")
    at_dataset = path_of(dataset, sections, (*key_path, "dataset", "config", "sample_key"), "sample_key")
    sample_key = text(collator, "sample_key")
    yield from _differ(at_dataset, _key(dataset, "sample"), "the collator's sample_key", sample_key)
    yield from _differ((*at_collator, "sample_key"), sample_key, "the model's sample_key", _key(model, "sample"))
    at_target, given = (*at_collator, "target_key"), text(collator, "target_key")
    for target_key in dict.fromkeys(text(loss, "target_key") for _, loss in _losses(sections)):
        yield from _differ(at_target, given, "the loss's target_key", target_key)


def _innermost_collator(collator: Any) -> Any:
    while (inner := look(collator, "wrapped_collate_fn")) is not None:
        collator = inner
    return collator


def _key(component: Any, name: str) -> str | None:
    """`sample_key` or `prediction_key` of a component, or of the config that a built one keeps."""
    return text(component, f"{name}_key") or text(component, "config", f"{name}_key")


def _differ(key_path: KeyPath, given: str | None, of_whom: str, expected: str | None) -> Iterator[Finding]:
    if given is not None and expected is not None and given != expected:
        yield Finding(key_path, f"is '{given}', but {of_whom} is '{expected}'; they have to be the same")
