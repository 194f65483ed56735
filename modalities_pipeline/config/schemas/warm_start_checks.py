"""Whether a warm start, if the settings name a checkpoint, loads it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.sections import Sections, look, number
from modalities_pipeline.config.unbuilt import Unbuilt

_LOADING = ("dcp", "fsdp1_checkpointed")  # app states, models, optimizers
_TO_LOAD = (
    "make app_state an app_state/dcp whose checkpoint_dir_path is the checkpoint, or, of FSDP1's files, model and "
    "optimizer a model/fsdp1_checkpointed and an optimizer/fsdp1_checkpointed"
)
_PATHS_KEY = "warmstart_checkpoint_paths"
_PATHS = ("checkpoint_folder_path", "model_checkpoint_path", "optimizer_checkpoint_path")


def check_warm_start(sections: Sections) -> Iterator[Finding]:
    """A training that goes on from a checkpoint, as the settings say, which no component of the app state loads.

    A component of the user's own loads the checkpoint if one of its fields is its path, or is not known here.
    """
    settings, app_state = sections.get("settings"), sections.get("app_state")
    paths, num_steps = look(settings, _PATHS_KEY), number(settings, "training_progress", "num_seen_steps")
    if not isinstance(app_state, Unbuilt) or (paths is None and not num_steps):
        return
    own_paths = {str(path) for name in _PATHS if isinstance(path := look(paths, name), Path)}
    if any(_loads(component, own_paths) for component in _components_in(app_state)):
        return
    if paths is None:
        message = f"is {num_steps}, but no component loads a checkpoint, so that the weights begin anew"
        yield Finding(("settings", "training_progress", "num_seen_steps"), f"{message}; {_TO_LOAD}", is_note=True)
    else:
        message = "no component loads this checkpoint, so that the training would begin anew"
        yield Finding(("settings", _PATHS_KEY), f"{message}; {_TO_LOAD}")


def _loads(component: Unbuilt, paths: set[str]) -> bool:
    if component.config is None or component.variant_key in _LOADING:
        return True
    return any(str(value) in paths for value in vars(component.config).values() if isinstance(value, str | Path))


def _components_in(value: Any) -> Iterator[Unbuilt]:
    """All components within a value, itself included."""
    if isinstance(value, Unbuilt):
        yield value
        value = vars(value.config) if value.config is not None else {}
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _components_in(item)
