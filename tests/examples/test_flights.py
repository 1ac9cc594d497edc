"""The parts of the main job that need no server."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from consumer_sdk.records import Assignment, Message, Partition, Redelivery
from examples.flights.audit import audit
from examples.flights.consume import is_good
from examples.flights.data import airlines, encode, encoded_flights
from examples.flights.delays import UNKNOWN, Delays
from examples.flights.journal import Journal, deliveries, redelivered
from examples.flights.ledger import Ledger, write_batch
from examples.flights.picture import draw
from examples.flights.produce import PARTITIONS, partition_of
from examples.flights.progress import Gauge, Progress


def table_of(text: str) -> list[list[str]]:
    """Rows of CSV text."""
    return list(csv.reader(io.StringIO(text)))


WEEK = date(2013, 1, 3)
OTHER_WEEK = date(2013, 1, 10)


def cell(
    carrier: str,
    flights: int,
    minutes: float,
    origins: list[tuple[int, int]],
    *,
    week: date = WEEK,
    built: int | None = 2000,
) -> dict[str, object]:
    """A row of what Spark hands over for a micro-batch."""
    places = [{"partition": partition, "offset": offset} for partition, offset in origins]
    amount = {"flights": flights, "minutes": minutes}
    return {"week": week, "carrier": carrier, "hour": 5, "built": built, "origins": places} | amount


def delivery(partition: int, offset: int, attempt: int) -> Message:
    """A delivery of a record."""
    assignment = Assignment(Partition("flights", str(partition)), epoch=1)
    message = Message.make(assignment, offset, b"{}")
    return message if attempt == 1 else Redelivery.of(message, attempt)


class Terminal(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, live: bool) -> None:
        super().__init__()
        self._live = live

    def isatty(self) -> bool:
        """What it was told to say."""
        return self._live


def test_encoded_flight_is_the_json_of_its_row() -> None:
    """Numbers stay numbers, text is quoted, and what is missing is null."""
    rows = table_of("carrier,flight,tailnum,dep_delay\nUA,1545,N14228,-2\nAA,791,NA,NA\n")
    (key, value), (no_key, cancelled) = encode(rows, limit=10)
    assert key == b"N14228"
    assert json.loads(value) == {
        "carrier": "UA", "flight": 1545, "tailnum": "N14228", "dep_delay": -2,
    }  # fmt: skip
    assert no_key is None
    assert json.loads(cancelled) == {
        "carrier": "AA", "flight": 791, "tailnum": None, "dep_delay": None,
    }  # fmt: skip


def test_real_flights_are_valid_json_with_some_poison() -> None:
    """Of the first thousand real flights nearly all pass the check; the cancelled ones do not."""
    flights = [json.loads(value) for _, value in encoded_flights(1_000)]
    assert len(flights) == 1_000
    bad = [flight for flight in flights if flight["arr_time"] is None]
    assert 0 < len(bad) < 20
    assert {flight["carrier"] for flight in flights} <= airlines().keys()


@pytest.mark.parametrize(
    "value, good",
    [
        (b'{"dep_time": 517, "arr_time": 830}', True),
        (b'{"dep_time": 517, "arr_time": null}', False),
        (b'{"dep_time": null, "arr_time": null}', False),
        (b"not JSON", False),
        (None, False),
    ],
)
def test_flight_without_departure_or_arrival_is_bad(value: bytes | None, good: bool) -> None:  # noqa: FBT001 - a case
    """Cancelled and diverted flights are the natural poison."""
    assert is_good(value) == good


def test_same_aircraft_always_has_the_same_partition() -> None:
    """A key decides on the partition, so that an aircraft's flights stay in order."""
    assert len({partition_of(b"N14228", number) for number in range(100)}) == 1
    assert {partition_of(None, number) for number in range(100)} == set(range(PARTITIONS))


def test_journal_counts_repeated_attempts_only(tmp_path: Path) -> None:
    """A retry is a new attempt, not a redelivery; an entry cut off by a kill is ignored."""
    first, second = tmp_path / "1", tmp_path / "2"
    for path, entries in ((first, [(0, 1, 1), (0, 2, 1), (0, 2, 2)]), (second, [(0, 2, 2)])):
        journal = Journal(path)
        journal.write([delivery(*entry) for entry in entries])
        journal.close()
    with first.open("ab") as torn:
        torn.write(b"torn")
    assert deliveries(first) == 3
    assert redelivered([first, second, tmp_path / "absent"]) == 1


def test_ledger_reads_each_micro_batch_once(tmp_path: Path) -> None:
    """A micro-batch that Spark ran twice replaced its file, and counts once."""
    ledger = Ledger(tmp_path)
    first = pa.Table.from_pylist([cell("UA", 2, 10.0, [(0, 0), (0, 1)])])
    write_batch(tmp_path, 0, first)
    write_batch(tmp_path, 0, first)
    ledger.refresh()
    write_batch(tmp_path, 1, pa.Table.from_pylist([cell("UA", 1, 2.0, [(1, 0)])]))
    ledger.refresh()
    assert ledger.seen == Counter({(0, 0): 1, (0, 1): 1, (1, 0): 1})
    assert ledger.delays.cells["UA", 5].mean == 4.0


def test_ledger_adds_windows_of_several_micro_batches(tmp_path: Path) -> None:
    """Flights of a week that come late add to that week, and those of no known aircraft count."""
    ledger = Ledger(tmp_path)
    for number, row in enumerate(
        (
            cell("UA", 2, 10.0, [(0, 0), (0, 1)]),
            cell("UA", 1, 30.0, [(0, 2)], week=OTHER_WEEK, built=None),
            cell("UA", 1, 2.0, [(1, 0)], built=None),
        )
    ):
        write_batch(tmp_path, number, pa.Table.from_pylist([row]))
        ledger.refresh()
    delays = ledger.delays
    assert {week: total.mean for (_, week), total in delays.weeks.items()} == {
        WEEK: 4.0, OTHER_WEEK: 30.0,
    }  # fmt: skip
    assert {name: total.flights for name, total in delays.by_decade().items()} == {
        "2000s": 2, "?": 2,
    }  # fmt: skip


def test_audit_of_a_clean_run_adds_up() -> None:
    """Every record is in exactly one of the two places."""
    result = audit(3, {0: 2, 1: 1}, Counter([(0, 0), (1, 0)]), {(0, 1)}, redelivered=7)
    assert result.adds_up
    assert str(result) == "produced 3 = processed 2 + dead-lettered 1; redelivered 7"


@pytest.mark.parametrize(
    "seen, dead, word",
    [
        ([(0, 0)], [], "missing 1"),
        ([(0, 0), (0, 1)], [(0, 1)], "both 1"),
        ([(0, 0), (0, 0), (0, 1)], [], "repeated 1"),
        ([(0, 0), (0, 1), (5, 5)], [], "strange 1"),
    ],
)
def test_audit_with_a_fault_says_which(
    seen: list[tuple[int, int]], dead: list[tuple[int, int]], word: str
) -> None:
    """Even when the sums happen to match, each record is looked at."""
    result = audit(2, {0: 2}, Counter(seen), set(dead), redelivered=0)
    assert not result.adds_up
    assert word in str(result)


def test_audit_with_records_that_nobody_produced_does_not_add_up() -> None:
    """The producer's own count is compared, not only the topic's."""
    assert not audit(1, {0: 2}, Counter([(0, 0), (0, 1)]), set(), redelivered=0).adds_up


def test_progress_on_a_terminal_redraws_its_lines() -> None:
    """The second drawing goes up over the first one and clears it."""
    out = Terminal(live=True)
    progress = Progress(out, clock=lambda: 0.0)
    progress.show([Gauge("produced", 0.1, "first")], ["a table"])
    progress.show([Gauge("produced", 1.2, "second")], ["a table"])
    assert "\x1b[4F\x1b[J" in out.getvalue()
    assert "produced  ██████████████████████████████ 100%  second\n" in out.getvalue()


def test_progress_elsewhere_prints_a_plain_line_now_and_then() -> None:
    """A log gets a line every two seconds, a table every quarter, and no escape codes."""
    times = iter([0.0, 0.1, 0.2, 2.5, 2.6])
    out = Terminal(live=False)
    progress = Progress(out, clock=lambda: next(times))
    for share, text in ((0.1, "one"), (0.2, "two"), (0.3, "three"), (0.4, "four")):
        progress.show([Gauge("produced", share, text)], ["a table"])
    assert re.findall("one|two|three|four", out.getvalue()) == ["one", "three"]
    assert out.getvalue().count("a table") == 1
    assert "\x1b" not in out.getvalue()


def test_picture_of_few_flights_is_drawn(tmp_path: Path) -> None:
    """Cells without (enough) flights stay empty; the file is a PNG."""
    delays = Delays()
    delays.add("UA", 5, 100, 200.0, week=WEEK, built=2000)
    delays.add("HA", 9, 3, 30.0, week=OTHER_WEEK, built=UNKNOWN)
    draw(delays, tmp_path / "new" / "picture.png")
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_table_has_a_line_per_carrier_in_80_columns() -> None:
    """The busiest carrier comes first; the last line is of the aircraft."""
    delays = Delays()
    delays.add("HA", 9, 1, 30.0, week=WEEK, built=1990)
    delays.add("UA", 23, 2, -1.0, week=WEEK, built=UNKNOWN)
    _, _, first, second, last = delays.table()
    assert first.startswith(" UA")
    assert second.startswith(" HA")
    assert last.endswith(": 1990s 30  ? 0")
    assert max(map(len, delays.table())) <= 80
