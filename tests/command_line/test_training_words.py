"""`run` and `warmstart`: what they pass on, and what they leave behind when training fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from modalities_pipeline import main as main_module
from modalities_pipeline.__main__ import main
from modalities_pipeline.config.overlays import Override
from modalities_pipeline.distributed.shared_errors import ReportedElsewhereError
from modalities_pipeline.exceptions import TrainingError


@pytest.fixture
def trainings(monkeypatch):
    """(arguments of Main, what is raised when it is run, if anything); filled by the test and by the commands."""
    record = {"calls": [], "error": None}

    class FakeMain:
        def __init__(self, config_path: Path, **given):
            record["calls"].append({"config_path": config_path, **given})

        def build_components(self, model):
            return model.__name__

        def run(self, components):
            assert components == "TrainingComponentsInstantiationModel"
            if record["error"] is not None:
                raise record["error"]

    monkeypatch.setattr(main_module, "Main", FakeMain)
    return record


def test_run_passes_its_options_on(trainings):
    words = ["run", "--config_file_path", "a.yaml", "--experiments_root_path", "root", "--experiment_id", "x"]
    assert main([*words, "--resume", "--set", "optimizer.config.lr=1e-4", "--set", "a.b=[1, x]"]) == 0
    [call] = trainings["calls"]
    overrides = call.pop("overrides")
    assert call == {
        "config_path": Path("a.yaml"),
        "experiments_root_path": Path("root"),
        "experiment_id": "x",
        "resume": True,
        "last_checkpoint_info_file_path": None,
    }
    assert [(override.dotted_key, override.value) for override in overrides] == [
        ("optimizer.config.lr", 0.0001),
        ("a.b", [1, "x"]),
    ]
    assert all(isinstance(override, Override) for override in overrides)


@pytest.mark.parametrize("option", ["--experiments_root_path", "--experiment_root_path"])
def test_both_spellings_of_the_root_are_accepted(option, trainings):
    assert main(["run", "--config_file_path", "a.yaml", option, "root"]) == 0
    assert trainings["calls"][0]["experiments_root_path"] == Path("root")


def test_an_empty_experiment_id_is_one(trainings):
    """Scripts of sweeps write straight into the root with it."""
    assert main(["run", "--config_file_path", "a.yaml", "--experiment_id", ""]) == 0
    assert trainings["calls"][0]["experiment_id"] == ""


def test_warmstart_names_the_checkpoint_to_start_from(trainings):
    words = ["warmstart", "--config_file_path", "a.yaml", "--last_checkpoint_info_file_path", "info.json"]
    assert main([*words, "--experiment_id", "x"]) == 0
    assert trainings["calls"][0]["last_checkpoint_info_file_path"] == Path("info.json")
    assert trainings["calls"][0]["experiment_id"] == "x"


def test_a_run_of_one_process_says_how_to_start_more(trainings, caplog):
    with caplog.at_level("INFO"):
        assert main(["run", "--config_file_path", "a.yaml", "--test_comm"]) == 0
    assert "torchrun --standalone --nproc-per-node N -m modalities_pipeline" in caplog.text
    assert "The processes (1) can talk to each other." in caplog.text


def test_an_error_is_told_and_written_as_json(trainings, tmp_path, capsys):
    trainings["error"] = TrainingError("Step 3 is not finite")
    words = ["run", "--config_file_path", "a.yaml", "--error_log_folder", str(tmp_path / "new" / "logs")]
    assert main(words) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "Error: Step 3 is not finite"
    [path] = (tmp_path / "new" / "logs").iterdir()
    content = json.loads(path.read_text("utf-8"))
    hostname = content["environment"]["hostname"]
    assert path.name == f"error_logs_{hostname}_0.log"
    assert content["environment"] == {"rank": 0, "local_rank": 0, "world_size": 1, "hostname": hostname}
    assert content["error"]["error"] == "Step 3 is not finite"
    assert content["error"]["type"] == "TrainingError"
    assert content["error"]["stacktrace"][0].startswith("Traceback")


def test_an_error_before_the_ranks_are_known_is_written_too(trainings, tmp_path, monkeypatch):
    monkeypatch.setenv("MODALITIES_PIPELINE_DEVICE", "abacus")
    assert main(["run", "--config_file_path", "a.yaml", "--error_log_folder", str(tmp_path)]) == 1
    [path] = tmp_path.iterdir()
    assert path.stem.endswith(f"_pid{os.getpid()}")
    content = json.loads(path.read_text("utf-8"))
    assert content["environment"]["rank"] is None
    assert content["error"]["type"] == "RunningEnvError"


def test_a_folder_that_cannot_be_written_does_not_hide_the_error(trainings, tmp_path, capsys, caplog):
    trainings["error"] = TrainingError("Step 3 is not finite")
    (tmp_path / "file").write_text("")
    words = ["run", "--config_file_path", "a.yaml", "--error_log_folder", str(tmp_path / "file" / "logs")]
    assert main(words) == 1
    assert "Step 3 is not finite" in capsys.readouterr().err
    assert "could not be written" in caplog.text


def test_an_error_that_another_process_reports_is_not_reported_again(trainings, tmp_path, capsys):
    trainings["error"] = ReportedElsewhereError("rank 0 tells")
    words = ["run", "--config_file_path", "a.yaml", "--error_log_folder", str(tmp_path)]
    assert main(words) == 1
    assert "rank 0 tells" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.multi_process
def test_two_processes_test_their_communication_and_a_wrong_config_is_told_once(tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "modalities_pipeline"]
    words = ["run", "--config_file_path", str(tmp_path / "nope.yaml"), "--test_comm"]
    command = [sys.executable, *launcher, *words, "--error_log_folder", str(tmp_path / "logs")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "The processes (2) can talk to each other." in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1
    [log] = (tmp_path / "logs").iterdir()
    content = json.loads(log.read_text("utf-8"))
    assert content["environment"]["world_size"] == 2
    assert "nope.yaml: no such file" in content["error"]["error"]
