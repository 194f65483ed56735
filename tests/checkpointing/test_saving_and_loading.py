"""Checkpoints are whole or not there, are read back exactly, and a fault in one never costs another."""

import contextlib
import json

import pytest
import torch
import torch.distributed.checkpoint as dcp

from modalities_pipeline.checkpointing import saving
from modalities_pipeline.checkpointing.folders import find_latest_checkpoint, is_complete
from modalities_pipeline.checkpointing.fsdp1_saving import FSDP1CheckpointSaving
from modalities_pipeline.checkpointing.loading import DCPCheckpointLoading, get_dcp_checkpointed_app_state
from modalities_pipeline.checkpointing.saving import CheckpointSaving, DCPCheckpointSaving
from modalities_pipeline.checkpointing.strategies import SaveKMostRecentCheckpointsStrategy
from modalities_pipeline.distributed.env import DistributedEnv
from modalities_pipeline.exceptions import CheckpointingError, ConfigError

pytestmark = pytest.mark.usefixtures("process_group")


@pytest.fixture(params=[True, False], ids=["process group", "one process"])
def process_group(request):
    """A process group of this process alone, and no process group."""
    with DistributedEnv() if request.param else contextlib.nullcontext():
        yield


@pytest.fixture
def save(tmp_path, make_progress, make_app_state):
    """Function steps, k -> path of the checkpoint folder that was saved (or not)."""

    def save_step(num_steps: int, k: int = -1, app_state=None):
        execution = DCPCheckpointSaving(tmp_path, global_rank=0, experiment_id="x")
        saving = CheckpointSaving(SaveKMostRecentCheckpointsStrategy(k), execution)
        progress = make_progress(num_steps)
        saving.save_checkpoint(progress, None, app_state or make_app_state(num_steps=num_steps))
        return execution.folder_path(progress)

    return save_step


def test_state_is_read_back_bit_for_bit(save, make_app_state):
    saved, loaded = make_app_state(num_steps=3), make_app_state()
    get_dcp_checkpointed_app_state(loaded, save(3, app_state=saved))
    for name, tensor in saved.model_parts[0].state_dict().items():
        assert torch.equal(loaded.model_parts[0].state_dict()[name], tensor)
    for old, new in zip(saved.optimizer.state.values(), loaded.optimizer.state.values(), strict=True):
        assert all(torch.equal(new[key], tensor) for key, tensor in old.items())
    assert loaded.lr_scheduler.get_last_lr() == saved.lr_scheduler.get_last_lr() == [0.1 / 8]
    assert loaded.optimizer.param_groups[0]["lr"] == 0.1 / 8
    assert loaded.is_loaded


def test_names_are_those_of_modalities(save, tmp_path):
    folder = save(8)
    assert folder.name == "eid_x-seen_steps_8-seen_tokens_1024-target_steps_20-target_tokens_2560"
    assert sorted(file.name for file in folder.iterdir()) == [".metadata", "__0_0.distcp"]
    info = json.loads((tmp_path / "last_checkpoint_info.json").read_text("utf-8"))
    assert info == {"checkpoint_folder_path": str(folder.absolute())}
    keys = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    assert "app.model.0.weight" in keys
    assert "app.optimizer.state.1.bias.exp_avg_sq" in keys


def test_only_the_newest_are_kept_also_after_a_restart(save, tmp_path):
    """A new process does not forget what the one before it saved; deleting works on folders that are not empty."""
    folders = [save(step, k=2) for step in (2, 4, 6)]
    assert [folder.exists() for folder in folders] == [False, True, True]
    assert find_latest_checkpoint(tmp_path) == folders[2]
    assert not list(tmp_path.glob("*.tmp"))


def test_a_deletion_that_fails_ends_nothing(save, monkeypatch, caplog):
    first = save(2, k=1)

    def fail(path, **options):
        raise OSError("no")

    monkeypatch.setattr("modalities_pipeline.checkpointing.folders.shutil.rmtree", fail)
    second = save(4, k=1)
    assert is_complete(second)
    assert f"{first} could not be deleted: no" in caplog.text


def test_a_save_that_fails_leaves_the_older_checkpoint_as_the_newest(save, tmp_path, monkeypatch):
    """B060: keep 1 and let the write fail."""
    first = save(2, k=1)

    def fail(*arguments, **options):
        raise OSError("disk full")

    monkeypatch.setattr(dcp.FileSystemWriter, "write_data", fail)
    with pytest.raises(CheckpointingError, match="could not be written"):
        save(4, k=1)
    assert find_latest_checkpoint(tmp_path) == first
    assert json.loads((tmp_path / "last_checkpoint_info.json").read_text("utf-8"))["checkpoint_folder_path"] == str(
        first
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [first.name, "last_checkpoint_info.json"]


def test_a_folder_that_cannot_be_made_is_said_to_be_the_checkpoints(save, tmp_path, monkeypatch):
    def refuse(path, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(CheckpointingError, match=f"checkpoint {tmp_path}.* could not be written: .*Permission denied"):
        save(2)


def test_a_half_written_newest_folder_is_passed_over_but_refused_if_asked_for(save, tmp_path, make_app_state, caplog):
    """B059"""
    whole, half = save(2), save(4)
    (half / ".metadata").unlink()
    assert find_latest_checkpoint(tmp_path) == whole
    assert f"{half} is not complete" in caplog.text
    with pytest.raises(CheckpointingError, match="is not complete"):
        DCPCheckpointLoading(global_rank=0).load_checkpoint_(make_app_state(), half)
    with pytest.raises(CheckpointingError, match="There is no checkpoint folder"):
        DCPCheckpointLoading(global_rank=0).load_checkpoint_(make_app_state(), tmp_path / "nope")


def test_another_model_is_refused_with_all_differences(save, make_app_state):
    """B064: a deeper checkpoint does not load into a shallower model without a word."""
    folder = save(2)
    with pytest.raises(CheckpointingError, match=r"only in the checkpoint: 1.bias, 1.weight\."):
        get_dcp_checkpointed_app_state(make_app_state(num_layers=1), folder)
    with pytest.raises(CheckpointingError, match=r"missing in the checkpoint: 2.bias, 2.weight\."):
        get_dcp_checkpointed_app_state(make_app_state(num_layers=3), folder)
    with pytest.raises(CheckpointingError, match=r"0.weight \(\(4, 4\) in the checkpoint, \(5, 5\) in the model\)"):
        get_dcp_checkpointed_app_state(make_app_state(width=5), folder)


def test_a_second_checkpoint_is_not_loaded_over_the_first(save, make_app_state):
    folder = save(2)
    app_state = get_dcp_checkpointed_app_state(make_app_state(), folder)
    with pytest.raises(CheckpointingError, match="already loaded"):
        get_dcp_checkpointed_app_state(app_state, folder)


def test_leftovers_of_a_killed_save_are_removed_by_the_next(save, tmp_path):
    leftover = tmp_path / ".eid_x-seen_steps_2-seen_tokens_1-target_steps_1-target_tokens_1.abc.tmp"
    leftover.mkdir()
    other = tmp_path / ".eid_y-seen_steps_2-seen_tokens_1-target_steps_1-target_tokens_1.abc.tmp"
    other.mkdir()
    save(2)
    assert not leftover.exists()
    assert other.exists()


@pytest.mark.parametrize("execution", [DCPCheckpointSaving, FSDP1CheckpointSaving])
def test_the_rank_of_another_process_is_refused_when_the_execution_is_built(execution, tmp_path, monkeypatch):
    """A number that is written out is that of one process, so that two would write, or none."""
    monkeypatch.setattr(saving.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(saving.dist, "get_rank", lambda: 1)
    with pytest.raises(ConfigError, match=r"global_rank is 0 on the process of rank 1.*\$\{cuda_env:RANK\}"):
        execution(tmp_path, global_rank=0, experiment_id="run")
    assert execution(tmp_path, global_rank=1, experiment_id="run").checkpoint_path == tmp_path
