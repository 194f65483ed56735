"""Progress bars and result panels appear on rank 0 of a terminal and nowhere else."""

import io
import sys

import pytest
from rich.console import Console

from modalities_pipeline.reporting.broker import ExperimentStatus, Message, MessageTypes, ProgressUpdate
from modalities_pipeline.reporting.progress import (
    DummyProgressSubscriber,
    RichProgressSubscriber,
    get_rich_progress_subscriber,
)
from modalities_pipeline.reporting.results import (
    DummyResultSubscriber,
    RichResultSubscriber,
    get_rich_result_subscriber,
)


def _update(num_steps: int, tag: str, status: ExperimentStatus) -> Message[ProgressUpdate]:
    return Message(MessageTypes.BATCH_PROGRESS_UPDATE, ProgressUpdate(num_steps, status, tag))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("rank", "stream"), [(1, _Terminal()), (0, io.StringIO())])
def test_no_bars_on_other_ranks_or_in_a_log_file(rank, stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    subscriber = get_rich_progress_subscriber("train", 0, 10, global_rank=rank)
    assert isinstance(subscriber, DummyProgressSubscriber)
    subscriber.consume_message(_update(1, "train", ExperimentStatus.TRAIN))
    assert stream.getvalue() == ""


def test_bars_show_training_and_evaluation_and_go_away_at_the_end(monkeypatch):
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    subscriber = RichProgressSubscriber({"train": (4, 10), "val": (0, 3)})
    subscriber.consume_message(_update(7, "train", ExperimentStatus.TRAIN))
    subscriber.consume_message(_update(2, "val", ExperimentStatus.EVALUATION))
    subscriber.consume_message(_update(10, "train", ExperimentStatus.TRAIN))
    shown = terminal.getvalue()
    assert "train" in shown
    assert "10/10" in shown
    assert "2/3" in shown


def test_results_show_losses_metrics_and_facts(make_result_message):
    stream = io.StringIO()
    subscriber = RichResultSubscriber(num_ranks=2, console=Console(file=stream, width=80))
    subscriber.consume_dict({"No. parameters": 12})
    subscriber.consume_message(make_result_message(5))
    shown = stream.getvalue()
    for text in ("No. parameters: 12", "Step 5 (2 ranks)", "train train loss avg: 1.23", "train grad norm last: 2.0"):
        assert text in shown


def test_results_are_shown_by_rank_0_only():
    assert isinstance(get_rich_result_subscriber(2, global_rank=0), RichResultSubscriber)
    assert isinstance(get_rich_result_subscriber(2, global_rank=1), DummyResultSubscriber)
