"""Cases about brokers that redeliver what they have not heard of: queues, and some logs."""

from __future__ import annotations

import asyncio

from consumer_sdk.records import Message, OutcomeKind
from consumer_sdk.testing.conformance.adapter_case import AdapterCase
from consumer_sdk.testing.conformance.adapter_delivery import messages, numbered, values
from consumer_sdk.testing.conformance.adapter_harness import Member

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
        async with self.member(stream) as member:
            again = await self._read_all(member)
            assert got[2].position in {m.position for m in again}
            assert {m.position for m in again} <= {m.position for m in got}
            await member.ack(again)
            await self._until_backlog_is_empty(stream)

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

    async def _read_all(self, member: Member) -> list[Message]:
        found = await member.read_some()
        while more := messages(await member.fetch()):
            found += more
        return found

    async def _until_backlog_is_empty(self, stream: str) -> None:
        async with asyncio.timeout(self.broker.patience):
            while await self.broker.backlog(stream, self.group):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(self.broker.quiet)
