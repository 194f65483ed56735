"""Progress of a training on the terminal."""

import sys
from typing import ClassVar

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from modalities_pipeline.dataloading.dataloader import LLMDataLoader
from modalities_pipeline.reporting.broker import ExperimentStatus, Message, MessageSubscriberIF, ProgressUpdate

_Bar = tuple[ExperimentStatus, str]  # training and evaluation may use the same tag


class DummyProgressSubscriber(MessageSubscriberIF[ProgressUpdate]):
    """Shows nothing."""

    def consume_message(self, message: Message[ProgressUpdate]) -> None:
        """Do nothing."""


class RichProgressSubscriber(MessageSubscriberIF[ProgressUpdate]):
    """Progress bars on standard error: training steps, and batches of each evaluation data loader.

    They appear with the first message and go away when the run is over; a terminal shows those of one subscriber only,
    of the one that came last.

    Args:
        train_split: tag of the training -> (steps done, steps in total).
        eval_splits: tag of a data loader -> its number of batches.
    """

    _shown: ClassVar[Live | None] = None

    def __init__(self, train_split: dict[str, tuple[int, int]], eval_splits: dict[str, int]) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        )
        self._tasks: dict[_Bar, TaskID] = {}
        for tag, (num_done, total) in train_split.items():
            self._add_bar((ExperimentStatus.TRAIN, tag), num_done, total)
        for tag, total in eval_splits.items():
            self._add_bar((ExperimentStatus.EVALUATION, tag), 0, total)
        # output that goes into a file must not be led to the terminal
        self._live = Live(
            self._progress, console=Console(file=sys.stderr), transient=True, redirect_stdout=sys.stdout.isatty()
        )

    def consume_message(self, message: Message[ProgressUpdate]) -> None:
        """Move a bar."""
        self._show()
        update = message.payload
        bar = update.experiment_status, update.dataloader_tag
        if bar not in self._tasks:
            self._add_bar(bar, 0, None)
        self._progress.update(self._tasks[bar], completed=update.num_steps_done)

    def close(self, is_completed: bool) -> None:
        """Take the bars away and give the terminal back."""
        if RichProgressSubscriber._shown is self._live:
            RichProgressSubscriber._shown = None
            self._live.stop()

    def _add_bar(self, bar: _Bar, num_done: int, total: int | None) -> None:
        self._tasks[bar] = self._progress.add_task(escape(bar[1]), completed=num_done, total=total)

    def _show(self) -> None:
        shown = RichProgressSubscriber._shown
        if shown is self._live:
            return
        if shown is not None:
            shown.stop()
        RichProgressSubscriber._shown = self._live
        self._live.start()


def get_rich_progress_subscriber(
    train_dataloader_tag: str,
    num_seen_steps: int,
    num_target_steps: int,
    global_rank: int,
    eval_dataloaders: list[LLMDataLoader] | None = None,
) -> MessageSubscriberIF[ProgressUpdate]:
    """Bars on rank 0 of a run on a terminal, else nothing (the results are printed as lines in any case)."""
    if global_rank != 0 or not sys.stderr.isatty():
        return DummyProgressSubscriber()
    evaluation = {loader.dataloader_tag: len(loader) for loader in eval_dataloaders or []}
    return RichProgressSubscriber({train_dataloader_tag: (num_seen_steps, num_target_steps)}, evaluation)
