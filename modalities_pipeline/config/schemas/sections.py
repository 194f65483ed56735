"""Reads the sections of a training config, whether their components are built or not. Imports no torch."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.config.origins import KeyPath
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.data.packed.pbin_header import read_header
from modalities_pipeline.distributed.configs import static_parallel_degree
from modalities_pipeline.exceptions import UserError

Sections = Mapping[str, Any]

_CONTINUOUS = "packed_mem_map_dataset_continuous"


def look(value: Any, *names: str) -> Any:
    """What lies under these names in sections, settings, the config of an unbuilt component, or a built object."""
    for name in names:
        if isinstance(value, Unbuilt):
            value = value.config
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def number(value: Any, *names: str) -> int | None:
    """The number under these names, None if it is not known (yet)."""
    found = look(value, *names)
    return found if isinstance(found, int) else None


def text(value: Any, *names: str) -> str | None:
    """The text under these names, None if there is none."""
    found = look(value, *names)
    return found if isinstance(found, str) else None


def path_of(component: Any, sections: Sections, otherwise: KeyPath, *names: str) -> KeyPath:
    """The key path of a field of a component that is a section of its own, else `otherwise`."""
    for name, section in sections.items():
        if section is component:
            return (name, "config", *names)
    return otherwise


def base_model_of(sections: Sections) -> Any:
    """The model without its wrappers (of sharding, initialisation, ...)."""
    model = sections.get("model_raw")
    while isinstance(model, Unbuilt) and isinstance(inner := look(model, "model"), Unbuilt):
        model = inner
    return model


def lr_scheduler_of(sections: Sections) -> Any:
    """The scheduler of the app state, which may have one inside."""
    app_state = sections.get("app_state")
    return look(app_state, "lr_scheduler") or look(app_state, "raw_app_state", "lr_scheduler")


def data_loaders_of(sections: Sections) -> Iterator[tuple[KeyPath, Any]]:
    """Every data loader with its key path: that of training, then those of evaluation."""
    yield ("train_dataloader",), sections.get("train_dataloader")
    evaluation = sections.get("eval_dataloaders")
    if isinstance(evaluation, list):
        for index, loader in enumerate(evaluation):
            yield ("eval_dataloaders", index), loader


def num_replicas_of(sampler: Any) -> int | None:
    """Over how many ranks a sampler spreads the data; 1 if it does not."""
    if look(sampler, "device_mesh") is None or number(sampler, "num_replicas") is not None:
        is_spread = isinstance(sampler, Unbuilt) and sampler.variant_key not in (None, "sequential_sampler")
        return number(sampler, "num_replicas") or (None if is_spread else 1)
    keys = look(sampler, "data_parallel_key")
    keys = keys if isinstance(keys, list) else [keys]
    are_known = all(isinstance(key, str) for key in keys)
    return static_parallel_degree(look(sampler, "device_mesh"), keys) if are_known else None


def num_samples_of(dataset: Any) -> int | None:
    """Number of samples of a dataset; of one that is not built, what its file says. None if not known."""
    if not isinstance(dataset, Unbuilt):
        return len(dataset) if hasattr(dataset, "__len__") and not isinstance(dataset, str | Mapping) else None
    if dataset.variant_key == "dummy_dataset":
        return number(dataset, "num_samples")
    if dataset.variant_key == "combined":
        sizes = [num_samples_of(part) for part in look(dataset, "datasets") or []]
        return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None
    if dataset.variant_key == _CONTINUOUS:
        return _num_samples_in_file(dataset)
    return None


def _num_samples_in_file(dataset: Unbuilt) -> int | None:
    path, sequence_length = look(dataset, "raw_data_path"), number(dataset, "sequence_length")
    if not isinstance(path, Path) or not path.is_file() or not sequence_length:
        return None
    try:
        num_tokens = read_header(path).num_tokens
    except UserError:  # building the dataset says what is wrong with its file
        return None
    return max((num_tokens - bool(look(dataset, "reuse_last_target"))) // sequence_length, 0)


def num_epochs_of(loader: Any) -> int:
    """How often a data loader goes through its data."""
    return number(loader, "batch_sampler", "sampler", "num_epochs") or 1
