"""What `test_s3` runs in an environment with s3fs: ``python -m tests.spark_bridge.feed.s3_program``.

``write BUCKET LAST`` feeds the records 0 to LAST, in segments of ten; ``read BUCKET DIRECTORY`` prints the
offsets that a query delivers, which goes on from its checkpoint in DIRECTORY.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import fsspec

from consumer_sdk import spark_bridge
from consumer_sdk.spark_bridge import SparkFeed
from tests.spark_bridge.feeding import messages
from tests.spark_bridge.version_program import available_now, session

STEP = 10


async def write(bucket: str, last: int) -> int:
    """How many records this writer has stored; the others were there."""
    filesystem = fsspec.filesystem("s3")
    async with SparkFeed(f"{bucket}/orders", filesystem=filesystem, max_wait=0.0) as feed:
        for begin in range(0, last, STEP):
            await feed.write(messages(begin, begin + STEP - 1))
        return feed.stats().written


def read(bucket: str, directory: Path) -> list[str]:
    """Partition and offset of each row."""
    spark = session(directory)
    url = f"feed+s3://{bucket}/orders?retention=committed&reader=totals"
    rows = available_now(spark_bridge.read_stream(spark, url), directory / "checkpoint")
    spark.stop()
    return [row for batch in rows for row in batch]


if __name__ == "__main__":
    what, place, argument = sys.argv[1:]
    found = (
        asyncio.run(write(place, int(argument))) if what == "write" else read(place, Path(argument))
    )
    print(json.dumps(found))  # noqa: T201 - for the test
