"""Messages reach the subscribers of their type, in order."""

import pytest

from modalities_pipeline.reporting.broker import (
    Message,
    MessageBroker,
    MessagePublisher,
    MessageSubscriberIF,
    MessageTypes,
    closed_at_the_end,
)


class _Recorder(MessageSubscriberIF):
    def __init__(self, log: list) -> None:
        self.log = log

    def consume_message(self, message: Message) -> None:
        self.log.append((self, message))


def test_message_reaches_subscribers_of_its_type_in_order_of_subscription():
    log: list = []
    first, second, other = (_Recorder(log) for _ in range(3))
    broker = MessageBroker()
    broker.add_subscriber(MessageTypes.EVALUATION_RESULT, first)
    broker.add_subscriber(MessageTypes.EVALUATION_RESULT, second)
    broker.add_subscriber(MessageTypes.BATCH_PROGRESS_UPDATE, other)
    MessagePublisher(broker, global_rank=3, local_rank=1).publish_message("payload", MessageTypes.EVALUATION_RESULT)
    assert [subscriber for subscriber, _ in log] == [first, second]
    assert log[0][1] == Message(MessageTypes.EVALUATION_RESULT, "payload", global_rank=3, local_rank=1)


def test_message_without_subscriber_is_dropped():
    MessagePublisher(MessageBroker(), 0, 0).publish_message("payload", MessageTypes.ERROR_MESSAGE)


def test_facts_and_config_are_ignored_by_default():
    subscriber = _Recorder([])
    subscriber.consume_dict({"No. parameters": 1})
    subscriber.consume_config({"settings": {}})
    subscriber.close(is_completed=True)
    assert subscriber.log == []


class _Broken(MessageSubscriberIF):
    def __init__(self) -> None:
        self.num_calls = 0
        self.closed_with: list[bool] = []

    def consume_message(self, message: Message) -> None:
        self.num_calls += 1
        raise RuntimeError(f"server answers {self.num_calls}")

    def consume_dict(self, message_dict) -> None:
        self.consume_message(Message(MessageTypes.EVALUATION_RESULT, message_dict))

    def close(self, is_completed: bool) -> None:
        self.closed_with.append(is_completed)
        raise RuntimeError("connection lost")


def test_a_subscriber_that_fails_ends_nothing_and_is_switched_off_after_the_third_time(caplog):
    """W27: it would end rank 0 only, and leave the others waiting for it."""
    log: list = []
    broken, works = _Broken(), _Recorder(log)
    broker = MessageBroker()
    for subscriber in (broken, works):
        broker.add_subscriber(MessageTypes.EVALUATION_RESULT, subscriber)
    broker.distribute_dict({"No. parameters": 1}, MessageTypes.EVALUATION_RESULT)
    publisher: MessagePublisher[str] = MessagePublisher(broker, 0, 0)
    for _ in range(5):
        publisher.publish_message("payload", MessageTypes.EVALUATION_RESULT)
    assert broken.num_calls == 3
    assert len(log) == 5
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["_Broken failed; the training goes on."] * 2 + ["_Broken failed; it gets no more messages."]
    assert "server answers 2" in caplog.text
    assert "Traceback" in caplog.text


def test_every_subscriber_is_closed_once_also_after_an_error(caplog):
    broken, last = _Broken(), _Broken()
    broker = MessageBroker()
    for kind in (MessageTypes.EVALUATION_RESULT, MessageTypes.BATCH_PROGRESS_UPDATE):
        broker.add_subscriber(kind, broken)
    broker.add_subscriber(MessageTypes.BATCH_PROGRESS_UPDATE, last)
    with pytest.raises(ValueError, match="training"), closed_at_the_end(broker):
        raise ValueError("training")
    assert broken.closed_with == last.closed_with == [False]
    assert "could not be closed" in caplog.text
    with closed_at_the_end(broker):
        pass
    assert last.closed_with == [False, True]


def test_an_interruption_passes():
    class Interrupted(_Recorder):
        def consume_message(self, message: Message) -> None:
            raise KeyboardInterrupt

    broker = MessageBroker()
    broker.add_subscriber(MessageTypes.ERROR_MESSAGE, Interrupted([]))
    with pytest.raises(KeyboardInterrupt):
        MessagePublisher(broker, 0, 0).publish_message("payload", MessageTypes.ERROR_MESSAGE)
