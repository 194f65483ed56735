"""A fresh DAGSTER_HOME is initialised once, however many processes ask for it, and a user's settings are kept."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.orchestration import instance as instance_module
from modalities_pipeline.orchestration.instance import initialize_instance

COMMAND = [sys.executable, "-m", "modalities_pipeline.orchestration.instance"]


@pytest.mark.multi_process
def test_many_processes_may_initialise_one_home_at_once(tmp_path: Path) -> None:
    """The first use of a home by two processes can break its databases for good."""
    home = tmp_path / "home"
    processes = [subprocess.Popen([*COMMAND, str(home)], stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.get_runs_count() == 0


def test_telemetry_and_pop_ups_are_off_and_progress_lines_are_captured(tmp_path: Path) -> None:
    initialize_instance(tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.managed_python_loggers == ["modalities_pipeline"]


def test_a_cancelled_run_is_not_resumed(tmp_path: Path) -> None:
    """B081: user's cancel swallowed because the run could resume."""
    initialize_instance(tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_monitoring_max_resume_run_attempts == 0


def test_settings_that_exist_are_kept(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: true}\n")
    initialize_instance(tmp_path)
    assert (tmp_path / "dagster.yaml").read_text() == "telemetry: {enabled: true}\n"


def test_missing_default_settings_are_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_module, "_SETTINGS_PATH", Path("nowhere.yaml"))
    with pytest.raises(ConfigError, match=r"No nowhere\.yaml in .*write HOME/dagster\.yaml yourself"):
        initialize_instance(tmp_path / "home")
