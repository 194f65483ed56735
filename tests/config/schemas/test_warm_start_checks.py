"""A checkpoint that the settings name has to be loaded by something."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.schemas.settings import WarmstartCheckpointPaths
from modalities_pipeline.config.schemas.warm_start_checks import check_warm_start
from modalities_pipeline.config.unbuilt import Unbuilt

FOLDER = Path("checkpoints/newest")


class _Config(ComponentConfig):
    part: Any = None
    parts: tuple[Any, ...] = ()
    path: Path | None = None


def component(variant: str = "mine", **config: Any) -> Unbuilt:
    return Unbuilt("some", variant, None, _Config(**config))


def messages(app_state: Any, paths: Any = None) -> list[str]:
    paths = paths or WarmstartCheckpointPaths(checkpoint_folder_path=FOLDER)
    settings = SimpleNamespace(warmstart_checkpoint_paths=paths)
    return [finding.message for finding in check_warm_start({"settings": settings, "app_state": app_state})]


def test_a_checkpoint_that_nothing_loads_is_a_fault():
    """Otherwise the training would silently begin anew."""
    for paths in (None, Unbuilt()):  # known, or not known before the warm start
        (message,) = messages(component("raw", parts=(component(path=Path("elsewhere")),)), paths)
        assert "app_state/dcp" in message
        assert "model/fsdp1_checkpointed and an optimizer/fsdp1_checkpointed" in message


@pytest.mark.parametrize(
    "app_state",
    [
        component("dcp", path=FOLDER),
        component("raw", part=component("wrapper", parts=(component("fsdp1_checkpointed"),))),
        component("raw", part=component(path=FOLDER)),
        component("raw", part=Unbuilt()),
        SimpleNamespace(),
    ],
    ids=["dcp", "fsdp1", "own loader", "not known", "built"],
)
def test_whatever_may_load_it_is_accepted(app_state):
    assert messages(app_state) == []


@pytest.mark.parametrize(("num_seen_steps", "num_notes"), [(0, 0), (5, 1)])
def test_steps_that_are_done_by_no_checkpoint_are_noted(num_seen_steps, num_notes):
    progress = SimpleNamespace(num_seen_steps=num_seen_steps)
    settings = SimpleNamespace(warmstart_checkpoint_paths=None, training_progress=progress)
    found = list(check_warm_start({"settings": settings, "app_state": component("raw")}))
    assert [finding.key_path[-1] for finding in found if finding.is_note] == ["num_seen_steps"] * num_notes
    assert len(found) == num_notes
