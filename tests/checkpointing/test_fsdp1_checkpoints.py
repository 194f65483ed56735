"""Checkpoints of one file for the model and one for the optimizer: named like Modalities', whole, and read back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.fsdp1_loading import FSDP1CheckpointLoading, get_fsdp1_checkpointed_optimizer
from modalities_pipeline.checkpointing.fsdp1_saving import FSDP1CheckpointSaving
from modalities_pipeline.checkpointing.saving import CheckpointSaving
from modalities_pipeline.checkpointing.strategies import SaveKMostRecentCheckpointsStrategy
from modalities_pipeline.checkpointing.torch_loading import TorchCheckpointLoading, get_checkpointed_model
from modalities_pipeline.distributed.configs import MixedPrecisionSettings, ShardingStrategy
from modalities_pipeline.exceptions import CheckpointingError, OutputNotWritableError, RunningEnvError
from modalities_pipeline.optim.optimizers_list import OptimizersList
from modalities_pipeline.progress.training_progress import TrainingProgress

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*NO_SHARD"),
    pytest.mark.filterwarnings("ignore:FSDP.state_dict_type"),
]

NAMES = json.loads((Path(__file__).parent / "vectors" / "checkpointing.json").read_text("utf-8"))["names"]


@pytest.fixture
def save(tmp_path: Path, make_progress: Any, make_app_state: Any) -> Callable[..., tuple[Path, Path]]:
    """Function steps, k -> paths of the files that a new process saved (or not)."""

    def save_step(num_steps: int, k: int = -1, app_state: AppState | None = None) -> tuple[Path, Path]:
        execution = FSDP1CheckpointSaving(tmp_path, global_rank=0, experiment_id="x")
        saving = CheckpointSaving(SaveKMostRecentCheckpointsStrategy(k), execution)
        progress = make_progress(num_steps)
        saving.save_checkpoint(progress, None, app_state or make_app_state(num_steps=num_steps))
        return execution.file_paths(progress)

    return save_step


@pytest.fixture
def loading() -> FSDP1CheckpointLoading:
    """Loads models whose layers are units, without mixed precision."""
    return FSDP1CheckpointLoading(0, ["Linear"], MixedPrecisionSettings.NO_MIXED_PRECISION, ShardingStrategy.FULL_SHARD)


def _exists(files: list[tuple[Path, Path]]) -> list[bool]:
    assert all(model.exists() == optimizer.exists() for model, optimizer in files)
    return [model.exists() for model, _ in files]


def test_names_are_those_of_modalities(tmp_path, make_app_state):
    experiment_id = Path(NAMES["dcp_folder"]).name.removeprefix("eid_").split("-seen_steps")[0]
    progress = TrainingProgress(4, 512, 20, 2560, num_seen_steps_previous_run=4, num_seen_tokens_previous_run=512)
    saving = CheckpointSaving(SaveKMostRecentCheckpointsStrategy(1), FSDP1CheckpointSaving(tmp_path, 0, experiment_id))
    saving.save_checkpoint(progress, None, make_app_state(num_steps=1))
    model, optimizer = (Path(NAMES[f"fsdp1_{entity}"]).name for entity in ("model", "optimizer"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [model, optimizer, NAMES["info_file"]]
    info = json.loads((tmp_path / NAMES["info_file"]).read_text("utf-8"))
    assert list(info) == NAMES["fsdp1_info_keys"]
    assert list(info.values()) == [str(tmp_path / model), str(tmp_path / optimizer)]


def test_without_a_process_group_a_plain_model_is_saved_and_read_back(save, make_app_state):
    saved, app_state = make_app_state(num_steps=3), make_app_state()
    files = save(3, app_state=saved)
    loading, (model,) = TorchCheckpointLoading("cpu"), app_state.model_parts
    assert get_checkpointed_model(loading, files[0], model) is model
    optimizer = get_fsdp1_checkpointed_optimizer(loading, files[1], model, app_state.optimizer)
    assert all(torch.equal(model.state_dict()[key], tensor) for key, tensor in _weights(saved).items())
    for old, new in zip(saved.optimizer.state.values(), optimizer.state.values(), strict=True):
        assert all(torch.equal(new[key], tensor) for key, tensor in old.items())


def _weights(app_state: AppState) -> dict[str, torch.Tensor]:
    (model,) = app_state.model_parts
    return model.state_dict()


def test_only_the_newest_are_kept_also_after_a_restart(save, tmp_path):
    """W26: each save is by a new process here, which does not forget what the ones before it saved."""
    files = [save(step, k=2) for step in (2, 4, 6)]
    assert _exists(files) == [False, True, True]
    assert len(list(tmp_path.iterdir())) == 5


def test_a_deletion_that_fails_ends_nothing(save, monkeypatch, caplog):
    """W2"""
    first, unlink = save(2, k=1), Path.unlink

    def fail(path: Path, missing_ok: bool = False) -> None:
        if path in first:
            raise OSError("no")
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fail)
        second = save(4, k=1)
    assert f"{first[0]} could not be deleted: no" in caplog.text
    assert _exists([first, second]) == [True, True]
    save(6, k=1)
    assert _exists([first, second]) == [False, False]


def test_a_save_that_fails_leaves_the_older_checkpoint_as_the_newest(save, tmp_path, monkeypatch):
    """B060: keep 1 and let the second file of a checkpoint fail."""
    first = save(2, k=1)
    write = torch.save

    def fail(content: Any, path: Path) -> None:
        if "optimizer" in path.name:
            raise RuntimeError("PytorchStreamWriter failed writing file")
        write(content, path)

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OutputNotWritableError, match="failed writing file"):
        save(4, k=1)
    info = json.loads((tmp_path / NAMES["info_file"]).read_text("utf-8"))
    assert info["model_checkpoint_path"] == str(first[0])
    assert sorted(tmp_path.iterdir()) == [*first, tmp_path / NAMES["info_file"]]


def test_half_of_a_checkpoint_does_not_count(save, caplog):
    files = [save(step) for step in (2, 4)]
    files[1][1].unlink()
    save(6, k=2)
    assert files[0][0].exists()  # the newest two are those of steps 2 and 6
    assert f"{files[1][0]} has no file of the optimizer" in caplog.text


def test_leftovers_of_a_killed_save_are_removed_by_the_next(save, tmp_path):
    leftover = tmp_path / ".eid_x-model-seen_steps_2-seen_tokens_1-target_steps_1-target_tokens_1.bin.abc.tmp"
    other = tmp_path / ".eid_y-model-seen_steps_2-seen_tokens_1-target_steps_1-target_tokens_1.bin.abc.tmp"
    for path in (leftover, other):
        path.touch()
    save(2)
    assert not leftover.exists()
    assert other.exists()


def test_a_model_in_parts_does_not_go_into_one_file(save, make_app_state):
    parts = [make_app_state() for _ in range(2)]
    models = [model for app_state in parts for model in app_state.model_parts]
    optimizer = OptimizersList(models, [app_state.optimizer for app_state in parts])
    with pytest.raises(CheckpointingError, match=r"parts of a model cannot be saved as one file\. Use the execution"):
        save(2, app_state=AppState(models, optimizer))


@pytest.fixture
def modalities_files(tmp_path: Path, make_app_state: Any) -> tuple[Path, Path, AppState]:
    """Files with the content that Modalities writes with FSDP1 and an older torch, and what is in them."""
    app_state = make_app_state(num_steps=3)
    (model,) = app_state.model_parts
    names = {parameter: name for name, parameter in model.named_parameters()}
    state = {names[parameter]: values for parameter, values in app_state.optimizer.state.items()}
    (group,) = app_state.optimizer.state_dict()["param_groups"]
    group = {key: value for key, value in group.items() if key != "decoupled_weight_decay"}
    paths = [tmp_path / Path(NAMES[f"fsdp1_{entity}"]).name for entity in ("model", "optimizer")]
    torch.save(model.state_dict(), paths[0])
    torch.save({"state": state, "param_groups": [{**group, "params": list(names.values())}]}, paths[1])
    return paths[0], paths[1], app_state


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("on_meta_device", [False, True])
def test_files_of_modalities_are_loaded_into_a_wrapped_model(on_meta_device, modalities_files, loading, make_app_state):
    model_path, optimizer_path, saved = modalities_files
    (plain,) = make_app_state().model_parts
    model = get_checkpointed_model(loading, model_path, plain.to("meta") if on_meta_device else plain)
    assert isinstance(model, FullyShardedDataParallel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    assert get_fsdp1_checkpointed_optimizer(loading, optimizer_path, model, optimizer) is optimizer
    _step(model, optimizer)
    (expected,) = saved.model_parts
    _step(expected, saved.optimizer)
    for (name, tensor), parameter in zip(expected.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(tensor, parameter), name


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.usefixtures("process_group")
def test_the_model_keeps_its_own_dtypes(modalities_files, loading, make_app_state):
    model_path, _, saved = modalities_files
    torch.save({name: tensor.to(torch.bfloat16) for name, tensor in _weights(saved).items()}, model_path)
    model = loading.load_model_checkpoint(*make_app_state().model_parts, model_path)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    weight = _weights(saved)["0.weight"]
    assert torch.equal(next(model.parameters()), weight.to(torch.bfloat16).float())


@pytest.mark.usefixtures("process_group")
def test_files_of_another_model_are_refused_with_all_differences(modalities_files, loading, make_app_state):
    """B064"""
    model_path, optimizer_path, _ = modalities_files
    other = make_app_state(num_layers=3)
    with pytest.raises(CheckpointingError, match=r"it lacks 2\.bias, 2\.weight"):
        loading.load_model_checkpoint(*other.model_parts, model_path)
    with pytest.raises(CheckpointingError, match=r"not a checkpoint of this optimizer: it lacks 2\.bias, 2\.weight"):
        loading.load_optimizer_checkpoint_(other.optimizer, *other.model_parts, optimizer_path)
    smaller = make_app_state(num_layers=1)
    with pytest.raises(CheckpointingError, match=r"the optimizer lacks 1\.bias, 1\.weight"):
        TorchCheckpointLoading("cpu").load_optimizer_checkpoint_(
            smaller.optimizer, *smaller.model_parts, optimizer_path
        )
    with pytest.raises(CheckpointingError, match="holds no state of an optimizer"):
        loading.load_optimizer_checkpoint_(other.optimizer, *other.model_parts, model_path)
    with pytest.raises(CheckpointingError, match="There is no checkpoint"):
        loading.load_optimizer_checkpoint_(other.optimizer, *other.model_parts, model_path.with_name("nope.bin"))


def test_without_a_process_group_nothing_is_wrapped(modalities_files, loading, make_app_state):
    with pytest.raises(RunningEnvError, match=r"needs a process group\. Use the variant torch"):
        loading.load_model_checkpoint(*make_app_state().model_parts, modalities_files[0])
