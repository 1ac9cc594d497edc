"""A Kinesis of our own, for tests: a model, and two ways to it.

`FakeKinesis` is the model: streams, shards and readers, on a clock that the test gives.
`FakeService` takes it to the adapter in process, for simulation; `FakeKinesisServer` to any
client, over HTTP.

What it does not do as AWS does:

- Streams are created, split, merged and deleted at once; there is no UPDATING.
- UpdateShardCount, tags, stream modes and resource policies are not there.
- Only GetRecords and GetShardIterator have limits; ListShards and the describing calls have none.
- A PutRecords with a record that cannot be has stored those before it; AWS stores none of them.
- Refused calls do not count against a shard's limits; writes have no limits but what `FakeKinesis.refuse_puts` plans.
- Records of one shard are stored in the order of `FakeKinesis.put`, and are readable at once.
- A sequence number grows by one index for each record; AWS leaves larger gaps.
- A sequence number that was trimmed leads to the horizon; AWS documents neither that nor an error.
- Events of a subscription have 2 000 records or 1 MiB at most; AWS states no such numbers.
- A pair of consumer and shard is busy for five seconds even if its subscription has ended.
- A consumer is gone at once when it is deregistered, and so are its subscriptions.
- An iterator of a stream that was deleted and made again is ResourceNotFoundException.
- Nothing is signed, encrypted or paid for, and there are no on-demand streams.
"""

from consumer_sdk.adapters.kinesis import client_support as _support  # noqa: F401 - is it there?

# isort: split
from consumer_sdk.testing.kinesis.errors import RefusedError
from consumer_sdk.testing.kinesis.model import FakeKinesis
from consumer_sdk.testing.kinesis.options import Quirks, ShardLimits
from consumer_sdk.testing.kinesis.server import FakeKinesisServer
from consumer_sdk.testing.kinesis.service import FakeService
from consumer_sdk.testing.kinesis.shard import FakeRecord, FakeShard
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
