"""Messages from the training to whoever shows or stores them. Delivery is synchronous, in the order of subscription."""

import dataclasses
import enum
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

PayloadT = TypeVar("PayloadT")


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


class MessageBroker:
    """Hands each message to the subscribers of its type."""

    def __init__(self) -> None:
        self._subscribers: dict[MessageTypes, list[MessageSubscriberIF]] = {}

    def add_subscriber(self, subscription: MessageTypes, subscriber: MessageSubscriberIF) -> None:
        """Let `subscriber` receive all messages of one type."""
        self._subscribers.setdefault(subscription, []).append(subscriber)

    def distribute_message(self, message: Message) -> None:
        """Deliver a message; what a subscriber raises is raised here."""
        for subscriber in self._subscribers.get(message.message_type, []):
            subscriber.consume_message(message=message)


class MessagePublisher(Generic[PayloadT]):
    """The sending end, for one rank."""

    def __init__(self, message_broker: MessageBroker, global_rank: int, local_rank: int) -> None:
        self._message_broker = message_broker
        self._global_rank = global_rank
        self._local_rank = local_rank

    def publish_message(self, payload: PayloadT, message_type: MessageTypes) -> None:
        """Send one payload."""
        self._message_broker.distribute_message(
            Message(message_type, payload, global_rank=self._global_rank, local_rank=self._local_rank)
        )
