"""What one broker alone cannot be brought to answer: moved leaders, throttling, slow tiers.

The answers are the client's own responses, given by a script on virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import pytest
from aiokafka import TopicPartition
from aiokafka.protocol.fetch import FetchResponse_v11
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from consumer_sdk.adapters.kafka.client.protocol import MetadataResponseV12
from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.adapters.kafka.ranges.connection import Connection
from consumer_sdk.adapters.kafka.ranges.reading import RangeRead
from consumer_sdk.errors import (
    PositionOutOfRangeError,
    TransientAdapterError,
    UnreadableRecordError,
)
from consumer_sdk.testing import Simulation, simulate
from tests.adapters.kafka.ranges.test_batches import batch
from tests.adapters.kafka.scripted_broker import topic

TP = TopicPartition("t", 0)
LEADER_MOVED, CORRUPT, STORAGE_FAILED, FENCED_EPOCH = 6, 2, 56, 74
RECORDS = batch(range(3))
LOCAL = 100


def answer(
    data: bytes = b"",
    *,
    code: int = 0,
    bound: int = 3,
    replica: int = -1,
    aborted: Sequence[tuple[int, int]] = (),
) -> Any:
    """One partition's part of a fetch response."""
    partition = (0, code, bound, bound, 0, list(aborted), replica, data)
    return FetchResponse_v11(0, 0, 0, [("t", [partition])])


def throttled() -> Any:
    """What a broker answers beyond its quota."""
    return FetchResponse_v11(500, 0, 0, [])


class Script(Connection):
    """Gives answers one after another; the last one again and again.

    Args:
        answers: responses, errors to raise, or (seconds, response) that come late.
    """

    def __init__(self, answers: Sequence[Any], read_timeout: float = 10.0, rack: str = "") -> None:
        reader = KafkaRanges(
            "t", bootstrap_servers="127.0.0.1:1", read_timeout=read_timeout, client_rack=rack
        )
        super().__init__(reader._options)
        self._answers = list(answers)
        self.sizes: list[int] = []
        self.asked: list[tuple[int, str]] = []
        self.refreshed = 0

    def leader(self, tp: TopicPartition) -> int:
        """There is one, whoever it is."""
        return 1

    async def refresh(self) -> None:
        """Counts."""
        self.refreshed += 1

    async def send(self, node: int, request: Any) -> Any:
        """The next answer."""
        self.asked.append((node, request._rack_id))
        self.sizes.append(request.topics[0][1][0][2])
        given = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        seconds, given = given if isinstance(given, tuple) else (0.001, given)
        await asyncio.sleep(seconds)
        if isinstance(given, BaseException):
            raise given
        return given


def read(script: Callable[[], Script], stop: int = 3) -> tuple[list[Any], Script, float]:
    """Reads a range from 0; the positions, the script, and the seconds it took."""

    async def main(_: Simulation) -> tuple[list[Any], Script, float]:
        made, now = script(), asyncio.get_running_loop().time
        started = now()
        found: list[Any] = []
        parts = RangeRead(made, TP, 0, stop).parts(with_headers=False, max_bytes=1 << 20)
        async for part in parts:
            found += part.positions
        return found, made, now() - started

    return simulate(main)


@pytest.mark.parametrize(
    "failure",
    [
        answer(code=LEADER_MOVED),
        answer(code=STORAGE_FAILED),
        answer(code=FENCED_EPOCH),
        throttled(),
        ConnectionResetError("gone"),
        TimeoutError(),
    ],
    ids=["moved", "storage", "epoch", "throttled", "broken", "late"],
)
def test_failure_that_may_pass_is_asked_again_of_whoever_leads_now(failure: Any) -> None:
    """The metadata are fresh before the next try."""
    found, script, seconds = read(lambda: Script([failure, failure, answer(RECORDS)]))
    assert found == [0, 1, 2]
    assert script.refreshed == 2
    assert seconds < 1


def test_failure_of_the_answer_ahead_is_asked_again() -> None:
    """It may have failed while nobody waited for it."""
    more = batch(range(3), base=3)
    answers = [answer(RECORDS, bound=6), answer(code=LEADER_MOVED), answer(more, bound=6)]
    found, _script, _seconds = read(lambda: Script(answers), stop=6)
    assert found == list(range(6))


@pytest.mark.parametrize("aborted, found", [([(7, 0)], [3, 4, 5]), ([], [0, 1, 2, 3, 4, 5])])
def test_answer_that_may_leave_out_an_aborted_transaction_is_asked_for_once_more(
    aborted: Sequence[tuple[int, int]], found: Sequence[int]
) -> None:
    """It ends with a segment of the log, which the log cleaner may just be replacing."""
    ours, others = batch(range(3), producer=7), batch(range(3), base=3)
    answers = [answer(ours, bound=6), answer(ours, bound=6, aborted=aborted)]
    answers += [answer(others, bound=6)]
    positions, script, _seconds = read(lambda: Script(answers), stop=6)
    assert (positions, len(script.asked)) == (found, 3)


def test_second_answer_that_leaves_out_more_than_the_first_one_does_not_count() -> None:
    """The first was in doubt by a transaction that was committed; a segment is replaced while the second is made."""
    ours = batch(range(3), producer=7) + batch(range(3), base=3, producer=8)
    answers = [answer(ours, bound=9, aborted=aborted) for aborted in ([(8, 3)], [], [(8, 3)])]
    answers += [answer(batch(range(3), base=6), bound=9)]
    positions, script, _seconds = read(lambda: Script(answers), stop=9)
    assert (positions, len(script.asked)) == ([0, 1, 2, 6, 7, 8], 4)


def test_failure_that_stays_is_given_up_in_time() -> None:
    """Spark trap 18: as an error after which a task reads again."""
    with pytest.raises(TransientAdapterError, match="given up after 10 s"):
        read(lambda: Script([answer(code=LEADER_MOVED)]))


def test_silence_is_given_up_in_time() -> None:
    """Spark trap 18: a leader that takes the request and says nothing."""
    with pytest.raises(TransientAdapterError, match="silent; given up after 10 s"):
        read(lambda: Script([(1e6, answer(RECORDS))]))


def test_log_that_its_broker_finds_corrupt_is_given_up_after_three_answers() -> None:
    """The broker itself cannot read the record, or a bit of its answer has flipped."""
    found, _script, _seconds = read(lambda: Script([answer(code=CORRUPT)] * 2 + [answer(RECORDS)]))
    assert found == [0, 1, 2]
    with pytest.raises(UnreadableRecordError, match=r"t\[0\].*offset 0.*CorruptRecord"):
        read(lambda: Script([answer(code=CORRUPT)] * 3 + [answer(RECORDS)]))


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_batch_that_cannot_lie_where_it_says_is_no_gap(bit: int) -> None:
    """The checksum does not cover where it lies: the range would end, or go on, without it."""
    first, second, third = (batch(range(3), base=base) for base in (0, 3, 6))
    place = (int.from_bytes(second[:8]) ^ 1 << bit).to_bytes(8)
    data = first + place + second[8:] + third
    with pytest.raises(UnreadableRecordError, match=r"t\[0\].*cannot lie at"):
        read(lambda: Script([answer(data, bound=9)]), stop=9)


def test_batch_of_a_length_that_no_answer_has_is_given_up_in_time() -> None:
    """It was asked for ever, with more bytes each time."""
    data = RECORDS[:8] + (1 << 30).to_bytes(4) + RECORDS[12:]
    with pytest.raises(UnreadableRecordError, match="its length points beyond"):
        read(lambda: Script([answer(data)]))


def test_corrupt_batch_is_given_up_after_three_answers() -> None:
    """The network may have damaged it; what a damaged one holds is not taken for records."""
    bad, said = answer(RECORDS[:-1] + b"?"), r"t\[0\].*the offsets 0 to 2 .*checksum"
    found, script, _seconds = read(lambda: Script([bad, bad, answer(RECORDS)]))
    assert (found, len(script.sizes)) == ([0, 1, 2], 3)
    with pytest.raises(UnreadableRecordError, match=said):
        read(lambda: Script([bad, bad, bad, answer(RECORDS)]))


class Log(Script):
    """A broker with a log of three batches, of which a bit of some answers is another.

    Args:
        bit: of the log's bytes.
        times: answers in which it is.
    """

    BATCHES: ClassVar = [
        batch(range(3), base=base, codec=codec) for base, codec in ((0, 0), (3, 1), (6, 0))
    ]

    def __init__(self, bit: int, times: int) -> None:
        super().__init__([()])
        self._bit = bit
        self._times = times

    async def send(self, node: int, request: Any) -> Any:
        """What lies at the position and behind it."""
        position = request.topics[0][1][0][1]
        log, at = bytearray(b"".join(self.BATCHES)), sum(map(len, self.BATCHES[: position // 3]))
        if self._bit // 8 >= at and self._times:
            self._times -= 1
            log[self._bit // 8] ^= 1 << self._bit % 8
        await asyncio.sleep(0.001)
        return answer(bytes(log[at:]), bound=9)


LAST_PLACE = range(8 * sum(map(len, Log.BATCHES[:2])) + 40, 8 * sum(map(len, Log.BATCHES[:2])) + 64)
"""The lower bits of where the last batch says it lies: it may lie above the bound, which was told earlier."""


def flipped(bit: int, times: int) -> tuple[list[Any], str]:
    """The records that come of the log, and the error that ends them."""

    async def main(_: Simulation) -> tuple[list[Any], str]:
        found: list[Any] = []
        try:
            parts = RangeRead(Log(bit, times), TP, 0, 9).parts(with_headers=True, max_bytes=1 << 20)
            async for part in parts:
                found += zip(part.positions, part.keys, strict=True)
        except UnreadableRecordError as error:
            return found, str(error)
        return found, ""

    return simulate(main)


ALL = [(n, b"%d" % (n % 3)) for n in range(9)]
BITS = [bit for bit in range(8 * sum(map(len, Log.BATCHES))) if bit not in LAST_PLACE]


@pytest.mark.parametrize("times", [1, 2])
def test_bit_that_flips_on_the_wire_is_not_seen(times: int) -> None:
    """Wherever it is: the log is sound, and is fetched again."""
    for bit in BITS[times::17]:
        assert flipped(bit, times) == (ALL, ""), bit


def test_bit_that_has_flipped_in_the_log_is_an_error_or_not_seen_and_never_a_gap() -> None:
    """What lies before it comes. Some bits, such as those of the leader's epoch, mean nothing here."""
    for bit in BITS[::31]:
        found, error = flipped(bit, 1 << 30)
        assert found == ALL[: len(found)], bit
        if len(found) < len(ALL):
            assert "fetching t[0]: " in error, bit
            assert f" {len(found)} " in error, bit
        damaged = sum(8 * sum(map(len, Log.BATCHES[:n])) <= bit for n in (1, 2))
        assert len(found) in (3 * damaged, len(ALL)), bit


def compacted(offsets: Sequence[int], broken: int) -> bytes:
    """A batch that lost records, with a checksum that fits; one of them has no sense."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, 0, 0, 1 << 20)
    for offset in offsets:
        builder.append(offset, 1_000, None, b"broken" if offset == broken else b"sound", [])
    data = builder.build()
    at = data.index(b"broken")
    data[at - 1] = 0x7E  # its size, which points beyond it
    data[17:21] = calc_crc32c(data[21:]).to_bytes(4)
    return bytes(data)


def test_record_behind_the_stop_that_cannot_be_read_is_not_of_the_range() -> None:
    """A gap lies in between: what is read ends below the stop."""
    data = compacted([0, 1, 7], broken=7)
    found, script, _seconds = read(lambda: Script([answer(data, bound=8)]), stop=4)
    assert found == [0, 1]
    assert len(script.sizes) <= 4
    with pytest.raises(UnreadableRecordError, match="offset 7 cannot be read"):
        read(lambda: Script([answer(data, bound=8)]), stop=8)


def test_batch_behind_the_stop_is_not_fetched_again(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody wants it."""
    data = RECORDS + batch(range(3), base=3)[:-1] + b"?"
    found, script, _seconds = read(lambda: Script([answer(data, bound=6)]))
    assert (found, len(script.sizes)) == ([0, 1, 2], 1)
    assert not caplog.records


class Pages(Script):
    """A broker that answers with a few batches at a time, and with the first bytes of the next one.

    Args:
        log: (first offset, batch), in order.
        most: batches of an answer.
        cut: bytes of the one behind them.
        bit: of a batch's first offset that is another in one answer.
        which: that batch.
    """

    def __init__(
        self,
        log: Sequence[tuple[int, bytes]],
        most: int,
        *,
        cut: int = 0,
        bit: int = -1,
        which: int = -1,
    ) -> None:
        super().__init__([()])
        self._log, self._most, self._cut = log, most, cut
        self._bit, self._which = bit, which

    async def send(self, node: int, request: Any) -> Any:
        """What ends behind the position."""
        position = request.topics[0][1][0][1]
        await asyncio.sleep(0.001)
        if position > self.end:
            return answer(code=1, bound=self.end)
        self.sizes.append(position)
        data, some = b"", 0
        for number, (base, raw) in enumerate(self._log):
            if base + int.from_bytes(raw[23:27]) < position:
                continue
            if some == self._most:
                data += raw[: self._cut]
                break
            if number == self._which and self._bit >= 0:
                data += (base ^ 1 << self._bit).to_bytes(8) + raw[8:]
                self._bit = -1
            else:
                data += raw
            some += 1
        return answer(data, bound=self.end)

    @property
    def end(self) -> int:
        """Behind the last record."""
        base, raw = self._log[-1]
        return base + int.from_bytes(raw[23:27]) + 1


def paged(pages: Callable[[], Pages], start: int, stop: int) -> tuple[list[Any], Pages]:
    """Position, key and value of what comes of a range."""

    async def main(_: Simulation) -> tuple[list[Any], Pages]:
        made, found = pages(), list[Any]()
        async for part in RangeRead(made, TP, start, stop).parts(with_headers=False, max_bytes=99):
            found += zip(part.positions, part.keys, part.values, strict=True)
        return found, made

    return simulate(main)


def log_of(begins: Sequence[int], count: int) -> list[tuple[int, bytes]]:
    """For `Pages`: batches whose values say where they lie."""
    return [(base, batch(range(count), base=base, value=b"%d" % base)) for base in begins]


def rows_of(begins: Sequence[int], count: int, start: int, stop: int) -> list[Any]:
    """What `paged` finds of such a log."""
    rows = [(base + n, b"%d" % n, b"%d" % base) for base in begins for n in range(count)]
    return [row for row in rows if start <= row[0] < stop]


@pytest.mark.parametrize("cut", [0, 40])
@pytest.mark.parametrize("start", [0, 16, 20])
@pytest.mark.parametrize("most", [1, 2, 8])
def test_bit_of_where_a_batch_lies_moves_no_record(most: int, start: int, cut: int) -> None:
    """Also of the first batch, in which a range may begin, and of the last that an answer has."""
    begins = range(0, 64, 8)
    log, rows = log_of(begins, 8), rows_of(begins, 8, start, 60)
    for which in range(start // 8, 8, 2):
        for bit in (0, 3, 4, 19):
            if most == 1 and not cut and begins[which] ^ 1 << bit == start:
                continue  # just where it is due, and nothing behind it: nobody can tell
            pages = partial(Pages, log, most, cut=cut, bit=bit, which=which)
            assert paged(pages, start, 60)[0] == rows, (which, bit)


@pytest.mark.parametrize("most", [1, 2, 8])
@pytest.mark.parametrize("start", [0, 21])
@pytest.mark.parametrize("cut", [0, 40])
def test_gaps_that_compaction_left_are_passed(cut: int, start: int, most: int) -> None:
    """What an answer's only batch says of its place is asked twice, and no more often."""
    begins = range(4, 64, 8)
    found, pages = paged(partial(Pages, log_of(begins, 3), most, cut=cut), start, 63)
    assert found == rows_of(begins, 3, start, 63)
    assert max(map(pages.sizes.count, pages.sizes)) <= 2


def test_quick_answer_without_records_below_the_bound_ends_the_range() -> None:
    """Spark trap 10: compaction took the last ones of the log; none will ever come."""
    found, _script, seconds = read(lambda: Script([answer(RECORDS, bound=9), answer(bound=9)]), 9)
    assert found == [0, 1, 2]
    assert seconds < 1


def test_slow_answer_without_records_does_not_end_the_range() -> None:
    """The broker waited for a tier that had them: they come with a later answer."""
    slow = (0.6, answer())
    found, _script, _seconds = read(lambda: Script([slow, slow, answer(RECORDS)]))
    assert found == [0, 1, 2]


class Tiered(Script):
    """A broker whose first records are in a tier that is beyond its quota for a while."""

    async def send(self, node: int, request: Any) -> Any:
        """At once; from the broker's own disk, there is always an answer."""
        if request.topics[0][1][0][1] >= LOCAL:
            return answer(batch(range(1), base=LOCAL), bound=LOCAL + 1)
        return await super().send(node, request)


def test_quick_answer_without_records_before_others_does_not_end_the_range() -> None:
    """A tier beyond its quota: what the log's end has says that there is more to come."""
    empty = answer(bound=LOCAL + 1)
    records = answer(RECORDS, bound=LOCAL + 1)
    found, _script, _seconds = read(lambda: Tiered([empty, empty, records]))
    assert found == [0, 1, 2]
    with pytest.raises(TransientAdapterError, match="waited in vain"):
        read(lambda: Tiered([empty]))


def test_bound_below_the_stop_is_waited_for() -> None:
    """A replica that lags, or a transaction that is open."""
    found, _script, _seconds = read(lambda: Script([answer(bound=0), answer(RECORDS)]))
    assert found == [0, 1, 2]


def test_record_that_is_cut_off_is_fetched_with_more_room() -> None:
    """Brokers before Kafka 0.10.1 cut what is larger than was asked for."""
    found, script, _seconds = read(
        lambda: Script([answer(RECORDS[:40]), answer(RECORDS[:70]), answer(RECORDS)])
    )
    assert found == [0, 1, 2]
    first, second, third = script.sizes
    assert second >= 2 * first
    assert third >= 2 * second


def test_small_range_is_not_fetched_with_megabytes() -> None:
    """What lies behind the range would be thrown away."""
    _found, script, _seconds = read(lambda: Script([answer(RECORDS)]))
    assert script.sizes == [2**16]


class Absent(Script):
    """A connection whose metadata do not name the partition until it is made again."""

    def leader(self, tp: TopicPartition) -> int:
        """As the metadata have it."""
        return Connection.leader(self, tp)

    async def refresh(self) -> None:
        """Metadata of a cluster."""
        self.refreshed += 1
        self.take(topic("t", error=3))

    def make(self) -> None:
        """The topic is there again."""
        self.take(topic("t", (1, 0)))

    def take(self, *topics: Any) -> None:
        """Takes metadata in."""
        answer = MetadataResponseV12(0, [], "cluster", 1, list(topics), {})
        self.cluster.metadata.take(answer, asyncio.get_running_loop().time())


def test_partition_that_is_gone_is_out_of_range_until_it_is_made_again() -> None:
    """Spark trap 11: it is waited for once, and looked for again after a while."""

    async def main(_: Simulation) -> None:
        made, now = Absent([answer(RECORDS)]), asyncio.get_running_loop().time
        for patience in (3.0, 0.1):
            started = now()
            with pytest.raises(PositionOutOfRangeError, match="does not exist"):
                await anext(RangeRead(made, TP, 0, 3).parts(with_headers=False, max_bytes=1))
            assert now() - started < patience
        await asyncio.sleep(60)
        looked = made.refreshed
        with pytest.raises(PositionOutOfRangeError):
            await anext(RangeRead(made, TP, 0, 3).parts(with_headers=False, max_bytes=1))
        assert made.refreshed == looked + 1
        made.make()
        parts = RangeRead(made, TP, 0, 3).parts(with_headers=False, max_bytes=1)
        assert [list(part.positions) async for part in parts] == [[0, 1, 2]]

    simulate(main)


NEAR = answer(replica=2)
"""The leader's: what is wanted is with node 2."""
OFF = answer(code=1)
"""Of a replica that is behind: the offset is out of range."""


@pytest.mark.parametrize(
    "answers, asked",
    [
        ([NEAR, answer(RECORDS)], [(1, "a"), (2, "a")]),
        ([answer(RECORDS)], [(1, "a")]),
        ([NEAR, OFF, answer(RECORDS)], [(1, "a"), (2, "a"), (1, "")]),
        ([NEAR, answer(RECORDS[:-1] + b"?"), answer(RECORDS)], [(1, "a"), (2, "a"), (1, "")]),
        ([NEAR, answer(), answer(RECORDS)], [(1, "a"), (2, "a"), (1, "")]),
        ([NEAR, ConnectionError("gone"), answer(RECORDS)], [(1, "a"), (2, "a"), (1, "")]),
        ([NEAR, throttled(), answer(RECORDS)], [(1, "a"), (2, "a"), (1, "")]),
    ],
)
def test_a_replica_near_by_is_read_and_the_leader_where_that_has_nothing(
    answers: list[Any], asked: list[tuple[int, str]]
) -> None:
    """KIP-392; a follower may be behind, so that it never says that there is nothing."""
    found, script, _ = read(lambda: Script(answers, rack="a"))
    assert found == [0, 1, 2]
    assert script.asked == asked


def test_nothing_is_said_of_a_rack_that_was_not_given() -> None:
    """And no replica is asked."""
    _, script, _ = read(lambda: Script([answer(RECORDS, replica=2)]))
    assert script.asked == [(1, "")]
