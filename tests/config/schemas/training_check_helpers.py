"""What the tests of the checks of a training config share."""

from types import SimpleNamespace
from typing import Any

from modalities_pipeline.config.schemas.settings import TrainingSettings
from modalities_pipeline.config.schemas.training_checks import check_training
from modalities_pipeline.config.unbuilt import Unbuilt

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


class Sized:
    """A dataset of which only its size is known."""

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
