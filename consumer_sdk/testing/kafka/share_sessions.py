"""Share sessions at a broker (KIP-932): Kafka 4.3's `ShareSessionCache`, and the session part of `SharePartitionManager`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from consumer_sdk.adapters.kafka.share.messages import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    ShareAcknowledge,
    ShareFetch,
    TopicIdPartition,
)
from consumer_sdk.testing.kafka.refusals import Code, RefusedError

__all__ = ["Key", "ShareSession", "ShareSessions", "next_epoch"]

Key = tuple[str, str]
"""Group and member id."""

LAST_EPOCH = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """The one after it; 1 comes after the last one."""
    return 1 if epoch >= LAST_EPOCH else epoch + 1


@dataclass(slots=True)
class ShareSession:
    """What a member reads of this broker.

    Attributes:
        connection: over which it was opened.
        epoch: that the next request is to have.
        partitions: in the order in which they are served; who had records goes to the end.
    """

    key: Key
    connection: str = ""
    epoch: int = 1
    partitions: list[TopicIdPartition] = field(default_factory=list)

    def update(
        self, added: Iterable[TopicIdPartition], removed: Iterable[TopicIdPartition]
    ) -> None:
        """Takes partitions in and out."""
        known = set(self.partitions)
        self.partitions += [tp for tp in added if tp not in known]
        gone = set(removed)
        self.partitions = [tp for tp in self.partitions if tp not in gone]

    def served(self, tps: Iterable[TopicIdPartition]) -> None:
        """These had records."""
        for tp in tps:
            if tp in self.partitions:
                self.partitions.remove(tp)
                self.partitions.append(tp)


@dataclass(slots=True)
class ShareSessions:
    """All sessions of one broker.

    Attributes:
        limit: ``group.share.max.share.sessions``.
    """

    limit: int
    sessions: dict[Key, ShareSession] = field(default_factory=dict)
    _by_connection: dict[str, Key] = field(default_factory=dict)

    def fetched(self, request: ShareFetch, connection: str) -> ShareSession:
        """The session of the request, which has the next epoch by now.

        Raises:
            RefusedError: there is none, its epoch is another one, or there are too many.
        """
        key = request.group, request.member_id
        if request.epoch == CLOSE_EPOCH:
            return self._found(key)
        if request.epoch == OPEN_EPOCH:
            if any(request.topics.values()):
                raise RefusedError(Code.INVALID_REQUEST)
            return self._opened(key, request.topics, connection)
        session = self._found(key)
        self._check(session, request.epoch)
        session.update(request.topics, request.forgotten)
        return session

    def acknowledged(self, request: ShareAcknowledge) -> ShareSession:
        """The session of the request, which has the next epoch by now.

        Raises:
            RefusedError: there is none, or its epoch is another one.
        """
        if request.epoch == OPEN_EPOCH:
            raise RefusedError(Code.INVALID_SHARE_SESSION_EPOCH)
        session = self._found((request.group, request.member_id))
        if request.epoch != CLOSE_EPOCH:
            self._check(session, request.epoch)
        return session

    def _found(self, key: Key) -> ShareSession:
        if key not in self.sessions:
            raise RefusedError(Code.SHARE_SESSION_NOT_FOUND)
        return self.sessions[key]

    def _check(self, session: ShareSession, epoch: int) -> None:
        if session.epoch != epoch:
            raise RefusedError(Code.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = next_epoch(session.epoch)

    def _opened(self, key: Key, tps: Iterable[TopicIdPartition], connection: str) -> ShareSession:
        """A new one in place of the member's last one, whose records stay acquired."""
        self.removed(key)
        if len(self.sessions) >= self.limit:
            raise RefusedError(Code.SHARE_SESSION_LIMIT_REACHED)
        self.sessions[key] = session = ShareSession(key, connection, partitions=list(tps))
        self._by_connection[connection] = key
        return session

    def removed(self, key: Key) -> ShareSession | None:
        """Ends a session; None where there is none."""
        return self.sessions.pop(key, None)

    def disconnected(self, connection: str) -> tuple[Key | None, bool]:
        """The member that has opened a session over this connection, and whether it is that session that it has now."""
        key = self._by_connection.pop(connection, None)
        session = self.sessions.get(key) if key is not None else None
        return key, session is not None and session.connection == connection

    def has_group(self, group: str) -> bool:
        """Whether the group has a session here."""
        return any(key[0] == group for key in self.sessions)

    def clear(self) -> None:
        """Forgets everybody."""
        self.sessions.clear()
        self._by_connection.clear()
