"""A Kafka of our own, for tests: the group coordinator as a pure model, on a clock that the test gives.

`GroupCoordinator` answers the requests of `consumer_sdk.adapters.kafka.groups.messages`, as Kafka 4.3's coordinator does.

What it does not do as Kafka does:

- A group has members of one protocol. Kafka moves a group from one protocol to the other while it has members.
- A pattern is Python's, and it is evaluated at once; Kafka's is RE2's, and a heartbeat after the first one brings its topics.
- Assignments of the server are balanced and move little, but they are not those that Kafka's assignors make.
- Racks, quotas, access rights and the retention of offsets are not there.
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

__all__ = [
    "ClusterTopics",
    "Code",
    "CoordinatorOptions",
    "GroupCoordinator",
    "OffsetCommit",
    "OffsetFetch",
    "Pending",
]
