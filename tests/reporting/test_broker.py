"""Messages reach the subscribers of their type, in order."""

from modalities_pipeline.reporting.broker import (
    Message,
    MessageBroker,
    MessagePublisher,
    MessageSubscriberIF,
    MessageTypes,
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


def test_facts_are_ignored_by_default():
    _Recorder([]).consume_dict({"No. parameters": 1})
