"""Progress of a training on the terminal."""

import sys

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from modalities_pipeline.dataloading.dataloader import LLMDataLoader
from modalities_pipeline.reporting.broker import Message, MessageSubscriberIF, ProgressUpdate


class DummyProgressSubscriber(MessageSubscriberIF[ProgressUpdate]):
    """Shows nothing."""

    def consume_message(self, message: Message[ProgressUpdate]) -> None:
        """Do nothing."""


class RichProgressSubscriber(MessageSubscriberIF[ProgressUpdate]):
    """Progress bars: training steps, and batches of each evaluation data loader.

    Args:
        splits: tag -> (done, total).
    """

    def __init__(self, splits: dict[str, tuple[int, int]]) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        )
        self._tasks: dict[str, TaskID] = {
            tag: self._progress.add_task(tag, completed=done, total=total) for tag, (done, total) in splits.items()
        }
        self._live = Live(self._progress, console=Console(file=sys.stderr), transient=True)
        self._live.start()

    def consume_message(self, message: Message[ProgressUpdate]) -> None:
        """Move a bar."""
        update = message.payload
        self._progress.update(self._tasks[update.dataloader_tag], completed=update.num_steps_done)
        total = self._progress.tasks[0].total
        if update.dataloader_tag == self._progress.tasks[0].description and update.num_steps_done == total:
            self._live.stop()


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
    evaluation = {loader.dataloader_tag: (0, len(loader)) for loader in eval_dataloaders or []}
    return RichProgressSubscriber({train_dataloader_tag: (num_seen_steps, num_target_steps), **evaluation})
