"""Progress bars and result panels appear on rank 0 of a terminal and nowhere else."""

import io
import sys
from collections.abc import Callable

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


HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"  # the terminal's cursor


@pytest.fixture
def use_terminal(monkeypatch) -> Callable[[], _Terminal]:
    """Function that makes standard error a terminal; for the test to call, pytest replaces it after the setup."""

    def use() -> _Terminal:
        stream = _Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        return stream

    return use


class _Loader(list):
    dataloader_tag = "train"


def test_bars_begin_with_the_steps_seen_and_show_each_evaluation(use_terminal):
    """Training and evaluation may have the same tag, square brackets are no markup, an unknown tag is no error."""
    terminal = use_terminal()
    subscriber = get_rich_progress_subscriber("train", 4, 10, 0, eval_dataloaders=[_Loader("abc")])
    assert terminal.getvalue() == ""
    subscriber.consume_message(_update(2, "train", ExperimentStatus.EVALUATION))
    subscriber.consume_message(_update(1, "[red]other", ExperimentStatus.EVALUATION))
    subscriber.close(is_completed=True)
    shown = terminal.getvalue()
    for text in ("4/10", "2/3", "[red]other"):
        assert text in shown


@pytest.mark.parametrize("is_completed", [True, False])
def test_the_terminal_is_given_back_when_the_run_is_over(is_completed, use_terminal):
    terminal = use_terminal()
    subscriber = RichProgressSubscriber({"train": (0, 10)}, {})
    subscriber.consume_message(_update(7, "train", ExperimentStatus.TRAIN))
    assert terminal.getvalue().count(HIDDEN) == 1
    subscriber.close(is_completed)
    assert "7/10" in terminal.getvalue()
    assert terminal.getvalue().count(SHOWN) == 1
    subscriber.close(is_completed)
    assert terminal.getvalue().count(SHOWN) == 1


def test_a_second_display_takes_the_place_of_the_first(use_terminal):
    terminal = use_terminal()
    first, second = (RichProgressSubscriber({"train": (0, 10)}, {}) for _ in range(2))
    first.consume_message(_update(1, "train", ExperimentStatus.TRAIN))
    second.consume_message(_update(1, "train", ExperimentStatus.TRAIN))
    assert terminal.getvalue().count(SHOWN) == 1
    first.close(is_completed=True)
    second.close(is_completed=True)
    assert terminal.getvalue().count(HIDDEN) == terminal.getvalue().count(SHOWN) == 2


def test_what_is_printed_into_a_file_stays_there(use_terminal, monkeypatch):
    """The live display takes over standard output only where that is a terminal, too."""
    terminal = use_terminal()
    log = io.StringIO()
    monkeypatch.setattr(sys, "stdout", log)
    subscriber = RichProgressSubscriber({"train": (0, 10)}, {})
    subscriber.consume_message(_update(1, "train", ExperimentStatus.TRAIN))
    print("step 1")
    subscriber.close(is_completed=True)
    assert log.getvalue() == "step 1\n"
    assert "step 1" not in terminal.getvalue()


def test_results_show_losses_metrics_and_facts(make_result_message):
    stream = io.StringIO()
    subscriber = RichResultSubscriber(num_ranks=2, console=Console(file=stream, width=80))
    subscriber.consume_dict({"No. parameters": 12})
    subscriber.consume_message(make_result_message(5))
    shown = stream.getvalue()
    for text in ("No. parameters: 12", "Step 5 (2 ranks)", "train train loss avg: 1.23", "train grad norm last: 2.0"):
        assert text in shown
    assert shown.index("loss avg") < shown.index("grad norm")


def test_square_brackets_of_a_tag_are_shown(make_result_message):
    stream = io.StringIO()
    message = make_result_message(1)
    message.payload.dataloader_tag = "[bold]"
    RichResultSubscriber(num_ranks=1, console=Console(file=stream, width=80)).consume_message(message)
    assert "[bold] train loss avg: 1.23" in stream.getvalue()


def test_results_are_shown_by_rank_0_only():
    assert isinstance(get_rich_result_subscriber(2, global_rank=0), RichResultSubscriber)
    assert isinstance(get_rich_result_subscriber(2, global_rank=1), DummyResultSubscriber)
