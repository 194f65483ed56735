"""Messages from the training to whoever shows or stores them. Delivery is synchronous, in the order of subscription.

What goes wrong in a subscriber is logged, and never ends the training: see `MessageBroker`.
"""

import contextlib
import dataclasses
import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

PayloadT = TypeVar("PayloadT")

logger = logging.getLogger(__name__)

_MAX_NUM_FAILURES = 3


class MessageTypes(enum.Enum):
    """Kinds of messages."""

    HIGH_LEVEL_PROGRESS_UPDATE = "HIGH_LEVEL_PROGRESS_UPDATE"
    BATCH_PROGRESS_UPDATE = "PROGRESS_UPDATE"
    ERROR_MESSAGE = "ERROR_MESSAGE"
    EVALUATION_RESULT = "EVALUATION_RESULT"


class ExperimentStatus(enum.Enum):
    """What the run is doing."""

    TRAIN = "TRAIN"
    EVALUATION = "EVALUATION"


@dataclasses.dataclass
class ProgressUpdate:
    """Steps (training) or batches (evaluation) done."""

    num_steps_done: int
    experiment_status: ExperimentStatus
    dataloader_tag: str


@dataclasses.dataclass
class Message(Generic[PayloadT]):
    """A payload and where it comes from."""

    message_type: MessageTypes
    payload: PayloadT
    global_rank: int = 0
    local_rank: int = 0


class MessageSubscriberIF(ABC, Generic[PayloadT]):
    """Receives messages."""

    @abstractmethod
    def consume_message(self, message: Message[PayloadT]) -> None:
        """Take one message."""

    def consume_dict(self, message_dict: dict[str, Any]) -> None:
        """Take facts about the run that are no message, for example the number of parameters; ignored by default."""
        del message_dict

    def consume_config(self, config: Mapping[str, Any]) -> None:
        """Take the config that is run, resolved, without what it read from the environment; ignored by default."""
        del config

    def close(self, is_completed: bool) -> None:
        """The run is over; `is_completed` says whether it came to its end. Nothing by default."""
        del is_completed


class MessageBroker:
    """Hands each message to the subscribers of its type.

    A subscriber that raises an exception ends nothing: the exception is logged with its traceback, and after the third
    one the subscriber gets no more messages. The others get theirs in any case.
    """

    def __init__(self) -> None:
        self._subscribers: dict[MessageTypes, list[MessageSubscriberIF]] = {}
        self._num_failures: dict[int, int] = {}  # by the id of a subscriber

    def add_subscriber(self, subscription: MessageTypes, subscriber: MessageSubscriberIF) -> None:
        """Let `subscriber` receive all messages of one type."""
        self._subscribers.setdefault(subscription, []).append(subscriber)

    def distribute_message(self, message: Message) -> None:
        """Deliver a message."""
        for subscriber in self._subscribers.get(message.message_type, []):
            self._deliver(subscriber, lambda to: to.consume_message(message=message))

    def distribute_dict(self, message_dict: dict[str, Any], subscription: MessageTypes) -> None:
        """Deliver facts about the run to the subscribers of one type."""
        for subscriber in self._subscribers.get(subscription, []):
            self._deliver(subscriber, lambda to: to.consume_dict(message_dict))

    def distribute_config(self, config: Mapping[str, Any], subscription: MessageTypes) -> None:
        """Deliver the config that is run to the subscribers of one type."""
        for subscriber in self._subscribers.get(subscription, []):
            self._deliver(subscriber, lambda to: to.consume_config(config))

    def close(self, is_completed: bool) -> None:
        """Tell each subscriber, also one that failed before, that the run is over."""
        for subscriber in {id(one): one for several in self._subscribers.values() for one in several}.values():
            try:
                subscriber.close(is_completed)
            except Exception:
                logger.exception("%s could not be closed.", type(subscriber).__name__)

    def _deliver(self, subscriber: MessageSubscriberIF, send: Callable[[MessageSubscriberIF], None]) -> None:
        num_failures = self._num_failures.get(id(subscriber), 0)
        if num_failures >= _MAX_NUM_FAILURES:
            return
        try:
            send(subscriber)
        except Exception:
            self._num_failures[id(subscriber)] = num_failures + 1
            is_last = num_failures + 1 == _MAX_NUM_FAILURES
            outlook = "it gets no more messages" if is_last else "the training goes on"
            logger.exception("%s failed; %s.", type(subscriber).__name__, outlook)


class MessagePublisher(Generic[PayloadT]):
    """The sending end, for one rank."""

    def __init__(self, message_broker: MessageBroker, global_rank: int, local_rank: int) -> None:
        self.message_broker = message_broker
        self._global_rank = global_rank
        self._local_rank = local_rank

    def publish_message(self, payload: PayloadT, message_type: MessageTypes) -> None:
        """Send one payload."""
        self.message_broker.distribute_message(
            Message(message_type, payload, global_rank=self._global_rank, local_rank=self._local_rank)
        )


@contextlib.contextmanager
def closed_at_the_end(message_broker: MessageBroker) -> Iterator[None]:
    """Context of a run after which the subscribers are closed, also if it raises."""
    is_completed = False
    try:
        yield
        is_completed = True
    finally:
        message_broker.close(is_completed)
