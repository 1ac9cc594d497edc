"""A Kafka of our own, for tests: the group coordinator as a pure model, on a clock that the test gives.

`GroupCoordinator` answers the requests of `consumer_sdk.adapters.kafka.groups.messages`, as Kafka 4.3's coordinator does.
`ShareCluster` answers those of `consumer_sdk.adapters.kafka.share.messages`, as the coordinator and the leaders of a
Kafka 4.3 do.

What they do not do as Kafka does:

- A group has members of one protocol. Kafka moves a group from one protocol to the other while it has members.
- A pattern is Python's, and it is evaluated at once; Kafka's is RE2's, and a heartbeat after the first one brings its topics.
- Assignments of the server are balanced and move little, but they are not those that Kafka's assignors make.
- Racks, quotas, access rights and the retention of offsets are not there.
- A fetch of a share group waits for the first record, never for more bytes. States of share partitions are stored at once.
- A share group reads uncommitted.
- A share partition goes on where compaction has removed what its start offset was at, or all that was available of a full
  flight. Kafka 4.3's code waits there: for the end of a lock, or for more than that.
"""

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from consumer_sdk.testing.kafka.coordinator import (
    ClusterTopics,
    CoordinatorOptions,
    GroupCoordinator,
    OffsetCommit,
    OffsetFetch,
    Pending,
)
from consumer_sdk.testing.kafka.refusals import Code
from consumer_sdk.testing.kafka.share_broker import PendingFetch
from consumer_sdk.testing.kafka.share_cluster import ShareCluster, ShareOptions
from consumer_sdk.testing.kafka.share_in_flight import Limits
from consumer_sdk.testing.kafka.share_log import LogBatch, Outcome, PartitionLog, RecordState

__all__ = [
    "ClusterTopics",
    "Code",
    "CoordinatorOptions",
    "GroupCoordinator",
    "Limits",
    "LogBatch",
    "OffsetCommit",
    "OffsetFetch",
    "Outcome",
    "PartitionLog",
    "Pending",
    "PendingFetch",
    "RecordState",
    "ShareCluster",
    "ShareOptions",
]
