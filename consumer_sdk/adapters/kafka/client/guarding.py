"""Keeps the client's fetch task alive, and hears what it does not tell.

Whatever one of its requests raises ends all fetching: a name or a number of an answer that a bit has
changed is enough. And of a broker that finds its own log corrupt the client writes a line, and asks
again for ever. Nor does it ask how much memory a compressed batch will take.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import CorruptRecordException

from consumer_sdk.adapters.kafka.decoding.decompression import oversized

__all__ = ["guard"]

log = logging.getLogger(__name__)


class Answers:
    """The client, as its fetcher sees it.

    Args:
        most: bytes that a batch may have, decompressed. What follows one that has more is cut off:
            it is fetched again, by itself, when it is next.

    Attributes:
        faults: partitions of which nothing can be read, and why, since they were last looked at.
    """

    def __init__(self, client: Any, most: int) -> None:
        self._client = client
        self._most = most
        self.faults: dict[TopicPartition, Exception] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node: Any, request: Any, **options: Any) -> Any:
        """Looks at the answer."""
        answer = await self._client.send(node, request, **options)
        if request.API_KEY == FETCH:
            answer.topics = [
                (topic, [self._look(topic, part) for part in partitions])
                for topic, partitions in answer.topics
            ]
        return answer

    def _look(self, topic: str, part: tuple[Any, ...]) -> tuple[Any, ...]:
        number, code, *rest, batches = part
        tp = TopicPartition(topic, number)
        if code == CorruptRecordException.errno:
            self.faults[tp] = CorruptRecordException("the broker finds its log corrupt")
        found = oversized(batches or b"", self._most)
        if found is None:
            return part
        at, error = found
        if at == 0:
            self.faults[tp] = error
        return (number, code, *rest, batches[:at])


FETCH = 1
"""The key of a fetch in Kafka's protocol."""


def guard(fetcher: Any, most: int) -> None:
    """An answer that cannot be used is an error of its partitions, not the end of all fetching.

    Args:
        most: bytes that a batch may have, decompressed.
    """
    fetch = fetcher._proc_fetch_request
    answers = fetcher._client = Answers(fetcher._client, most)

    async def fetch_guarded(assignment: Any, node: Any, request: Any) -> bool:
        try:
            has_news = bool(await fetch(assignment, node, request))
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("an answer of node %s cannot be used: %r", node, error)
            asked = [TopicPartition(topic, part[0]) for topic, ps in request.topics for part in ps]
            return _fail(fetcher, assignment, dict.fromkeys(asked, _unusable(error)))
        faults, answers.faults = answers.faults, {}
        return _fail(fetcher, assignment, faults) or has_news

    fetcher._proc_fetch_request = fetch_guarded


def _unusable(cause: Exception) -> Exception:
    error: Exception = CorruptRecordException(f"no answer: {cause!r}")
    error.__cause__ = cause
    return error


def _fail(fetcher: Any, assignment: Any, faults: Mapping[TopicPartition, Exception]) -> bool:
    """Gives each of them its error; whether there was one."""
    if not assignment.active:
        return False
    for tp, error in faults.items():
        if tp not in fetcher._records:
            fetcher._set_error(tp, error)
    return bool(faults)
