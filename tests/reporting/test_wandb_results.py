"""Weights & Biases gets every number once, from rank 0, without a network."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from modalities_pipeline.reporting.configs import WandbMode, WandBResultSubscriberConfig
from modalities_pipeline.reporting.results import DummyResultSubscriber
from modalities_pipeline.reporting.wandb_results import get_wandb_result_subscriber


class _Run:
    def __init__(self) -> None:
        self.logged: list = []
        self.config: dict = {}

    def log(self, numbers: dict, step: int) -> None:
        self.logged.append((numbers, step))


@pytest.fixture
def arguments(tmp_path) -> dict:
    config = tmp_path / "config.yaml"
    config.write_text("a: {b: 1}\n", encoding="utf-8")
    return {
        "project": "p",
        "experiment_id": "run1",
        "mode": WandbMode.OFFLINE,
        "directory": tmp_path / "out",
        "config_file_path": config,
    }


def test_a_retry_continues_the_same_run_and_each_result_is_logged_once(arguments, make_result_message, monkeypatch):
    """B092"""
    run, options = _Run(), {}
    run.config = type("Config", (dict,), {"update": lambda self, items, allow_val_change: dict.update(self, items)})()
    monkeypatch.setattr("wandb.init", lambda **given: options.update(given) or run)
    subscriber = get_wandb_result_subscriber(global_rank=0, **arguments)
    subscriber.consume_message(make_result_message(5))
    subscriber.consume_dict({"No. parameters": 3})
    assert (options["id"], options["resume"], options["mode"]) == ("run1", "allow", "offline")
    assert options["config"] == {"a": {"b": 1}}
    numbers = {"train train loss avg": 1.23456, "train grad norm last": 2.0, "train train tokens/s": 10.0}
    assert run.logged == [(numbers, 5)]
    assert run.config == {"No. parameters": 3}


@pytest.mark.parametrize(("rank", "mode"), [(1, WandbMode.ONLINE), (0, WandbMode.DISABLED)])
def test_other_ranks_and_disabled_runs_start_nothing(arguments, rank, mode):
    subscriber = get_wandb_result_subscriber(global_rank=rank, **{**arguments, "mode": mode})
    assert isinstance(subscriber, DummyResultSubscriber)
    assert not Path(arguments["directory"]).exists()


def test_mode_is_given_by_name_and_a_wrong_one_lists_all(arguments):
    fields = {**arguments, "global_rank": 0}
    assert WandBResultSubscriberConfig.model_validate({**fields, "mode": "OFFLINE"}).mode is WandbMode.OFFLINE
    with pytest.raises(ValidationError, match="'ONLINE', 'OFFLINE' or 'DISABLED'"):
        WandBResultSubscriberConfig.model_validate({**fields, "mode": "of-line"})
