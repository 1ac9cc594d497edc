"""Sends messages through a Pulsar client that is closed when they are sent."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import repeat
from typing import Any

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.testing.servers.errors import ServerError

__all__ = ["send"]

_BATCH_BYTES = 4 << 20  # a message may have 5 MiB, and a batch is one
_NEVER = 600_000  # milliseconds; the flush at the end sends what is left


def send(
    service_url: str,
    topic: str,
    values: Iterable[bytes],
    keys: str | Iterable[str] | None,
    *,
    batch: bool,
) -> list[Any]:
    """Send messages and return the id of each; blocks until Pulsar has them.

    Raises:
        ServerError: Pulsar refused, or did not take one of them.
        MissingExtraError: pulsar-client is not installed.
        ValueError: there are not as many keys as values; some may have been sent.
    """
    with _producer(service_url, topic, batch=batch) as producer:
        sent = [_begin(producer, value, key) for value, key in _keyed(values, keys)]
        producer.flush()
        return [each.result() for each in sent]


def _keyed(
    values: Iterable[bytes], keys: str | Iterable[str] | None
) -> Iterable[tuple[bytes, str | None]]:
    if keys is None or isinstance(keys, str):
        return zip(values, repeat(keys), strict=False)  # ends with the values
    return zip(values, keys, strict=True)


def _begin(producer: Any, value: bytes, key: str | None) -> "Future[Any]":
    """Hand over one message; the future gives its id."""
    future: Future[Any] = Future()

    def settle(result: Any, message_id: Any) -> None:  # in a thread of the client
        if result.name == "Ok":
            future.set_result(message_id)
        else:
            future.set_exception(ServerError(f"Pulsar did not take a message: {result.name}"))

    producer.send_async(value, settle, partition_key=key)
    return future


@contextmanager
def _producer(service_url: str, topic: str, *, batch: bool) -> Iterator[Any]:
    try:
        import pulsar
    except ImportError as error:
        raise MissingExtraError("pulsar-client", "pulsar") from error
    try:
        # Never one of Python's loggers: the client's threads would wait for the interpreter.
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(service_url, logger=logger)
        try:
            yield client.create_producer(
                topic,
                block_if_queue_full=True,
                batching_enabled=batch,
                batching_max_messages=1000,
                batching_max_allowed_size_in_bytes=_BATCH_BYTES,
                batching_max_publish_delay_ms=_NEVER,
            )
        finally:
            client.close()
    except pulsar.PulsarException as error:
        raise ServerError(f"Pulsar at {service_url}: {topic!r}: {error}") from error
