"""A bare loop: aiohttp asks, orjson and binascii read the answer, and nothing is tracked or acked.

Requests are not signed; test servers want to see an Authorization header, whatever it says.
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any

import aiohttp
import orjson

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.kinesis.records import check

API = "Kinesis_20131202"
HEADERS = {
    "Content-Type": "application/x-amz-json-1.1",
    "X-Amz-Date": "20250101T000000Z",
    "Authorization": (
        "AWS4-HMAC-SHA256 Credential=any/20250101/us-east-1/kinesis/aws4_request, "
        "SignedHeaders=host, Signature=any"
    ),
}


async def contest(job: Job) -> Measured:
    """Count records answer by answer."""
    meter = Meter(job)
    values: list[bytes] = []
    async with aiohttp.ClientSession(job.servers, headers=HEADERS) as session:
        shards = await _ask(session, "ListShards", StreamName=job.topic)
        iterator = (
            await _ask(
                session,
                "GetShardIterator",
                StreamName=job.topic,
                ShardId=shards["Shards"][0]["ShardId"],
                ShardIteratorType="TRIM_HORIZON",
            )
        )["ShardIterator"]
        while True:
            answer = await _ask(session, "GetRecords", ShardIterator=iterator, Limit=10_000)
            iterator = answer["NextShardIterator"]
            values += [a2b_base64(record["Data"]) for record in answer["Records"]]
            if meter.count(len(answer["Records"])):
                break
        measured = meter.measured()
        check(values, job.warmup + job.records)
        return measured


async def _ask(session: aiohttp.ClientSession, operation: str, **asked: Any) -> Any:
    headers = {"X-Amz-Target": f"{API}.{operation}"}
    async with session.post("/", data=orjson.dumps(asked), headers=headers) as response:
        content = await response.read()
        if not response.ok:
            raise RuntimeError(f"{operation}: {content.decode()}")
        return orjson.loads(content)


if __name__ == "__main__":
    run(contest)
