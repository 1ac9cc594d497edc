"""A request of transactions that aiokafka has only in an old version.

InitProducerId v3 (KIP-360, Kafka 2.5) names the producer that asks for its next epoch, so the broker refuses a producer
that was replaced.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from typing import ClassVar, NamedTuple

from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Int16, Int32, Int64, Schema

from consumer_sdk.adapters.kafka.client.protocol import (
    COMPACT_TEXT,
    END,
    WireRequest,
    milliseconds,
)

__all__ = ["INIT_PRODUCER_ID", "NOBODY", "InitProducerId", "ProducerId"]

INIT_PRODUCER_ID = 22


class ProducerId(NamedTuple):
    """Who writes: the broker refuses all but the newest epoch of a transactional id."""

    id: int
    epoch: int


NOBODY = ProducerId(-1, -1)


class InitProducerIdResponseV3(Response):
    """The producer's id and epoch."""

    API_KEY = INIT_PRODUCER_ID
    API_VERSION = 3
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        END,
    )


class InitProducerIdRequestV3(RequestStruct):
    """Asks for the next epoch."""

    FLEXIBLE_VERSION = True
    API_KEY = INIT_PRODUCER_ID
    API_VERSION = 3
    RESPONSE_TYPE = InitProducerIdResponseV3
    SCHEMA: ClassVar[Schema] = Schema(
        ("transactional_id", COMPACT_TEXT),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        END,
    )


class InitProducerId(WireRequest[InitProducerIdRequestV3]):
    """Asks for a producer's next epoch.

    Args:
        timeout: seconds after which the broker aborts an open transaction.
        known: who asks; `NOBODY`: a new producer, which takes the place of any other.
    """

    API_KEY = INIT_PRODUCER_ID

    def __init__(self, transactional_id: str, timeout: float, known: ProducerId) -> None:
        producer_id, producer_epoch = known
        super().__init__(
            transactional_id=transactional_id,
            transaction_timeout_ms=milliseconds(timeout),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
