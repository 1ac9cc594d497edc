"""The records that are read: made of their numbers, so that whoever has them can check them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

__all__ = ["FIRST_SEQUENCE", "MissingRecordsError", "body", "check", "key", "value"]

FIRST_SEQUENCE = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898
"""Of 56 digits, as Kinesis has them."""

SIZE = 100
KEYS = 5_000
ARRIVAL = 1_700_000_000.123


class MissingRecordsError(Exception):
    """Not the records that were asked for, or not in order."""


def value(number: int) -> bytes:
    """The data of a record: 100 bytes, JSON too, for consumers that insist on it."""
    return b'"%0*d"' % (SIZE - 2, number)


def key(number: int) -> str:
    """Its partition key."""
    return f"key-{number % KEYS:05d}"


def check(values: Sequence[bytes], records: int) -> None:
    """Raises MissingRecordsError unless the first ``records`` are there, in order, each once."""
    if len(values) < records:
        raise MissingRecordsError(f"{len(values):,} of {records:,} records")
    for number, found in zip(range(records), values, strict=False):
        if found != value(number):
            raise MissingRecordsError(f"record {number:,} is {found!r}")


def body(first: int, count: int, iterator: str, behind: int) -> bytes:
    """An answer to GetRecords, as AWS writes it.

    Args:
        iterator: the next one.
        behind: milliseconds to the tip.
    """
    records = ",".join(_record(number) for number in range(first, first + count))
    return (
        f'{{"MillisBehindLatest":{behind},"NextShardIterator":"{iterator}","Records":[{records}]}}'
    ).encode()


def _record(number: int) -> str:
    return (
        f'{{"ApproximateArrivalTimestamp":{ARRIVAL},"Data":"{b64encode(value(number)).decode()}",'
        f'"PartitionKey":"{key(number)}","SequenceNumber":"{FIRST_SEQUENCE + number}"}}'
    )
