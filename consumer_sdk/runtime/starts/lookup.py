"""Asks the store and the broker what has to be known to decide where assignments start."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from consumer_sdk.abc import Adapter, CheckpointStore
from consumer_sdk.errors import CheckpointMismatchError
from consumer_sdk.records import Assignment, AtTime, Checkpoint, Outcome, Partition, StartPoint
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.starts.inputs import Facts
from consumer_sdk.runtime.starts.pins import Resolved, resolve, resolve_time
from consumer_sdk.trackers import decode_checkpoint

__all__ = ["Inquiry"]

log = logging.getLogger(__name__)

HELD_POLL = 0.05
"""Seconds between looks at what the broker has answered."""


class Inquiry:
    """Claims in the store, if there is one, and asks; decides nothing."""

    def __init__(self, adapter: Adapter, store: CheckpointStore | None, options: Options) -> None:
        self._adapter = adapter
        self._store = store
        self._options = options

    async def facts(self, assignments: Sequence[Assignment]) -> list[Facts]:
        """What is known of each; those that the store does not grant are left out.

        Raises:
            StoreError: the store cannot be read, or what it has cannot be used.
            AdapterError: the broker does not answer.
        """
        stored = await self._stored(assignments)
        return await self._ask_broker(stored) if stored else []

    async def _stored(
        self, assignments: Sequence[Assignment]
    ) -> dict[Assignment, Checkpoint | None]:
        """What the store has; None where it has nothing, or where there is none."""
        stored: dict[Assignment, Checkpoint | None] = {}
        for assignment, text in (await self._claim(assignments)).items():
            if isinstance(text, Outcome):
                log.warning("%s was not granted: %s", assignment.partition, text.error or "fenced")
            else:
                stored[assignment] = None if text is None else self._decode(assignment, text)
        return stored

    async def _claim(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, str | Outcome | None]:
        if self._store is None:
            return dict.fromkeys(assignments)
        await self._until_held()
        return await self._store.claim(self._adapter.group or "", assignments)

    async def _until_held(self) -> None:
        """A process that was stopped would take the claim from whoever has the partition now.

        It has not heard yet that its session is over: its client asks the group next.
        """
        time = asyncio.get_running_loop().time
        while time() >= self._adapter.held_until():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(HELD_POLL)

    def _decode(self, assignment: Assignment, text: str) -> Checkpoint:
        try:
            return decode_checkpoint(
                text,
                broker=self._adapter.broker,
                partition=assignment.partition,
                identity=self._adapter.identity(assignment),
                decode_position=self._adapter.decode_position,
            )
        except CheckpointMismatchError as error:
            raise self._remade(assignment.partition, error) from error

    def _remade(self, partition: Partition, error: Exception) -> CheckpointMismatchError:
        """The error with the way on: all of the stream's checkpoints, for all members."""
        group, stream = shlex.quote(self._adapter.group or ""), shlex.quote(partition.stream)
        return CheckpointMismatchError(
            f"{partition}: {error}. If {partition.stream!r} was deleted and made again, its "
            f"checkpoints are of records that are gone: stop the group's consumers, run "
            f"`consumer-sdk checkpoints delete STORE_URL {group} --stream {stream}`, and start them: "
            f"they begin at start="
        )

    async def _ask_broker(self, stored: Mapping[Assignment, Checkpoint | None]) -> list[Facts]:
        adapter, assignments = self._adapter, list(stored)
        redelivers = adapter.capabilities.wants_settled
        committed = await adapter.committed(assignments)
        known = [
            Facts(assignment=a, stored=stored[a], committed=committed.get(a), redelivers=redelivers)
            for a in assignments
        ]
        unknown = [each.assignment for each in known if each.needs_start(self._options)]
        resolved = await resolve(adapter, self._store, self._options, unknown) if unknown else {}
        # Asked last: the end is then never below what another member has pinned meanwhile.
        earliest = await adapter.positions(assignments, StartPoint.EARLIEST)
        latest = await adapter.positions(assignments, StartPoint.LATEST)
        nothing, policy = Resolved(), self._options.out_of_range
        replacement = (
            await resolve_time(adapter, policy, assignments) if isinstance(policy, AtTime) else {}
        )
        return [
            replace(
                each,
                resolved=resolved.get(each.assignment, nothing).position,
                since=resolved.get(each.assignment, nothing).since,
                is_later=resolved.get(each.assignment, nothing).is_later,
                earliest=earliest.get(each.assignment),
                latest=latest.get(each.assignment),
                replacement=replacement.get(each.assignment, nothing).position,
            )
            for each in known
        ]
