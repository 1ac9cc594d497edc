"""A fetch session with one broker (KIP-227): what of a fetch has to be said. Pure.

A full request names every partition, and opens a session. After that a request names only what differs:
partitions that are new, whose position has changed, or that are no longer wanted. The broker remembers
the rest. Both count the requests: a broker that misses one, or has lost the session, says so, and
everything is said again.

=======================  ====================================  ==========================================
now                      the answer                            the next request
=======================  ====================================  ==========================================
full                     no session (an old broker, or no      full, without a session
                         room for one)
full                     a session                             incremental, epoch 1
incremental, epoch n     the same session                      incremental, epoch n + 1
incremental, epoch n     session 0: the broker has closed it   full, without a session
any                      "no such session"                     full, without a session
any                      another error, or none                full; closes the old session
=======================  ====================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aiokafka import TopicPartition

__all__ = [
    "CLOSING",
    "FULL",
    "NO_SESSION",
    "Ask",
    "FetchSession",
    "SessionRequest",
    "single_request",
]

NO_SESSION = 0
FULL = 0
"""The epoch of a full request."""
CLOSING = -1
"""The epoch of a request that closes its session."""
LAST_EPOCH = 2**31 - 1
SESSION_NOT_FOUND = 70


class Ask(NamedTuple):
    """What is wanted of one partition.

    Attributes:
        topic_id: 16 bytes, or None where it is not known.
        leader_epoch: of the leader that is asked; -1 where it is not known.
        offset: the first that is wanted.
        last_epoch: of the record before it; -1 where it is not known.
        max_bytes: of record batches; the first batch comes in any case.
    """

    topic_id: bytes | None
    leader_epoch: int
    offset: int
    last_epoch: int
    max_bytes: int


Asks = Mapping[TopicPartition, Ask]


class SessionRequest(NamedTuple):
    """What a request says.

    Attributes:
        session, epoch: of the session; see the module.
        asks: everything that is wanted.
        changed: what of it the broker does not know yet; all of it in a full request.
        forgotten: what is no longer wanted, with the topic's id.
        by_id: topics are named by id.
    """

    session: int
    epoch: int
    asks: Asks
    changed: Asks
    forgotten: Mapping[TopicPartition, bytes | None]
    by_id: bool


def single_request(asks: Asks) -> SessionRequest:
    """One that opens no session, and touches none."""
    return SessionRequest(NO_SESSION, CLOSING, asks, asks, {}, _is_by_id(asks))


def _is_by_id(asks: Asks) -> bool:
    return bool(asks) and all(ask.topic_id is not None for ask in asks.values())


class FetchSession:
    """What one broker remembers of our fetches.

    Attributes:
        number: the session's, by the broker; 0 for none.
        epoch: of the next request.
    """

    __slots__ = ("_by_id", "_known", "epoch", "number")

    def __init__(self) -> None:
        self.number = NO_SESSION
        self.epoch = FULL
        self._known: dict[TopicPartition, Ask] = {}
        self._by_id = False

    def request(self, asks: Asks) -> SessionRequest:
        """The next request. Its answer, or its failure, is to be told before the one after it."""
        by_id = _is_by_id(asks)
        if self.epoch != FULL and by_id != self._by_id and asks:
            self.epoch = FULL  # a session names topics in one way
        if self.epoch == FULL:
            changed: Asks = asks
            forgotten: dict[TopicPartition, bytes | None] = {}
            self._by_id = by_id
        else:
            changed, forgotten = self._differences(asks)
        self._known = dict(asks)
        return SessionRequest(self.number, self.epoch, asks, changed, forgotten, self._by_id)

    def _differences(self, asks: Asks) -> tuple[Asks, dict[TopicPartition, bytes | None]]:
        known = self._known
        changed = {tp: ask for tp, ask in asks.items() if known.get(tp) != ask}
        gone = {tp: ask.topic_id for tp, ask in known.items() if tp not in asks}
        # A topic that was made again has another id: to the broker it is another partition.
        gone |= {
            tp: known[tp].topic_id
            for tp, ask in changed.items()
            if tp in known and known[tp].topic_id != ask.topic_id
        }
        return changed, gone

    def answered(self, session: int, error: int) -> bool:
        """Takes the head of an answer.

        Returns:
            Whether the answer counts; after an error everything is said again.
        """
        if error:
            self.failed()
            if error == SESSION_NOT_FOUND:
                self.number = NO_SESSION
            return False
        if session == NO_SESSION:
            self.number, self.epoch = NO_SESSION, FULL
        elif self.epoch == FULL or session == self.number:
            self.number = session
            self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        else:  # an answer of some other session: nobody knows what the broker remembers
            self.failed()
            return False
        return True

    def failed(self) -> None:
        """There was no answer, or none that can be used: nobody knows whether the request came."""
        self.epoch = FULL
