"""Leases through a store: a new member of a group, and what operators read and change."""

from __future__ import annotations

import os
import secrets
import socket
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from consumer_sdk.abc import CheckpointStore, Clock, Leases
from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.leases.backend import LeaseBackend
from consumer_sdk.leases.member import TableLeases
from consumer_sdk.records import Partition
from consumer_sdk.records.leases import LeaseView

__all__ = ["LeasingStore", "ended_partitions", "evict", "new_member", "reopen", "stored_leases"]


def new_member() -> str:
    """A name that nobody has had before.

    Chance comes first: who gets the odd partition of a stream follows the order of the names.
    """
    return f"{secrets.token_hex(8)}/{socket.gethostname()}/{os.getpid()}"


class LeasingStore(CheckpointStore):
    """A store that keeps the leases of each group and stream in a `LeaseBackend`.

    Its ``repr`` names it in errors.
    """

    def leases(
        self,
        group: str,
        stream: str,
        *,
        duration: float = 10.0,
        handover: float = 30.0,
        most: int | None = None,
        weight: int = 1,
        clock: Clock | None = None,
    ) -> Leases:
        """A new member of the group; see `CheckpointStore.leases`."""
        return TableLeases(
            self._lease_backend(group, stream),
            f"{self!r}: the leases of {stream!r} in group {group!r}",
            self._new_member(),
            duration=duration,
            handover=handover,
            most=most,
            weight=weight,
            clock=clock,
        )

    @abstractmethod
    def _lease_backend(self, group: str, stream: str) -> LeaseBackend:
        """Where the leases of a group and stream are."""

    def _new_member(self) -> str:
        """A name that nobody has had before."""
        return new_member()


async def stored_leases(
    store: CheckpointStore, group: str, streams: Collection[str] | None = None
) -> Mapping[str, LeaseView | CheckpointFormatError]:
    """The leases of a group, by stream, as nobody's: no member joins.

    Args:
        streams: of these alone; None for all.

    Returns:
        for each stream what is stored, or the error where that cannot be read as leases.

    Raises:
        StoreError: the store cannot be read.
    """
    found: dict[str, LeaseView | CheckpointFormatError] = {}
    for stream in await store.leased_streams(group):
        leases = store.leases(group, stream)
        if leases is not None and (streams is None or stream in streams):
            try:
                found[stream] = await leases.view()
            except CheckpointFormatError as error:
                found[stream] = error
    return found


async def ended_partitions(
    store: CheckpointStore, group: str, streams: Collection[str] | None = None
) -> set[Partition]:
    """Those of a group whose leases have ended.

    Args:
        streams: of these alone; None for all whose leases can be read.

    Raises:
        CheckpointFormatError: the leases of one of ``streams`` cannot be read.
        StoreError: the store cannot be read.
    """
    ended: set[Partition] = set()
    for stream, view in (await stored_leases(store, group, streams)).items():
        if isinstance(view, LeaseView):
            ended |= {Partition(stream, p) for p, lease in view.leases.items() if lease.ended}
        elif streams is not None:
            raise view
    return ended


async def reopen(store: CheckpointStore, group: str, partitions: Iterable[Partition]) -> None:
    """Reopens the leases of partitions whose checkpoints were deleted, or replaced.

    Raises:
        CheckpointFormatError: leases of a stream cannot be read; those of the others are open.
        StoreError: some may have ended still: call it again.
    """
    ids: dict[str, list[str]] = defaultdict(list)
    damaged: CheckpointFormatError | None = None
    for stream, partition in partitions:
        ids[stream].append(partition)
    for stream in await store.leased_streams(group) if ids else ():
        leases = store.leases(group, stream)
        if leases is not None and stream in ids:
            try:
                await leases.reopen(ids[stream])
            except CheckpointFormatError as error:
                damaged = error
    if damaged is not None:
        raise damaged


async def evict(
    store: CheckpointStore, group: str, seen: Mapping[Partition, int]
) -> set[Partition]:
    """Takes partitions from their owners; see `consumer_sdk.abc.Leases.evict`.

    Args:
        seen: the fence of each lease when it was looked at.

    Returns:
        those that were taken: the others have changed hands since.

    Raises:
        CheckpointFormatError: leases of a stream cannot be read.
        StoreError: some may be taken, and nobody's now: look at them again.
    """
    fences: dict[str, dict[str, int]] = defaultdict(dict)
    for (stream, partition), fence in seen.items():
        fences[stream][partition] = fence
    gone: set[Partition] = set()
    for stream, seen_there in fences.items():
        leases = store.leases(group, stream)
        if leases is not None:
            gone |= {Partition(stream, each) for each in await leases.evict(seen_there)}
    return gone
