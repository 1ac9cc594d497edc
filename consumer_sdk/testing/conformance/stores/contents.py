"""Cases about what is stored: it comes back exactly, under the name it was stored for."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import StoreError
from consumer_sdk.records import OutcomeKind, Partition
from consumer_sdk.testing.conformance.stores.case import DURABLE, FENCED, RETRY, StoreCase

__all__ = ["ContentCases"]

STREAMS = (
    "",
    "%",
    "zookeeper",
    "orders",
    "a/b",
    "a%2Fb",
    "100%",
    "..",
    ".",
    "persistent://tenant/space/topic",
    "Größe",
    "注文",
    "🛒",
    "with space",
    "tab\tand\nline",
    "'; DROP TABLE checkpoints; --",
)

TEXTS = (
    '{"watermark":"41"}',
    " leading and trailing \n",
    "",
    'quotes " and \\ backslash',
    "Grüße 注文 🛒",
    "a\0b",
    "\ufeffmark",
    "e\u0301 is not é",
)


class ContentCases(StoreCase):
    """What is stored, and what is found."""

    async def test_new_partition_has_no_checkpoint(self, mine: CheckpointStore) -> None:
        """A claim of a partition that nobody saved says None."""
        assignment = self.grant()
        assert await mine.claim(self.group, [assignment]) == {assignment: None}

    async def test_saved_checkpoint_is_what_the_next_claim_reads(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """Save, then claim from another process: the last text comes back."""
        assignment = await self.claimed(mine)
        assert await self.save(mine, (assignment, "one")) == [DURABLE]
        assert await self.save(mine, (assignment, "two")) == [DURABLE]
        successor = self.grant()
        assert await theirs.claim(self.group, [successor]) == {successor: "two"}

    async def test_checkpoint_outlives_the_store_object(self, mine: CheckpointStore) -> None:
        """What is DURABLE is there for a store that is opened later."""
        assignment = await self.claimed(mine)
        await self.save(mine, (assignment, "text"))
        await mine.aclose()
        later = self.place.make_store()
        await later.open()
        try:
            assert await self.stored(later) == "text"
        finally:
            await later.aclose()

    async def test_text_comes_back_exactly(self, mine: CheckpointStore) -> None:
        """Text is opaque: nothing is stripped, parsed, normalised or cut."""
        assignment = await self.claimed(mine)
        for text in TEXTS:
            assert await self.save(mine, (assignment, text)) == [DURABLE]
            assert await self.stored(mine) == text

    async def test_any_stream_name_has_its_own_checkpoint(self, mine: CheckpointStore) -> None:
        """Slashes, percent signs, dots and any script: no two names share a checkpoint."""
        grants = [self.grant(id_, stream=name) for name in STREAMS for id_ in (name, "0")]
        await mine.claim(self.group, grants)
        items = [StoreItem(a, f"of {a.partition!r}") for a in grants]
        outcomes = await mine.save(self.group, items)
        assert {outcome.kind for outcome in outcomes} == {DURABLE}
        partitions = [a.partition for a in grants]
        expected = {p: f"of {p!r}" for p in partitions}
        assert await mine.peek(self.group, partitions) == expected
        assert set(await mine.list(self.group)) == set(partitions)

    async def test_groups_are_apart(self, mine: CheckpointStore) -> None:
        """The same partition in two groups has two checkpoints, whatever the groups' names."""
        groups = ("", "a", "a/b", "a%2Fb", "größe", "..")
        for group in groups:
            assignment = self.grant()
            await mine.claim(group, [assignment])
            await mine.save(group, [StoreItem(assignment, f"of {group}")])
        partition = Partition("orders", "0")
        for group in groups:
            assert await mine.peek(group, [partition]) == {partition: f"of {group}"}
            assert list(await mine.list(group)) == [partition]
        assert list(await mine.list("b")) == []

    async def test_saving_nothing_has_no_outcomes(self, mine: CheckpointStore) -> None:
        """Zero items, zero outcomes; so for the other calls."""
        assert await mine.save(self.group, []) == []
        assert await mine.claim(self.group, []) == {}
        assert await mine.peek(self.group, []) == {}
        await mine.delete(self.group, [])
        await mine.forget([])

    async def test_thousand_partitions_are_saved_in_one_go(self, mine: CheckpointStore) -> None:
        """Outcomes stand in the order of the items, and every one of them is written."""
        grants = [self.grant(str(number)) for number in range(1000)]
        await mine.claim(self.group, grants)
        texts = [f'{{"n":{n},"pad":"{"x" * 300}"}}' for n in range(1000)]
        outcomes = await self.save(mine, *zip(grants, texts, strict=True))
        assert outcomes == [DURABLE] * 1000
        found = await mine.peek(self.group, [a.partition for a in grants])
        assert list(found.values()) == texts

    async def test_save_larger_than_one_request_is_written_whole(
        self, mine: CheckpointStore
    ) -> None:
        """Several checkpoints of nearly max_size in one save: however they are sent, all stay.

        And one claim of them reads them all, and takes them all over.
        """
        grants = [self.grant(str(number)) for number in range(5)]
        await mine.claim(self.group, grants)
        texts = [f"{number}{'x' * (mine.max_size * 9 // 10)}" for number in range(5)]
        outcomes = await self.save(mine, *zip(grants, texts, strict=True))
        assert outcomes == [DURABLE] * 5
        again = [self.grant(str(number)) for number in range(5)]
        assert list((await mine.claim(self.group, again)).values()) == texts
        found = await mine.peek(self.group, [a.partition for a in grants])
        assert list(found.values()) == texts
        assert await self.save(mine, (grants[0], "late"), (again[1], "new")) == [FENCED, DURABLE]

    async def test_last_text_of_one_save_wins(self, mine: CheckpointStore) -> None:
        """The same partition twice in one save: the later item is what stays."""
        assignment = await self.claimed(mine)
        outcomes = await self.save(mine, (assignment, "one"), (assignment, "two"))
        assert outcomes == [DURABLE, DURABLE]
        assert await self.stored(mine) == "two"

    async def test_oversize_item_fails_alone_and_says_so(self, mine: CheckpointStore) -> None:
        """More than max_size bytes of UTF-8: RETRY with a StoreError; the rest is written."""
        large, small = await self.claimed(mine, "0"), await self.claimed(mine, "1")
        await self.save(mine, (large, "before"))
        text = "é" * (mine.max_size // 2 + 1)
        outcomes = await mine.save(self.group, [StoreItem(large, text), StoreItem(small, "x")])
        assert [outcome.kind for outcome in outcomes] == [RETRY, DURABLE]
        assert isinstance(outcomes[0].error, StoreError)
        assert str(mine.max_size) in str(outcomes[0].error)
        assert (await self.stored(mine, "0"), await self.stored(mine, "1")) == ("before", "x")
        assert await self.save(mine, (large, "after")) == [DURABLE]

    async def test_largest_item_fits(self, mine: CheckpointStore) -> None:
        """Exactly max_size bytes are written."""
        assignment = await self.claimed(mine)
        text = "é" * (mine.max_size // 2)
        assert await self.save(mine, (assignment, text)) == [DURABLE]
        assert await self.stored(mine) == text

    async def test_peek_of_the_unknown_is_none(self, mine: CheckpointStore) -> None:
        """A partition that nobody claimed, and one that nobody saved."""
        await self.claimed(mine, "1")
        assert await self.stored(mine, "0") is None
        assert await self.stored(mine, "1") is None

    async def test_list_names_saved_partitions_only(self, mine: CheckpointStore) -> None:
        """A claim alone makes no checkpoint."""
        saved = await self.claimed(mine, "0")
        await self.claimed(mine, "1")
        await self.save(mine, (saved, "text"))
        assert list(await mine.list(self.group)) == [saved.partition]

    @pytest.mark.parametrize("stream", ["orders", "a/b %2F", "注文"])
    async def test_first_pin_stays(
        self, mine: CheckpointStore, theirs: CheckpointStore, stream: str
    ) -> None:
        """A group's resolved start is made once; whoever comes later is told the first."""
        assert await mine.pin(self.group, stream, "time:1.5") == "time:1.5"
        assert await theirs.pin(self.group, stream, "time:9") == "time:1.5"
        assert await theirs.pin("other", stream, "time:9") == "time:9"
        assert await theirs.pin(self.group, f"{stream}2", "time:7") == "time:7"
        assert list(await mine.list(self.group)) == []
        assert await mine.pins(self.group) == {stream: "time:1.5", f"{stream}2": "time:7"}
        assert await mine.pins("nobody") == {}

    async def test_pins_at_the_same_time_agree(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """Of consumers that start together, all start where the first one does."""
        stores = [mine, theirs] * 5
        starts = (s.pin(self.group, "orders", f"time:{n}") for n, s in enumerate(stores))
        assert len(set(await asyncio.gather(*starts))) == 1

    @pytest.mark.parametrize("stream", ["orders", "orders@5f0c#v2", "a/b %2F", "注文", ""])
    async def test_unpinned_start_can_be_pinned_anew(
        self, mine: CheckpointStore, theirs: CheckpointStore, stream: str
    ) -> None:
        """It is gone for everybody, and nothing else is: other starts and other groups' stay."""
        for group, name in ((self.group, stream), (self.group, "more"), ("other", stream)):
            await mine.pin(group, name, "time:1")
        assert await theirs.unpin(self.group, stream) is True
        assert await mine.pins(self.group) == {"more": "time:1"}
        assert await mine.pins("other") == {stream: "time:1"}
        assert await mine.pin(self.group, stream, "time:2") == "time:2"
        assert await theirs.pin(self.group, stream, "time:3") == "time:2"

    async def test_unpinning_what_is_not_pinned_changes_nothing(
        self, mine: CheckpointStore
    ) -> None:
        """A second time, a stream that has checkpoints alone, and one that nobody knows."""
        await self.claimed(mine)
        await mine.pin(self.group, "payments", "time:1")
        found = [await mine.unpin(self.group, name) for name in ("payments", "payments", "orders")]
        assert found == [True, False, False]
        assert await mine.unpin("nobody", "orders") is False
        assert await mine.pins(self.group) == {}

    async def test_unpin_leaves_checkpoints_and_their_owners(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """Of the very stream: what is stored stays, and who owns it goes on."""
        assignment = await self.claimed(mine)
        await self.save(mine, (assignment, "one"))
        await mine.pin(self.group, "orders", "time:1")
        await theirs.unpin(self.group, "orders")
        assert await self.stored(theirs) == "one"
        assert await self.save(mine, (assignment, "two")) == [DURABLE]
        assert list(await theirs.list(self.group)) == [assignment.partition]

    async def test_unpins_between_pins_leave_one_start(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """At the same time: nobody fails, and who pins afterwards is told what is stored."""
        calls = (
            (mine.pin(self.group, "orders", f"time:{n}"), theirs.unpin(self.group, "orders"))
            for n in range(10)
        )
        await asyncio.gather(*(call for pair in calls for call in pair))
        start = await mine.pin(self.group, "orders", "time:last")
        assert await theirs.pins(self.group) == {"orders": start}

    async def test_outcome_kinds_are_of_the_store(self, mine: CheckpointStore) -> None:
        """A store never says SENT or GONE: those are brokers' words."""
        assignment = await self.claimed(mine)
        kinds = await self.save(mine, (assignment, "a"), (self.grant("9"), "b"))
        assert not {OutcomeKind.SENT, OutcomeKind.GONE} & set(kinds)
