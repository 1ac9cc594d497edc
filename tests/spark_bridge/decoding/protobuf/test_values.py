"""Protobuf values to Arrow. Without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.schema_registry import SchemaRegistry
from consumer_sdk.spark_bridge.decoding.in_workers import arrow_type
from consumer_sdk.spark_bridge.decoding.protobuf.files import MessageType, message_type
from consumer_sdk.spark_bridge.decoding.protobuf.types import columns_of, read_options, struct_of
from consumer_sdk.spark_bridge.decoding.protobuf.values import ProtobufDecoder
from tests.schema_registry.registry_server import RegistryServer, running
from tests.spark_bridge.decoding.protobuf_messages import (
    EVERY,
    REPEATED,
    REQUIRED,
    build,
    file,
    files,
    map_entry,
    message,
)

NONE: Mapping[str, str] = {}
SECONDS = 1_577_836_800


def decoder(
    descriptors: bytes | MessageType,
    name: str = "",
    options: Mapping[str, str] = NONE,
    registry: SchemaRegistry | None = None,
    max_bytes: int = 10_000_000,
) -> ProtobufDecoder:
    """As from_protobuf_value makes it; as a worker has it."""
    wanted = message_type(descriptors, name) if isinstance(descriptors, bytes) else descriptors
    chosen = read_options(options)
    kind = struct_of(columns_of(wanted.message_class().DESCRIPTOR, chosen))
    made = ProtobufDecoder(wanted, chosen, registry, max_bytes, arrow_type(kind))
    copied: ProtobufDecoder = pickle.loads(pickle.dumps(made))  # noqa: S301 - made here
    return copied


def decoded(made: ProtobufDecoder, *values: bytes | None) -> list[tuple[Any, str | None]]:
    """Each value, and why there is none."""
    found = made.decode(pa.array(values, pa.binary())).to_pylist()
    return [(each["value"], each["reason"]) for each in found]


def one(made: ProtobufDecoder, value: bytes) -> dict[str, Any]:
    """A value that is decoded."""
    ((found, reason),) = decoded(made, value)
    assert reason is None
    assert isinstance(found, dict)
    return found


FULL = {
    "f_int32": -1,
    "f_sint32": -2,
    "f_sfixed32": -3,
    "f_uint32": 2**32 - 1,
    "f_fixed32": 2**32 - 2,
    "f_int64": -(2**63),
    "f_sint64": -5,
    "f_sfixed64": -6,
    "f_uint64": 2**64 - 1,
    "f_fixed64": 2**63,
    "f_float": 0.5,
    "f_double": 1e300,
    "f_bool": True,
    "f_string": "ü",
    "f_bytes": b"\xff",
    "state": 1,
    "at": {"seconds": SECONDS, "nanos": 1_999},
    "took": {"seconds": -1, "nanos": -1_999},
    "wrapped": {"value": 2**64 - 1},
    "any": {"type_url": "a/b", "value": b"x"},
    "tags": ["a", ""],
    "states": [2, 0],
    "prices": {"eur": 1.5},
    "inners": {3: {"x": 4}},
    "inner": {"x": 0, "list": [{"y": "z"}, {}]},
    "nothing": {},
}


def test_every_type_arrives_as_sparks_own_decoder_has_it() -> None:
    """Unsigned numbers as Java sees them, microseconds cut, an empty message without a column."""
    found = one(decoder(EVERY, "shop.Every"), build(EVERY, "Every", **FULL))
    assert found.pop("at").timestamp() == SECONDS + 1e-6
    assert found.pop("took").total_seconds() == -1.000001
    signed = {"f_uint32": -1, "f_fixed32": -2, "f_uint64": -1, "f_fixed64": -(2**63)}
    plain = {name: value for name, value in FULL.items() if name not in {"at", "took", "nothing"}}
    assert found == plain | signed | {
        "state": "PAID",
        "wrapped": {"value": -1},
        "states": ["SENT", "UNKNOWN"],
        "prices": [("eur", 1.5)],
        "inners": [(3, {"x": 4, "list": []})],
        "inner": {"x": None, "list": [{"y": "z"}, {"y": None}]},
    }


def test_an_empty_message_is_nulls_and_empty_lists() -> None:
    """What proto3 does not write is null, as Spark has it; or its default, if asked for."""
    found = one(decoder(EVERY, "shop.Every"), b"")
    assert {name for name, value in found.items() if value is not None} == {
        *("tags", "states", "prices", "inners")
    }
    filled = one(decoder(EVERY, "Every", {"emit.default.values": "true"}), b"")
    assert (filled["f_int32"], filled["f_string"], filled["state"]) == (0, "", "UNKNOWN")
    assert (filled["inner"], filled["at"]) == (None, None)


def test_options_of_spark_change_the_types() -> None:
    """Numbers for enums, wider ones for unsigned, and the values of wrappers."""
    options = dict.fromkeys(
        ("enums.as.ints", "upcast.unsigned.ints", "unwrap.primitive.wrapper.types"), "true"
    )
    found = one(decoder(EVERY, "shop.Every", options), build(EVERY, "Every", **FULL))
    assert (found["state"], found["states"]) == (1, [2, 0])
    assert (found["f_uint32"], found["f_uint64"]) == (2**32 - 1, 2**64 - 1)
    assert (found["f_fixed32"], found["wrapped"]) == (-2, 2**64 - 1)


LINK = files(file(message("Link", ("id", "int64"), ("next", ".shop.Link"))))


def chain(length: int) -> bytes:
    """A list of so many messages within each other."""
    data = b"\x08\x01"
    for _ in range(length - 1):
        size = len(data)
        head = bytearray()
        while size > 127:
            head.append(size & 127 | 128)
            size >>= 7
        data = b"\x08\x01\x12" + bytes([*head, size]) + data
    return data


def test_a_message_in_itself_needs_an_end() -> None:
    """As in Spark: an error without the option, and cut with it."""
    with pytest.raises(ConfigurationError, match=r"contains itself at shop\.Link\.next"):
        decoder(LINK, "Link")
    made = decoder(LINK, "Link", {"recursive.fields.max.depth": "2"})
    assert one(made, chain(5)) == {"id": 1, "next": {"id": 1}}
    assert (
        struct_of(
            columns_of(
                message_type(LINK, "Link").message_class().DESCRIPTOR,
                read_options({"recursive.fields.max.depth": "1"}),
            )
        ).simpleString()
        == "struct<id:bigint>"
    )


def test_what_is_nested_or_large_beyond_measure_is_rejected() -> None:
    """100 messages within each other; and more bytes than are allowed."""
    made = decoder(LINK, "Link", {"recursive.fields.max.depth": "1"}, max_bytes=1_000_000)
    found = decoded(made, chain(100), chain(102), chain(50_000), b"\x08\x01" * 500_001)
    assert [reason is None for _, reason in found] == [True, False, False, False]
    assert "bytes, more than 1000000" in str(found[3][1])


PROTO2 = files(
    file(
        message(
            "Old",
            ("id", "int64", REQUIRED),
            ("name", "string"),
            ("state", ".shop.State"),
            ("states", ".shop.State", REPEATED),
        ),
        syntax="proto2",
    )
)
NEW = files(file(message("New", ("id", "int64"), ("name", "string"), ("state", ".shop.State"))))


@pytest.mark.parametrize(
    "descriptors,value,reason",
    [
        (NEW, b"\x08", "DecodeError"),
        (NEW, b"\x0f", "DecodeError"),
        (NEW, b"\x12\x05ab", "DecodeError"),
        (NEW, b"\x12\x01\xff", "DecodeError"),
        (NEW, b"\x0a\x01a", "shop.New.id was written with another type"),
        (NEW, b"\x18\x07", "shop.New.state has the unknown enum value 7"),
        (PROTO2, b"", "without id"),
        (PROTO2, b"\x08\x01\x12\x01\xff", "shop.Old.name is no UTF-8"),
        (PROTO2, b"\x08\x01\x18\x07", "shop.Old.state has an unknown enum value"),
        (PROTO2, b"\x08\x01\x20\x01\x20\x07", "shop.Old.states has an unknown enum value"),
    ],
)
def test_a_bad_value_is_rejected_alone(descriptors: bytes, value: bytes, reason: str) -> None:
    """With a reason, and the good ones beside it are decoded; a tombstone stays one."""
    made = decoder(descriptors, "New" if descriptors is NEW else "Old")
    good = b"\x08\x01\x12\x01a"
    found = decoded(made, good, value, None, good)
    assert [row and row["name"] for row, _ in found] == ["a", None, None, "a"]
    assert reason in str(found[1][1])
    assert [why for _, why in (found[0], *found[2:])] == [None] * 3


MAPS = files(
    file(
        message(
            "Maps",
            ("names", ".shop.Maps.NamesEntry", REPEATED),
            ("olds", ".shop.Maps.OldsEntry", REPEATED),
            nested=[
                map_entry("NamesEntry", "string", "string"),
                map_entry("OldsEntry", "string", ".shop.Old"),
            ],
        ),
        message("Old", ("id", "int64", REQUIRED)),
        syntax="proto2",
    )
)


@pytest.mark.parametrize(
    "value,reason",
    [
        (b"\x0a\x06\x0a\x01\xff\x12\x01v", "shop.Maps.names has a key that is no UTF-8"),
        (b"\x12\x07\x0a\x01\xff\x12\x02\x08\x01", "shop.Maps.olds has a key that is no UTF-8"),
        (b"\x12\x05\x0a\x01\xff\x12\x00", "without a required field"),
    ],
)
def test_a_key_that_is_no_text_is_rejected(value: bytes, reason: str) -> None:
    """Of proto2, whose texts the parser does not check; the process goes on, too."""
    found = decoded(decoder(MAPS, "Maps"), value, b"\x0a\x06\x0a\x01k\x12\x01v")
    assert reason in str(found[0][1])
    assert found[1] == ({"names": [("k", "v")], "olds": []}, None)


def test_fields_of_a_newer_schema_are_left_out() -> None:
    """They are no mistake."""
    assert one(decoder(NEW, "New"), b"\x08\x01\x48\x05")["id"] == 1


def test_a_time_that_no_column_holds_is_rejected() -> None:
    """Seconds have 64 bits, and a column's microseconds too."""
    made = decoder(EVERY, "Every")
    found = decoded(made, build(EVERY, "Every", at={"seconds": 2**62}), b"")
    assert "does not fit its column" in str(found[0][1])
    assert found[1][1] is None


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 40), st.binary(max_size=3))
def test_any_bytes_are_decoded_or_rejected(data: bytes, at: int, patch: bytes) -> None:
    """Garbage, and good values that were damaged: the decoder goes on."""
    for made, whole in WHOLE:
        damaged = whole[:at] + patch + whole[at + len(patch) :]
        for row, reason in decoded(made, data, damaged, whole[: at * 4]):
            assert (row is None) == (reason is not None)
            assert reason is None or len(reason) <= 500


WHOLE = [
    (decoder(EVERY, "Every"), build(EVERY, "Every", **FULL)),
    (decoder(MAPS, "Maps"), build(MAPS, "Maps", names={"a": "b"}, olds={"a": {"id": 1}})),
]


# -- descriptors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "descriptors,name,what",
    [
        (b"\xff", "X", "no serialized FileDescriptorSet"),
        (b"", "X", "is empty"),
        ("/nowhere.desc", "X", "No such file"),
        (NEW, "Old", r"give the full name of one of shop\.New"),
        (
            files(file(message("A", ("b", ".gone.B")), dependency=["gone.proto"])),
            "A",
            "include_imp",
        ),
        (files(file(message("A", ("b", ".gone.B")))), "A", "gone.B"),
        (
            files(file(message("A"), dependency=["b"]), file(name="b", dependency=["shop.proto"])),
            "A",
            "an import",
        ),
        (
            files(file(message("A")), file(message("A"), name="b", package="other")),
            "A",
            r"one of other\.A, shop\.A",
        ),
    ],
)
def test_descriptors_that_lack_something_are_refused(
    descriptors: bytes | str, name: str, what: str
) -> None:
    """Before a value is read, and by what they lack."""
    with pytest.raises(ConfigurationError, match=what):
        message_type(descriptors, name)


@pytest.mark.parametrize("name,value", [("mode", "FAILFAST"), ("enums.as.ints", "1")])
def test_other_options_are_refused(name: str, value: str) -> None:
    """Rejects take the place of modes."""
    with pytest.raises(ConfigurationError, match=name):
        read_options({name: value})
    for depth in ("0", "11", "x"):
        with pytest.raises(ConfigurationError, match="from 1 to 10"):
            read_options({"recursive.fields.max.depth": depth})


# -- heads ----------------------------------------------------------------------------------


def shop(server: RegistryServer) -> None:
    """A schema with an import, and its older version, where the message stood elsewhere."""
    item = file(message("Item", ("sku", "string")), name="x", package="items")
    server.add(1, "", kind="PROTOBUF", subject="items", serialized=item.SerializeToString())
    order = message("Order", ("id", "int64"), ("items", ".items.Item", REPEATED))
    imports = [{"name": "items.proto", "subject": "items", "version": 1}]
    box = message("Box", nested=[message("Order", ("id", "int64"))])
    for number, messages in ((2, (order,)), (3, (box, order))):
        schema = file(*messages, name="default", dependency=["items.proto"])
        server.add(
            number, "", kind="PROTOBUF", references=imports, serialized=schema.SerializeToString()
        )
    server.add(4, "string", subject="avro")


def test_a_head_says_which_message_a_value_is() -> None:
    """By the writer's schema; another message of it, an unknown schema or no head is rejected."""
    from consumer_sdk.spark_bridge.decoding.protobuf.files import registered_type

    with running() as server:
        shop(server)
        registry = SchemaRegistry(server.url)
        made = decoder(registered_type(registry, "orders-value", "shop.Order"), registry=registry)
        value = b"\x08\x01\x12\x03\x0a\x01a"
        heads = [b"\2\0", b"\3\2\2", b"\3\0", b"\3\4\0\0", b"\3\2\4", b"\4\0", b"\5\0", b"\2"]
        values = [b"\0\0\0\0" + head + value for head in heads]
        found = decoded(made, *values, b"\0\0\0\0\2\0", b"\0\0", b"\0\0\0\0\2\0" + b"\xff")
        assert [row for row, _ in found[:2]] == [{"id": 1, "items": [{"sku": "a"}]}] * 2
        assert [reason for _, reason in found[2:7]] == [
            "the value is a shop.Box, no shop.Order",
            "the value is a shop.Box.Order, no shop.Order",
            "the schema 3 has no message (2,)",
            "the schema 4 is AVRO and not PROTOBUF",
            "the schema 5 is unknown",
        ]
        assert "message indexes" in str(found[7][1])
        assert found[8] == ({"id": None, "items": []}, None)
        assert "a zero and a schema's number" in str(found[9][1])
        assert "DecodeError" in str(found[10][1])
        assert sorted(
            server.asked.count(f"/schemas/ids/{n}?format=serialized") for n in (2, 3)
        ) == [
            1,
            1,
        ]
