"""Every decoder of bytes and texts that come from outside: what is sound, and what may be raised."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import md5
from typing import Any

import _pulsar
import pyarrow as pa
from aiokafka.record import util
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from consumer_sdk.adapters.kafka.commits.metadata import read_metadata, write_metadata
from consumer_sdk.adapters.kafka.decoding.record_batches import (
    LargeBatchError,
    batch_headers,
    check_batch,
)
from consumer_sdk.adapters.kafka.decoding.salvage import Unreadable, salvage
from consumer_sdk.adapters.kafka.fetch.cursor import reach_of
from consumer_sdk.adapters.kafka.fetch.structs import AnswerFormatError, FetchAnswer
from consumer_sdk.adapters.kafka.ranges.batches import Columnizer, open_batches
from consumer_sdk.adapters.kafka.share.messages import AcquiredRange
from consumer_sdk.adapters.kafka.share.reading import AcquiredRecords, Taken
from consumer_sdk.adapters.kinesis.service.aggregation import MAGIC, user_records
from consumer_sdk.adapters.kinesis.service.decoding import page_of_body
from consumer_sdk.adapters.kinesis.service.hooks import Events, encode_event
from consumer_sdk.adapters.pulsar.client.access import _reason
from consumer_sdk.adapters.pulsar.client.ids import batch_size, place_of
from consumer_sdk.adapters.pulsar.client.texts import _parse as parse_properties
from consumer_sdk.adapters.urls import open_url
from consumer_sdk.checkpoints.binary import decode_checkpoint_bytes, encode_checkpoint_bytes
from consumer_sdk.checkpoints.json import decode_checkpoint, encode_checkpoint
from consumer_sdk.checkpoints.positions import POSITION_READERS
from consumer_sdk.cli.run.config import parse_config
from consumer_sdk.dead_letters.reading import letter_in
from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.errors import (
    AdapterError,
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
    SchemaRegistryError,
    TokenFormatError,
)
from consumer_sdk.leases.table import LeaseTable
from consumer_sdk.records import Assignment, Checkpoint, DeadLetter, Partition
from consumer_sdk.records.leases import Lease
from consumer_sdk.records.letter_lines import decode_letter, encode_letter
from consumer_sdk.records.tokens import Anchor, decode_token, encode_token
from consumer_sdk.schema_registry.answers import read_schema
from consumer_sdk.schema_registry.wire_format import read_message_indexes, read_schema_number
from consumer_sdk.spark_bridge.columns import arrow_schema
from consumer_sdk.spark_bridge.decoding.avro.values import AvroDecoder, checked_schema
from consumer_sdk.spark_bridge.decoding.in_workers import RejectedError
from consumer_sdk.spark_bridge.decoding.rescued import rescue
from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.feed.manifests import Manifest, Writer, _checksum
from consumer_sdk.spark_bridge.feed.segments import SegmentFile, read_segments
from consumer_sdk.spark_bridge.feed.url import FeedUrl
from consumer_sdk.stores.exchange.kcl import read_kcl_leases
from consumer_sdk.stores.exchange.legacy import read_offset, read_sequence, read_shard_list
from consumer_sdk.stores.exchange.lines import CheckpointFile, Entry, Lines, line_of
from consumer_sdk.stores.fencing import Stamp
from consumer_sdk.stores.urls import store_from_url
from consumer_sdk.stores.zookeeper.tree import decode_pin, decode_znode, encode_pin, encode_znode
from tests.fuzz.kafka_answers import (
    ERRORS,
    answer_samples,
    member_samples,
    read_answer,
    read_member,
)
from tests.sim.kinesis.aggregates import aggregate
from tests.spark_bridge.decoding.protobuf.test_values import decoder as protobuf_decoder
from tests.spark_bridge.decoding.protobuf_messages import file, files, message

__all__ = ["DECODERS", "Decoder"]

PLACE = Partition("orders", "0")
MOST = 1_000_000
"""Bytes that a batch of Kafka's may have here, decompressed."""
CHECKPOINT = Checkpoint(
    watermark=41,
    resume=42,
    ranges=((44, 50), (60, 60)),
    attempts={43: (2, 1.5), 55: (1, 99.0)},
    application="a",
    written=3.0,
)
STORED = (CheckpointFormatError, CheckpointMismatchError)


@dataclass(frozen=True, slots=True)
class Decoder:
    """One decoder.

    Attributes:
        samples: what it takes, for the fuzzer to damage.
        read: the decoder.
        errors: what it may raise, and nothing else.
        seal: gives damaged bytes the checksum that they would have; raises ValueError where it cannot.
    """

    samples: tuple[bytes, ...]
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...] = ()
    seal: Callable[[bytes], bytes] | None = None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _argument(data: bytes) -> str:
    """As a program gets it: what is no UTF-8 is lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


# -- checkpoints, leases, letters ------------------------------------------------------------------

TEXT = encode_checkpoint(CHECKPOINT, broker="kafka", partition=PLACE, encode_position=str)[0]
BINARY = encode_checkpoint_bytes(CHECKPOINT, broker="kafka", partition=PLACE)[0]


def _checkpoint(data: bytes) -> object:
    names: dict[str, Any] = {"broker": "kafka", "partition": PLACE, "identity": None}
    return decode_checkpoint(_text(data), **names, decode_position=POSITION_READERS["kafka"])


def _sealed_json(data: bytes) -> bytes:
    body = json.loads(data)
    if not isinstance(body, dict):
        raise ValueError  # noqa: TRY004 - what a seal raises
    body.pop("crc32", None)
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return f'{text[:-1]},"crc32":{zlib.crc32(text.encode())}}}'.encode()


def _sealed_end(data: bytes) -> bytes:
    return data[:-4] + struct.pack(">I", zlib.crc32(data[:-4]))


def _leases() -> bytes:
    leases = {"s0": Lease(owner="m", fence=3), "s1": Lease(parents=("s0",), ended=True)}
    return LeaseTable("i", 3, leases).encode().encode()


LETTER = DeadLetter(
    partition=PLACE,
    position="42",
    key=b"k",
    value=b"v",
    headers=(("h", b"x"), ("n", None)),
    timestamp=5,
    error="e",
    error_type="t",
    attempts=3,
    group="g",
    failed_at=9,
)


def _kafka_letter(data: bytes) -> object:
    """The headers as JSON: a broker's headers are names and bytes."""
    try:
        pairs = [(str(name), str(value).encode()) for name, value in json.loads(data)]
    except (ValueError, TypeError, RecursionError):
        return None
    return letter_in("kafka", key=None, value=b"v", headers=tuple(pairs), timestamp=1)


HEADERS = {"group": "g", "stream": "s", "partition": "0", "position": "4", "error": "e"}
HEADERS |= {"error-type": "t", "attempts": "3", "failed-at": "9"}


def _exchange() -> bytes:
    lines = Lines()
    found = [lines.first, line_of(Entry("g", "orders", "0", TEXT, "x"))]
    for line in found:
        lines.add(line.encode())
    return "".join([*found, lines.last]).encode()


def _sealed_lines(data: bytes) -> bytes:
    lines = Lines()
    found = [line + b"\n" for line in data.split(b"\n")[:-2]]
    for line in found:
        lines.add(line)
    return b"".join(found) + lines.last.encode()


def _kcl() -> bytes:
    item = {"leaseKey": {"S": "shardId-000000000000"}, "checkpoint": {"S": "123"}}
    item |= {"checkpointSubSequenceNumber": {"N": "0"}, "leaseCounter": {"N": "4"}}
    return json.dumps({"Items": [item], "Count": 1, "ScannedCount": 1}).encode()


ZNODE = encode_znode(Stamp("host/1/a", 12, 845), TEXT)

# -- the feed ------------------------------------------------------------------------------------


def _manifest() -> Manifest:
    name = f"{1:020d}-{0:08x}.arrow"
    return Manifest(
        number=1,
        segment=name,
        rows=2,
        size=900,
        crc32=77,
        ranges={"orders": [(1, 2)]},
        texts={},
        at=5,
        writer=Writer("w", 1, 1),
    )


def _sealed_feed(data: bytes) -> bytes:
    body = json.loads(data)
    if not isinstance(body, dict):
        raise ValueError  # noqa: TRY004 - what a seal raises
    body.pop("checksum", None)
    body["checksum"] = _checksum(body)
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


class _Files:
    """A feed with one segment."""

    directory = "feed"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def buffer(self, _name: str) -> pa.Buffer:
        """It."""
        return pa.py_buffer(self._data)


def _segment(data: bytes) -> object:
    found = SegmentFile("s", len(data), zlib.crc32(data))
    return [batch.num_rows for batch in read_segments(_Files(data), [found])]  # type: ignore[arg-type]


def _segment_bytes() -> bytes:
    sink, schema = pa.BufferOutputStream(), arrow_schema()
    with pa.ipc.new_file(sink, schema) as made:
        made.write_batch(pa.RecordBatch.from_pylist([], schema))
    return bytes(sink.getvalue())


# -- Kafka, Kinesis, Pulsar --------------------------------------------------------------------------

CRC_AT, SIGNED_FROM = 17, 21


def _batch(codec: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, 0, 0, 10_000)
    for offset in range(4):
        builder.append(offset, 1000 + offset, b"key", b"value" * offset, [("h", b"x")])
    return bytes(builder.build())


def _sealed_batch(data: bytes) -> bytes:
    if len(data) <= SIGNED_FROM:
        raise ValueError
    crc = util.calc_crc32c_py(data[SIGNED_FROM:])
    return data[:CRC_AT] + struct.pack(">I", crc) + data[SIGNED_FROM:]


def _salvaged(data: bytes) -> object:
    found = salvage(data, 2, most=MOST)
    return found if found is None else [found.unreadable, found.next_fetch_offset]


def _columns(data: bytes) -> object:
    for head in batch_headers(data):
        check_batch(data[head.at : head.end], MOST)
    columnizer = Columnizer(0, 9, is_committed=True, with_headers=True, max_bytes=MOST, most=MOST)
    return [len(columns) for columns in columnizer.columns(open_batches(data), None)]


def _fetch_answers() -> tuple[bytes, ...]:
    """The version, and an answer of two partitions in it."""
    part, aborted = struct.pack(">ihqqq", 0, 0, 9, 9, 0), struct.pack(">qq", 5, 2)
    records = _batch(0)
    old = struct.pack(">ihi", 0, 0, 7) + struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", 2)
    old += 2 * (
        part + struct.pack(">i", 1) + aborted + struct.pack(">ii", -1, len(records)) + records
    )
    new = struct.pack(">ihi", 0, 0, 7) + b"\2" + bytes(16) + b"\3"
    size = len(records) + 1
    new += part + b"\2" + aborted + b"\0" + struct.pack(">i", -1)
    new += bytes([size & 0x7F | 0x80, size >> 7]) + records + b"\0"
    new += part + b"\1" + struct.pack(">i", -1) + b"\0\1\0\x0d" + struct.pack(">iq", 3, 7) + b"\0"
    return b"\x0b" + old, b"\x0d" + new + b"\0\0"


def _fetched(data: bytes) -> object:
    found = FetchAnswer(13 if data[:1] == b"\x0d" else 11, data, 1).read()
    return found, [reach_of(part.records) for part in found.partitions]


RANGE = struct.Struct(">qqh")


def _share_fetch() -> bytes:
    """A range that a member has acquired, one delivery of each record, and batches."""
    return RANGE.pack(0, 3, 2) + _batch(0) + _batch(1)


def _acquired(data: bytes) -> object:
    """All that is said of the records of a share group, as the consumer asks for it."""
    first, last, deliveries = RANGE.unpack_from(data.ljust(RANGE.size, b"\0"))
    first, last = max(first, 0) % 50, max(last, 0) % 200
    ranges = [AcquiredRange(first, max(first, last), max(deliveries, 1))]
    records = AcquiredRecords(data[RANGE.size :], ranges, most=MOST, limit=5)
    found = []
    while not records.is_empty:
        found.append(records.take(Assignment(PLACE, 1), 100, 1_000_000))
    said = [taken.gaps + taken.released for taken in found]
    offsets = sum(map(len, said)) + sum(len(taken.messages) for taken in found)
    offsets += sum(len(range(u.first, (u.last or u.first) + 1)) for u in _unreadable(found))
    assert not len(records), "an offset that nothing was said of"
    return offsets


def _unreadable(found: list[Taken]) -> list[Unreadable]:
    return [taken.unreadable for taken in found if taken.unreadable is not None]


METADATA = write_metadata(CHECKPOINT, 42, group="g", partition=PLACE, limit=4096).data.encode()


def _metadata(data: bytes) -> object:
    return read_metadata(_text(data), 42, group="g", partition=PLACE, identity=None)


AGGREGATE = aggregate([(b"a", b"1"), (b"b", b"2"), (b"a", b"")])


def _sealed_aggregate(data: bytes) -> bytes:
    message_ = data[len(MAGIC) : -16]
    return MAGIC + message_ + md5(message_, usedforsecurity=False).digest()


PAGE = json.dumps(
    {
        "MillisBehindLatest": 5,
        "NextShardIterator": "AAA",
        "Records": [
            {
                "ApproximateArrivalTimestamp": 1.5,
                "Data": "dg==",
                "PartitionKey": "k",
                "SequenceNumber": "49590338271490256608559692538361571095921575989136588898",
            }
        ],
    }
).encode()
EVENT = encode_event({":message-type": "event", ":event-type": "SubscribeToShardEvent"}, PAGE)


def _pulsar_id(data: bytes) -> object:
    try:
        native = _pulsar.MessageId.deserialize(data)
    except (ValueError, RuntimeError):
        return None
    return place_of(native), batch_size(native)


DENIAL = b"\0\0\0\x10\0\0\0\x0c\x08\x0er\x08\x10\x03\x1a\x04nope"

# -- values --------------------------------------------------------------------------------------


def _avro() -> Callable[[bytes], object]:
    node = {
        "type": "record",
        "name": "N",
        "fields": [
            {"name": "v", "type": ["null", "long", "string"]},
            {"name": "m", "type": {"type": "map", "values": "double"}},
            {"name": "a", "type": {"type": "array", "items": "bytes"}},
        ],
    }
    kind = pa.struct([("v", pa.string())])
    return AvroDecoder(checked_schema(node), None, kind).read


def _protobuf() -> Callable[[bytes], object]:
    link = message("Link", ("id", "int64"), ("name", "string"), ("at", "double"), ("raw", "bytes"))
    order = message("Order", ("id", "int64"), ("link", ".shop.Link"))
    return protobuf_decoder(files(file(link, order)), "shop.Order").read


def _rescued(data: bytes) -> object:
    texts = pa.array([_text(data)], pa.string())
    decoded = pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.int64()), ("b", pa.string())]))
    return rescue(texts, decoded).to_pylist()


def _head(data: bytes) -> object:
    number, begin = read_schema_number(data)
    return number, read_message_indexes(data, begin)


SCHEMA = json.dumps({"schema": '"long"', "schemaType": "AVRO", "references": []}).encode()
URLS = (
    b"kafka://h:9092/orders?group=g",
    b"pulsar://h:6650/public/default/t?subscription=s",
    b"kinesis://us-east-1/s?group=g",
    b"kafka://h:9092,i:9092/a,b?group=g&client_id=c",
)

POSITIONS = {"kafka": b"42", "kinesis": b"4959:3", "memory": b"42", "pulsar": b"12:3:1"}

DECODERS: Mapping[str, Decoder] = {
    "checkpoint, JSON": Decoder((TEXT.encode(),), _checkpoint, STORED, _sealed_json),
    "checkpoint, binary": Decoder(
        (BINARY,),
        lambda d: decode_checkpoint_bytes(d, broker="kafka", partition=PLACE, identity=None),
        STORED,
        _sealed_end,
    ),
    "leases": Decoder((_leases(),), lambda d: LeaseTable.decode(_text(d), "here"), STORED),
    "ZooKeeper znode": Decoder((ZNODE,), lambda d: decode_znode(d, "/p"), STORED),
    "ZooKeeper pin": Decoder((encode_pin("start"),), lambda d: decode_pin(d, "/p"), STORED),
    "checkpoint file": Decoder(
        (_exchange(),), lambda d: list(CheckpointFile(io.BytesIO(d))), STORED, _sealed_lines
    ),
    "KCL leases": Decoder(
        (_kcl(),),
        lambda d: list(read_kcl_leases(io.BytesIO(d), "s", group="g").entries),
        (CheckpointFormatError, ConfigurationError),
    ),
    "Storm offset": Decoder(
        (b'{"offset":42,"partition":0,"topic":"orders","broker":{"host":"h","port":9092}}',),
        lambda d: read_offset(d, "/p", topic="orders", partition=0),
        STORED,
    ),
    "Storm sequence": Decoder(
        (b'{"checkpoint":"49590338"}',), lambda d: read_sequence(d, "/p"), STORED
    ),
    "Storm shards": Decoder(
        (b'{"shardList":["shardId-0"]}',), lambda d: read_shard_list(d, "/p"), STORED
    ),
    "letter, Kinesis": Decoder((encode_letter(LETTER),), decode_letter, (ValueError,)),
    "letter, Kafka": Decoder(
        (json.dumps([[f"dlq.{k}", v] for k, v in HEADERS.items()]).encode(),),
        _kafka_letter,
        (ValueError,),
    ),
    "feed manifest": Decoder(
        (_manifest().encode(),),
        lambda d: Manifest.decode(d, 1, "here"),
        (FeedFormatError,),
        _sealed_feed,
    ),
    "feed segment": Decoder((_segment_bytes(),), _segment, (FeedFormatError,)),
    "tree token": Decoder(
        (encode_token([Anchor(1, 2, 3)]),), decode_token, (TokenFormatError,), _sealed_end
    ),
    "Kafka batch, salvage": Decoder(tuple(map(_batch, range(4))), _salvaged, (), _sealed_batch),
    # The reader of ranges makes one typed error of whatever a codec raises: time and memory count.
    "Kafka batch, ranges": Decoder(
        tuple(map(_batch, range(4))), _columns, (LargeBatchError, Exception), _sealed_batch
    ),
    "Kafka fetch": Decoder(_fetch_answers(), _fetched, (AnswerFormatError,)),
    "Kafka answers": Decoder(answer_samples(), read_answer, ERRORS),
    "Kafka group members": Decoder(member_samples(), read_member, ERRORS),
    "Kafka share fetch": Decoder((_share_fetch(),), _acquired, ()),
    "Kafka commit metadata": Decoder((METADATA,), _metadata),
    "Kinesis aggregate": Decoder((AGGREGATE,), user_records, (), _sealed_aggregate),
    "Kinesis page": Decoder((PAGE,), page_of_body, (AdapterError,)),
    "Kinesis event": Decoder((EVENT,), lambda d: list(Events("reading").pages(d)), (AdapterError,)),
    "Pulsar message id": Decoder((_pulsar.MessageId(0, 1, 2, 3).serialize(),), _pulsar_id),
    "Pulsar properties": Decoder((b"{'a':'b', 'c':'d'}",), parse_properties),
    "Pulsar refusal": Decoder((DENIAL,), lambda d: _reason(d, "h:1")),
    "Avro value": Decoder(
        (b"\x02\x54\x02\x02a" + bytes(8) + b"\0\x02\x02x\0",), _avro(), (RejectedError,)
    ),
    "Protobuf value": Decoder(
        (b"\x08\x05\x12\x0e\x08\x07\x12\x01n\x19" + bytes(8),), _protobuf(), (RejectedError,)
    ),
    "JSON rest": Decoder((b'{"a":1,"c":[1,{"d":null}]}',), _rescued),
    "registry head": Decoder((b"\0\0\0\0\7\4\2\0abc",), _head, (ValueError,)),
    "registry schema": Decoder((SCHEMA,), lambda d: read_schema(d, "x"), (SchemaRegistryError,)),
    "service TOML": Decoder(
        (b'[consumer]\nurl = "kafka://h:9092/t?group=g"\nretry = { max_attempts = 5 }\n',),
        lambda d: parse_config(_text(d), "x.toml").shown(),
        (ConfigurationError,),
    ),
    "adapter URL": Decoder(URLS, lambda d: open_url(_argument(d)), (ConfigurationError,)),
    "store URL": Decoder(
        (b"zookeeper://h:2181,i:2181/root", b"sqlite:relative/y.db"),
        lambda d: store_from_url(_argument(d)),
        (ConfigurationError,),
    ),
    "dead-letter URL": Decoder(
        (b"kafka://h:9092/dlq", b"kinesis://us-east-1/dlq"),
        lambda d: dead_letters_from_url(_argument(d)),
        (ConfigurationError,),
    ),
    "feed URL": Decoder(
        (b"feed:///data/landing/orders?maxRowsPerTrigger=500000&retention=committed&reader=q",),
        lambda d: FeedUrl.parse(_argument(d)),
        (ConfigurationError,),
    ),
} | {
    f"position, {broker}": Decoder(
        (POSITIONS[broker],),
        lambda data, read=read: read(_text(data)),  # type: ignore[misc]
        (CheckpointFormatError,),
    )
    for broker, read in POSITION_READERS.items()
}
