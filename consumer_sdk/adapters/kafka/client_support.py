"""Checks, when aiokafka is first needed, that this package works with its version.

aiokafka's public surface has no fenced commit, no errors by partition, no bounded stop, no record
batches as bytes, and no way to keep its metadata requests from creating topics. What is used instead
is listed in `REQUIRED`: nothing else in the package names a private attribute of a client object, or
imports from the client's protocol, without it being there.

Any release may change private names. So a version outside of `LEAST` to `BELOW`, or one that lacks a name, is an error
at the import. Rooms whose modules need aiokafka import this one first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.log_secrets import hide_arguments

try:
    from aiokafka import __version__
except ImportError as _error:
    raise MissingExtraError("aiokafka", "kafka") from _error

__all__ = ["BELOW", "LEAST", "REQUIRED", "check_client"]

LEAST = "0.13"
BELOW = "0.15"
"""As the ``kafka`` extra of ``pyproject.toml`` has them."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "aiokafka.client:AIOKafkaClient": (
        "_conns",
        "_connections_max_idle_ms",
        "_get_conn",
        "_get_conn_lock",
        "_on_connection_closed",
        "_md_synchronizer",
        "_metadata_update",
        "_sync_task",
        "bootstrap",
        "cluster",
        "get_random_node",
        "send",
        "_client_id",
        "_request_timeout_ms",
        "_security_protocol",
        "_ssl_context",
        "_sasl_mechanism",
        "_sasl_plain_username",
        "_sasl_plain_password",
        "_sasl_kerberos_service_name",
        "_sasl_kerberos_domain_name",
        "_sasl_oauth_token_provider",
        "hosts",
    ),
    "aiokafka.conn:AIOKafkaConnection": ("authenticator_oauth", "connect"),
    "aiokafka.conn:OAuthAuthenticator": ("step",),
    "aiokafka.codec": (
        *("has_gzip", "has_lz4", "has_snappy", "has_zstd"),
        *("gzip_decode", "lz4_decode", "snappy_decode", "zstd_decode"),
        *("gzip_encode", "lz4_encode", "snappy_encode", "zstd_encode"),
    ),
    "aiokafka.client": ("ConnectionGroup",),
    "aiokafka.conn": ("CloseReason", "collect_hosts"),
    "aiokafka.partitioner": ("murmur2",),
    "aiokafka.producer.message_accumulator:BatchBuilder": (
        # What the producer asks of a batch: ours are in the place of the client's.
        *("_build", "_set_producer_state", "close", "closed", "record_count", "size"),
    ),
    "aiokafka.protocol.abstract": ("AbstractType",),
    "aiokafka.protocol.admin": (
        *("CreateTopicsRequest", "DescribeConfigsRequest", "DescribeGroupsRequest"),
    ),
    "aiokafka.protocol.api": ("Request", "RequestStruct", "Response"),
    "aiokafka.cluster": ("ClusterMetadata",),
    "aiokafka.coordinator.protocol": (
        *("ConsumerProtocolMemberAssignment", "ConsumerProtocolMemberMetadata"),
    ),
    "aiokafka.protocol.commit": (
        *("OffsetCommitRequest_v2", "OffsetCommitRequest_v3"),
        *("OffsetFetchRequest_v1", "OffsetFetchRequest_v2", "OffsetFetchRequest_v3"),
    ),
    "aiokafka.protocol.coordination": (
        *("FindCoordinatorRequest_v0", "FindCoordinatorRequest_v1"),
    ),
    "aiokafka.protocol.fetch": ("FetchRequest",),
    "aiokafka.protocol.group": (
        *("HeartbeatRequest", "HeartbeatRequest_v1", "JoinGroupRequest_v2", "JoinGroupRequest_v5"),
        *("LeaveGroupRequest_v1", "SyncGroupRequest_v1", "SyncGroupRequest_v3"),
    ),
    "aiokafka.protocol.metadata": (
        *("MetadataRequest", "MetadataRequest_v1", "MetadataRequest_v2", "MetadataRequest_v3"),
        *("MetadataRequest_v4", "MetadataRequest_v5"),
    ),
    "aiokafka.protocol.offset": ("OffsetRequest_v1", "OffsetRequest_v2", "OffsetRequest_v3"),
    "aiokafka.protocol.produce": ("ProduceRequest",),
    "aiokafka.protocol.transaction": (
        *("AddOffsetsToTxnRequest", "AddPartitionsToTxnRequest", "EndTxnRequest"),
    ),
    "aiokafka.protocol.types": (
        *("Array", "Boolean", "CompactArray", "CompactBytes", "CompactString"),
        *("Int8", "Int16", "Int32", "Int64"),
        *("Schema", "String", "TaggedFields"),
    ),
    "aiokafka.record.control_record": ("ABORT_MARKER", "ControlRecord"),
    "aiokafka.record.default_records": ("DefaultRecordBatchBuilder",),
    "aiokafka.record.memory_records": ("MemoryRecords",),
    "aiokafka.record.util": ("calc_crc32c", "decode_varint"),
}
"""``module`` or ``module:Class`` → names. What an instance alone has is looked for in the names of
``__init__``."""


def check_client(version: str = __version__) -> None:
    """Sees that this aiokafka is one that the package can work with.

    Raises:
        ConfigurationError: it is older or newer than those supported, or lacks what `REQUIRED` lists.
    """
    missing = [name for place, names in REQUIRED.items() for name in _missing(place, names)]
    if missing or not _number(LEAST) <= _number(version) < _number(BELOW):
        lacks = f": it lacks {', '.join(missing)}" * bool(missing)
        raise ConfigurationError(
            f"aiokafka {version} is not supported{lacks}; install one from {LEAST} on and below "
            f"{BELOW}: pip install 'consumer-sdk[kafka]'"
        )


def _number(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)[:2]]


def _missing(place: str, names: tuple[str, ...]) -> Iterator[str]:
    module, _, name = place.partition(":")
    try:
        owner = import_module(module)
        owner = getattr(owner, name) if name else owner
    except (ImportError, AttributeError):
        yield place
        return
    known = getattr(getattr(owner, "__init__", None), "__code__", None)
    for each in names:
        if not hasattr(owner, each) and not (known and each in known.co_names):
            yield f"{name or module}.{each}"


check_client()
hide_arguments("aiokafka.conn", kinds=("SaslAuthenticate",))
