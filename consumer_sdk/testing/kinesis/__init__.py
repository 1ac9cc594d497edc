"""A Kinesis of our own, for tests: a model, and two ways to it.

`FakeKinesis` is the model: streams, shards and readers, on a clock that the test gives.
`FakeService` takes it to the adapter in process, for simulation; `FakeKinesisServer` to any
client, over HTTP.

What it does not do as AWS does:

- Streams are created, split, merged and deleted at once; there is no UPDATING.
- Refused calls do not count against a shard's limits; writes have no limits.
- Records of one shard are stored in the order of `FakeKinesis.put`, and are readable at once.
- A sequence number grows by one index for each record; AWS leaves larger gaps.
- A sequence number that was trimmed leads to the horizon; AWS documents neither that nor an error.
- An iterator of a stream that was deleted and made again is ResourceNotFoundException.
- Nothing is signed, encrypted or paid for, and there are no on-demand streams.
"""

from consumer_sdk.testing.kinesis.errors import RefusedError
from consumer_sdk.testing.kinesis.model import FakeKinesis
from consumer_sdk.testing.kinesis.options import Quirks, ShardLimits
from consumer_sdk.testing.kinesis.record import FakeRecord
from consumer_sdk.testing.kinesis.server import FakeKinesisServer
from consumer_sdk.testing.kinesis.service import FakeService
from consumer_sdk.testing.kinesis.shard import FakeShard
from consumer_sdk.testing.kinesis.stream import FakeStream

__all__ = [
    "FakeKinesis",
    "FakeKinesisServer",
    "FakeRecord",
    "FakeService",
    "FakeShard",
    "FakeStream",
    "Quirks",
    "RefusedError",
    "ShardLimits",
]
