"""Weights & Biases gets every number once, from rank 0, and with or without a network."""

import json
import os
import types
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from modalities_pipeline.reporting.configs import WandbMode, WandBResultSubscriberConfig
from modalities_pipeline.reporting.results import DummyResultSubscriber
from modalities_pipeline.reporting.wandb_results import get_wandb_result_subscriber, run_id_of


@pytest.fixture(autouse=True)
def _wandb_environment(monkeypatch) -> None:
    """Variables that the subscriber sets are those of before afterwards; there is no login."""
    for name in ("CACHE_DIR", "DIR", "DATA_DIR", "ARTIFACT_LOCATION", "ARTIFACT_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", "before")
    monkeypatch.setenv("WANDB_SILENT", "true")


@pytest.fixture
def arguments(tmp_path) -> dict[str, Any]:
    return {
        "project": "p",
        "experiment_id": "run1",
        "mode": WandbMode.OFFLINE,
        "directory": tmp_path / "out",
        "config_file_path": tmp_path / "config.yaml",
    }


class _Server:
    """Stands for wandb: what `init` is asked for, and what the run logs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, has_login: bool, failing_modes: tuple[str, ...] = ()) -> None:
        self.inits: list[dict[str, Any]] = []
        self.logged: list[tuple[dict[str, float], int]] = []
        self.exit_codes: list[int] = []
        self._failing_modes = failing_modes
        monkeypatch.setattr("wandb.login", lambda prompt: has_login and not prompt)
        monkeypatch.setattr("wandb.init", self._init)

    def _init(self, **options: Any) -> Any:
        self.inits.append(options)
        if options["mode"] in self._failing_modes:
            raise TimeoutError("no answer")
        return types.SimpleNamespace(
            id=options["id"],
            log=lambda numbers, step: self.logged.append((numbers, step)),
            finish=lambda exit_code: self.exit_codes.append(exit_code),
        )

    @property
    def modes(self) -> list[str]:
        return [options["mode"] for options in self.inits]


def test_a_retry_continues_the_same_run_and_each_result_is_logged_once(arguments, make_result_message, monkeypatch):
    """B092"""
    server = _Server(monkeypatch, has_login=True)
    for is_completed in (False, True):
        subscriber = get_wandb_result_subscriber(global_rank=0, **{**arguments, "mode": WandbMode.ONLINE})
        subscriber.consume_message(make_result_message(5))
        subscriber.close(is_completed)
    assert [(options["id"], options["name"], options["resume"]) for options in server.inits] == [
        ("run1", "run1", "allow")
    ] * 2
    assert all(0 < options["settings"].init_timeout <= 120 for options in server.inits)
    numbers = {"train train loss avg": 1.23456, "train grad norm last": 2.0, "train train tokens/s": 10.0}
    assert server.logged == [(numbers, 5)] * 2
    assert server.exit_codes == [1, 0]


@pytest.mark.parametrize(("has_login", "reason"), [(False, "there is no login"), (True, "no answer")])
def test_without_login_or_network_an_online_run_goes_on_offline_and_says_so(
    has_login, reason, arguments, make_result_message, monkeypatch, caplog
):
    """Nothing waits for a password, and nothing for ever for a server."""
    server = _Server(monkeypatch, has_login, failing_modes=("online",))
    subscriber = get_wandb_result_subscriber(global_rank=0, **{**arguments, "mode": WandbMode.ONLINE})
    assert server.modes == ["online"] * has_login + ["offline"]
    assert reason in caplog.text
    assert "kept offline" in caplog.text
    subscriber.consume_message(make_result_message(5))
    assert len(server.logged) == 1


def test_if_wandb_does_not_start_at_all_the_training_goes_on(arguments, monkeypatch, caplog):
    _Server(monkeypatch, has_login=False, failing_modes=("offline",))
    assert isinstance(get_wandb_result_subscriber(global_rank=0, **arguments), DummyResultSubscriber)
    assert "nothing is reported to it" in caplog.text


@pytest.mark.slow
def test_an_offline_run_is_in_the_directory_with_config_artifact_and_numbers(
    arguments, make_result_message, monkeypatch
):
    """A real one, W31: the config is the resolved one. All variables of wandb lead into the directory."""
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    subscriber: Any = get_wandb_result_subscriber(global_rank=0, **arguments)
    run = subscriber._run
    subscriber.consume_config({"settings": {"lr": 0.1, "token": "${oc.env:TOKEN}"}})
    subscriber.consume_dict({"No. parameters": 3})
    subscriber.consume_message(make_result_message(5))
    assert run.config.as_dict() == {"settings": {"lr": 0.1, "token": "${oc.env:TOKEN}"}, "No. parameters": 3}
    subscriber.close(is_completed=True)
    folder = arguments["directory"] / "wandb"
    assert (run.id, run.name, run.project) == ("run1", "run1", "p")
    (data,) = folder.glob("offline-run-*-run1/run-run1.wandb")
    content = data.read_bytes()
    for text in (b"config_run1", b"config.yaml.resolved", b"train grad norm last"):
        assert text in content
    (stored,) = (path for path in folder.rglob("*") if path.is_file() and b"${oc.env:TOKEN}" in path.read_bytes()[:200])
    assert "lr: 0.1" in stored.read_text("utf-8")
    assert {os.environ[f"WANDB_{name}"] for name in ("DIR", "CACHE_DIR", "ARTIFACT_DIR")} == {str(folder)}


@pytest.mark.parametrize(("rank", "mode"), [(1, WandbMode.ONLINE), (0, WandbMode.DISABLED)])
def test_other_ranks_and_disabled_runs_start_nothing(arguments, rank, mode):
    """B092"""
    subscriber = get_wandb_result_subscriber(global_rank=rank, **{**arguments, "mode": mode})
    assert isinstance(subscriber, DummyResultSubscriber)
    assert not Path(arguments["directory"]).exists()


def test_every_experiment_id_makes_a_valid_run_id_of_its_own():
    same = ["2026-01-31__12-00-00_abc", "x" * 128]
    assert [run_id_of(experiment_id) for experiment_id in same] == same
    others = ["a/b", "a:b", "a b", "x" * 129, "x" * 130, ""]
    run_ids = [run_id_of(experiment_id) for experiment_id in others]
    assert len(set(run_ids)) == len(others)
    for run_id in run_ids:
        assert 0 < len(run_id) <= 128
        assert not set(run_id) & set("/\\#?%: ")
    assert run_id_of("a/b") == run_id_of("a/b")


def test_mode_is_given_by_name_and_a_wrong_one_lists_all(arguments):
    """W25"""
    fields = {**arguments, "global_rank": 0}
    assert WandBResultSubscriberConfig.model_validate({**fields, "mode": "OFFLINE"}).mode is WandbMode.OFFLINE
    with pytest.raises(ValidationError, match="'ONLINE', 'OFFLINE' or 'DISABLED'") as error:
        WandBResultSubscriberConfig.model_validate({**fields, "mode": "of-line"})
    assert json.loads(error.value.json())[0]["loc"] == ["mode"]
