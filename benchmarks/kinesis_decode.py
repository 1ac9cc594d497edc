"""What an answer of GetRecords costs until it is read: our way, and the client's own parser.

Both sides get the same bytes, ten thousand records of a hundred, at the same place: where the
client hands an answer to its parser. Ours ends with a finished `Page`; the client's with its
parsed answer, which would still have to be made one. No network and no server is part of it.

Sides take turns, in opposite order in every second round; the ratio is the median of the rounds'
ratios. Time is the thread's own: nothing here waits.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from aiobotocore.parsers import AioResponseParserFactory
from aiobotocore.session import AioSession

from consumer_sdk.adapters.kinesis.service.hooks import PAGE, read_records

__all__ = ["decode_vs_aiobotocore", "record_body"]

RECORDS = 10_000
SIZE = 100
ROUNDS = 9

Side = Callable[[], Awaitable[int]]


async def decode_vs_aiobotocore(rounds: int = ROUNDS) -> dict[str, float]:
    """How many times as fast ours is, and records a second of both.

    Returns:
        ``decode_vs_aiobotocore``, ``decode_ours_per_s``, ``decode_aiobotocore_per_s``.
    """
    sides = await _sides(record_body(RECORDS, SIZE))
    times = [await _round(sides, number) for number in range(rounds + 1)][1:]  # the first warms up
    return {
        "decode_vs_aiobotocore": median(theirs / ours for ours, theirs in times),
        "decode_ours_per_s": RECORDS / median(ours for ours, _ in times),
        "decode_aiobotocore_per_s": RECORDS / median(theirs for _, theirs in times),
    }


def record_body(count: int, size: int) -> bytes:
    """The body of an answer to GetRecords, as the service sends it."""
    source = random.Random(1)
    records = [
        {
            "SequenceNumber": str(49590338271490256608559692538361571095921575989136588898 + at),
            "ApproximateArrivalTimestamp": 1_700_000_000 + at / 1000,
            "Data": b64encode(source.randbytes(size)).decode(),
            "PartitionKey": f"key-{at % 100}",
        }
        for at in range(count)
    ]
    answer = {"Records": records, "NextShardIterator": "A" * 200, "MillisBehindLatest": 0}
    return json.dumps(answer, separators=(",", ":")).encode()


async def _round(sides: list[Side], number: int) -> tuple[float, float]:
    times = [0.0, 0.0]
    for side in (0, 1) if number % 2 else (1, 0):
        gc.collect()
        began = time.thread_time()
        count = await sides[side]()
        times[side] = time.thread_time() - began
        if count != RECORDS:
            raise RuntimeError(f"{count} records were read of {RECORDS}")
    return times[0], times[1]


def _response(body: bytes) -> dict[str, Any]:
    """What the client hands to its hooks and its parser."""
    return {
        "headers": {"content-type": "application/x-amz-json-1.1"},
        "status_code": 200,
        "context": {"operation_name": "GetRecords"},
        "body": body,
    }


async def _sides(body: bytes) -> list[Side]:
    model = await AioSession().get_service_model("kinesis")
    shape = model.operation_model("GetRecords").output_shape
    parser = AioResponseParserFactory().create_parser(model.resolved_protocol)

    async def ours() -> int:
        response, found = _response(body), dict[str, Any]()
        read_records(response, found)
        await parser.parse(response, shape)  # what the hook has left of it
        return len(found[PAGE].data)

    async def theirs() -> int:
        return len((await parser.parse(_response(body), shape))["Records"])

    return [ours, theirs]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(decode_vs_aiobotocore()), indent=2))
