"""Cases about brokers that redeliver what they have not heard of: queues, and some logs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from consumer_sdk.abc import Adapter
from consumer_sdk.records import Kind, Message, OutcomeKind, Position, Run
from consumer_sdk.testing.conformance.adapters.case import AdapterCase
from consumer_sdk.testing.conformance.adapters.delivery import messages, numbered, values
from consumer_sdk.testing.conformance.adapters.harness import Member
from consumer_sdk.trackers import WatermarkTracker

__all__ = ["RedeliveryCases"]

DONE = (OutcomeKind.DURABLE, OutcomeKind.SENT)
OVER = (OutcomeKind.FENCED, OutcomeKind.GONE)


class RedeliveryCases(AdapterCase):
    """What is promised where capabilities say ``wants_settled``."""

    async def test_acked_records_do_not_come_to_the_next_member_and_the_others_do(self) -> None:
        """One by one: a hole stays a hole."""
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 6))
        async with self.member(stream) as member:
            got = await member.read(6)
            assert (await member.ack([got[1], got[4]])).kind in DONE
        async with self.member(stream) as member:
            assert values(await member.read(4)) == [0, 2, 3, 5]
            await member.read_nothing()

    async def test_reconnect_redelivers_what_is_not_acked_under_the_same_assignment(self) -> None:
        """With the same positions, so that they can be recognised; nobody is revoked."""
        self.needs("disconnect")
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 5))
        async with self.member(stream) as member:
            got = await member.read(5)
            await member.ack([got[0], got[3]])
            await self.broker.disconnect(member.adapter)
            again = await member.read(3)
            assert [m.position for m in again] == [got[at].position for at in (1, 2, 4)]
            assert {m.assignment for m in again} == {got[0].assignment}
            assert not self.journal.of("revoked") + self.journal.of("lost")

    async def test_handles_of_the_newest_delivery_empty_the_backlog(self) -> None:
        """Whatever older handles are worth."""
        self.needs("disconnect")
        self.needs("backlog")
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 5))
        async with self.member(stream) as member:
            await member.read(5)
            await self.broker.disconnect(member.adapter)
            again = await member.read(5)
            assert (await member.ack(again)).kind in DONE
            assert (await member.ack(again)).kind in DONE
            await self._until_backlog_is_empty(stream)

    async def test_ack_while_disconnected_is_refused_or_redelivered_never_lost(self) -> None:
        """It answers and does not raise; what it did not reach comes again, and can be acked."""
        self.needs("disconnect")
        self.needs("backlog")
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 3))
        async with self.member(stream) as member:
            got = await member.read(3)
            await self.broker.disconnect(member.adapter)
            assert (await member.ack(got)).kind in (*DONE, OutcomeKind.RETRY)
            async with asyncio.timeout(self.broker.patience):
                while await self.broker.backlog(stream, self.group):
                    again = messages(await member.fetch())
                    assert {m.position for m in again} <= {m.position for m in got}
                    if again:
                        await member.ack(again)

    async def test_entry_acked_in_part_comes_again_and_can_be_acked(self) -> None:
        """T11: its open record at least, under its position; all of it by newest handles."""
        self.needs("entry")
        self.needs("backlog")
        stream = await self.broker.create_stream()
        await self.broker.append_entry(stream, numbered(0, 5))
        async with self.member(stream) as member:
            got = await member.read(5)
            assert len({m.position for m in got}) == len(got)
            await member.ack(got[:2] + got[3:])
        seen: set[Position] = set()
        async with self.member(stream) as member, asyncio.timeout(self.broker.patience):
            while await self.broker.backlog(stream, self.group):
                again = messages(await member.fetch())
                seen |= {m.position for m in again}
                if again:
                    await member.ack(again)
        assert got[2].position in seen
        assert seen <= {m.position for m in got}

    async def test_record_that_comes_late_is_delivered_and_the_others_are_not_again(self) -> None:
        """Never seen is not settled: under the same assignment, once."""
        self.needs("backlog")
        stream = await self._with_late_records()
        async with self.member(stream) as member:
            tracker = self._tracker(member.adapter, await member.read(4))
            await self._settle(member, tracker, range(4))
            await self.broker.release(stream)
            await self.broker.disconnect(member.adapter)
            assert await self._read_new(member, tracker) == {2, 3}
            await self._settle(member, tracker, [m.index for m in messages(member.runs)])
            await self._until_backlog_is_empty(stream)

    async def test_record_that_comes_late_is_delivered_after_a_restart(self) -> None:
        """The checkpoint of before lies above it, and does not settle it."""
        stream = await self._with_late_records()
        async with self.member(stream) as member:
            tracker = self._tracker(member.adapter, await member.read(4))
            await self._settle(member, tracker, range(4))
            checkpoint = tracker.checkpoint(0, 0)
        await self.broker.release(stream)
        async with self.member(stream) as member:
            (assignment,) = await member.holding(1)
            again = WatermarkTracker(assignment, names_settled=True, gaps=member.adapter.gaps)
            again.restore(checkpoint, 0, 0, durable=True)
            assert await self._read_new(member, again) == {2, 3}

    async def _with_late_records(self) -> str:
        """A stream of 0, 1, 4 and 5, with 2 and 3 between them that come late."""
        self.needs("late")
        stream = await self.broker.create_stream()
        if self.broker.make_adapter(stream, self.group).capabilities.kind is not Kind.LOG:
            pytest.skip("a queue settles nothing but what it names")
        await self.broker.append(stream, numbered(0, 2))
        await self.broker.append_late(stream, numbered(2, 4))
        await self.broker.append(stream, numbered(4, 6))
        return stream

    def _tracker(self, adapter: Adapter, got: list[Message]) -> WatermarkTracker:
        """Of a log, with these tracked."""
        assert values(got) == [0, 1, 4, 5]
        assignment = got[0].assignment
        tracker = WatermarkTracker(assignment, names_settled=True, gaps=adapter.gaps)
        tracker.track(Run(assignment, got), 0)
        return tracker

    async def _settle(
        self, member: Member, tracker: WatermarkTracker, indices: Sequence[int]
    ) -> None:
        tracker.ack_all(indices)
        flush = tracker.flush(0, 0, force=True)
        assert flush is not None
        (outcome,) = await member.adapter.commit([flush])
        assert outcome.kind in DONE
        tracker.flushed(flush, outcome)

    async def _read_new(self, member: Member, tracker: WatermarkTracker) -> set[int]:
        """Values of what is to be handed out, once two are there and no more comes."""
        found: list[Message] = []
        member.runs.clear()
        async with asyncio.timeout(self.broker.patience):
            while True:
                runs = await member.fetch()
                for run in runs:
                    run.messages = tracker.track(run, 0).bind(run.messages)
                    found += run.messages
                if len(found) > 1 and not runs:
                    return set(values(found))

    async def test_ack_under_an_epoch_that_is_over_is_refused(self) -> None:
        """T1: it answers so, and raises nothing."""
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 3))
        async with self.member(stream) as member:
            got = await member.read(3)
            await member.adapter.aclose()
            assert (await member.ack(got)).kind in OVER

    async def test_ack_to_a_stream_that_was_made_again_is_refused(self) -> None:
        """GONE, or FENCED where the partition was taken away first."""
        self.needs("recreate")
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 3))
        async with self.member(stream) as member:
            got = await member.read(3)
            await self.broker.recreate(stream)
            assert (await member.ack(got)).kind in OVER

    async def _until_backlog_is_empty(self, stream: str) -> None:
        async with asyncio.timeout(self.broker.patience):
            while await self.broker.backlog(stream, self.group):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(self.broker.quiet)
