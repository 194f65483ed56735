"""Results of training intervals and evaluations on the terminal."""

from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from modalities_pipeline.batch import EvaluationResultBatch
from modalities_pipeline.reporting.broker import Message, MessageSubscriberIF


class DummyResultSubscriber(MessageSubscriberIF[EvaluationResultBatch]):
    """Shows nothing."""

    def consume_message(self, message: Message[EvaluationResultBatch]) -> None:
        """Do nothing."""


class RichResultSubscriber(MessageSubscriberIF[EvaluationResultBatch]):
    """A panel for each result: the step as its title, then losses and metrics, a line each, in their order."""

    def __init__(self, num_ranks: int, console: Console | None = None) -> None:
        self._num_ranks = num_ranks
        self._console = console or Console()

    def consume_message(self, message: Message[EvaluationResultBatch]) -> None:
        """Print one panel."""
        result = message.payload
        items = [*result.losses.items(), *result.metrics.items()]
        lines = [f"{result.dataloader_tag} {name}: {item}" for name, item in items]
        title = f"Step {result.num_train_steps_done} ({self._num_ranks} ranks)"
        # as it is: square brackets of a tag are no markup
        self._console.print(Panel(Text("\n".join(lines)), title=title, title_align="left"))

    def consume_dict(self, message_dict: dict[str, Any]) -> None:
        """Print facts about the run, one a line."""
        for name, value in message_dict.items():
            self._console.print(Text(f"{name}: {value}"))


def get_rich_result_subscriber(num_ranks: int, global_rank: int) -> MessageSubscriberIF[EvaluationResultBatch]:
    """Panels on rank 0, nothing on other ranks."""
    return RichResultSubscriber(num_ranks) if global_rank == 0 else DummyResultSubscriber()
