"""The parser of the producer library's aggregates, against an encoder of its own."""

from __future__ import annotations

from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kinesis.service.aggregation import MAGIC, user_records

Record = tuple[int, int | None, bytes]

# Serialized by Google's protobuf from the producer library's schema: two keys and a hash key; a
# record with hash key and tag, one without data, one whose length takes two bytes.
GOLDEN = bytes.fromhex(
    "f3899ac20a036162630a0464c3a966120234321a15080010001a0768656c6c6f203122060a01741201761a0408011a"
    "001a870108011a8201" + "78" * 130 + "c3c31f1a8159670e2bccbdeea760e921"
)


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number: int, value: bytes | int) -> bytes:
    """A field: a number, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def record(key: int, hash_: int | None, data: bytes) -> bytes:
    """The field of one user record."""
    hash_field = b"" if hash_ is None else field(2, hash_)
    return field(3, field(1, key) + hash_field + field(3, data))


def sealed(message: bytes) -> bytes:
    """An aggregate, with whatever message."""
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def aggregate(keys: list[bytes], hashes: list[bytes], records: list[Record]) -> bytes:
    """An aggregate as the producer library writes it."""
    tables = b"".join(field(1, key) for key in keys) + b"".join(field(2, h) for h in hashes)
    return sealed(tables + b"".join(record(*each) for each in records))


@st.composite
def contents(draw: st.DrawFn) -> tuple[list[bytes], list[bytes], list[Record]]:
    """Tables, and records that point into them."""
    keys = draw(st.lists(st.text(min_size=1, max_size=300).map(str.encode), min_size=1))
    hashes = draw(st.lists(st.integers(0, 2**128 - 1).map(lambda n: str(n).encode())))
    index = st.none() if not hashes else st.none() | st.integers(0, len(hashes) - 1)
    records = st.tuples(st.integers(0, len(keys) - 1), index, st.binary(max_size=300))
    return keys, hashes, draw(st.lists(records))


@given(contents())
def test_any_aggregate_gives_every_record_with_its_key_in_order(
    content: tuple[list[bytes], list[bytes], list[Record]],
) -> None:
    """What the encoder put in comes out."""
    keys, _, records = content
    assert user_records(aggregate(*content)) == [(keys[key], data) for key, _, data in records]


@given(contents(), st.data())
def test_any_mutated_message_with_a_right_digest_is_whole_records_or_plain(
    content: tuple[list[bytes], list[bytes], list[Record]], data: st.DataObject
) -> None:
    """Damage that the digest does not show raises nothing, and what comes out fits the input."""
    message = bytearray(aggregate(*content)[len(MAGIC) : -16])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(message) - 1))
        message[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(message)))
    found = user_records(sealed(bytes(message[:cut])))
    assert found is None or sum(len(blob) for _, blob in found) <= cut


@given(st.binary(max_size=200))
def test_any_bytes_behind_the_magic_raise_nothing(junk: bytes) -> None:
    """Bytes that nobody encoded, with a wrong digest and with a right one."""
    assert user_records(MAGIC + junk) is None or sealed(junk[:-16]) == MAGIC + junk
    found = user_records(sealed(junk))
    assert found is None or all(len(blob) <= len(junk) for _, blob in found)


def test_the_golden_bytes_are_read() -> None:
    """A change of encoder and parser together would not pass here."""
    key = "déf".encode()
    assert user_records(GOLDEN) == [(b"abc", b"hello 1"), (key, b""), (key, b"x" * 130)]


def test_each_byte_of_the_golden_bytes_counts() -> None:
    """Kinesis trap 29: magic but a bad digest is a plain record; so is a bad magic."""
    for at in range(len(GOLDEN)):
        damaged = bytearray(GOLDEN)
        damaged[at] ^= 1
        assert user_records(bytes(damaged)) is None


@pytest.mark.parametrize("data", [b"", b"hello", MAGIC, MAGIC + b"x" * 15, MAGIC[:3] + b"x" * 30])
def test_a_record_without_an_aggregate_is_plain(data: bytes) -> None:
    """Short ones too."""
    assert user_records(data) is None


def test_an_aggregate_without_records_has_none() -> None:
    """Kinesis trap 29: an empty aggregate delivers nothing, as with Amazon's client."""
    assert user_records(aggregate([b"k"], [], [])) == []


def test_a_message_of_no_bytes_is_plain() -> None:
    """Kinesis trap 29: Amazon's client asks for one byte at least between magic and digest."""
    assert user_records(sealed(b"")) is None


@pytest.mark.parametrize("size", [*range(120, 132), 255, 256, 257, 16_383, 16_384, 16_385])
def test_lengths_and_indices_of_one_two_and_three_bytes_are_read(size: int) -> None:
    """Of keys, hash keys, data and whole records: at each edge."""
    keys = [b"k" * size, *(b"%d" % number for number in range(size))]
    hashes = [b"h" * size, *(b"%d" % number for number in range(size))]
    records: list[Record] = [(size, size, b"d" * (size - 5)), (0, 0, b"d" * size)]
    assert user_records(aggregate(keys, hashes, records)) == [
        (b"%d" % (size - 1), b"d" * (size - 5)),
        (b"k" * size, b"d" * size),
    ]


def test_data_of_no_bytes_is_a_record() -> None:
    """Kinesis trap 29: zero bytes of data are data."""
    assert user_records(aggregate([b"k"], [], [(0, None, b"")])) == [(b"k", b"")]


def test_a_missing_hash_index_is_not_index_zero() -> None:
    """Kinesis trap 29: a record without a hash key does not need the table of them."""
    mixed: list[Record] = [(0, None, b"a"), (0, 0, b"b"), (0, None, b"c")]
    assert user_records(aggregate([b"k"], [], mixed[:1])) == [(b"k", b"a")]
    assert user_records(aggregate([b"k"], [b"1"], mixed)) == [(b"k", d) for _, _, d in mixed]


@pytest.mark.parametrize("bad", [(1, None, b"x"), (0, 1, b"x"), (2**63, None, b"x")])
def test_an_index_outside_its_table_makes_all_of_it_plain(bad: Record) -> None:
    """Amazon's client would deliver the records before it and lose those behind it."""
    assert user_records(aggregate([b"k"], [b"1"], [(0, None, b"a"), bad])) is None


def test_hash_keys_of_another_shard_are_delivered() -> None:
    """Kinesis trap 29: after a split an aggregate lies in one child, and nothing of it is lost."""
    ends = [b"0", str(2**128 - 1).encode()]
    both: list[Record] = [(0, 0, b"low"), (0, 1, b"high")]
    assert user_records(aggregate([b"k"], ends, both)) == [(b"k", b"low"), (b"k", b"high")]


def test_tables_behind_the_records_are_found() -> None:
    """Protobuf promises no order of fields."""
    assert user_records(sealed(record(0, None, b"a") + field(1, b"k"))) == [(b"k", b"a")]


def test_unknown_fields_are_skipped() -> None:
    """Of every kind that is still written, in the message and in a record; tags among them."""
    unknown = field(9, 300) + field(10, b"xyz") + varint(11 << 3 | 1) + b"8" * 8
    unknown += varint(12 << 3 | 5) + b"4" * 4 + field(2000, 1)
    tags = field(4, field(1, b"name") + field(2, b"value"))
    inner = field(1, 0) + tags + unknown + field(3, b"a")
    message = unknown + field(1, b"k") + field(3, inner) + unknown
    assert user_records(sealed(message)) == [(b"k", b"a")]


def test_a_field_given_twice_counts_as_its_last() -> None:
    """As protobuf has it."""
    inner = field(1, 1) + field(3, b"first") + field(1, 0) + field(3, b"last")
    assert user_records(sealed(field(1, b"k") + field(3, inner))) == [(b"k", b"last")]


@pytest.mark.parametrize(
    "inner",
    [
        field(1, 0),
        field(3, b"no key"),
        field(1, 0) + field(3, b"cut")[:-1],
        field(1, 0) + field(3, b"x") + b"\x08",
        field(1, 0) + field(3, b"x") + b"\x13\x14",
        field(1, 0) + b"\x48" + b"\xff" * 10 + b"\x01" + field(3, b"x"),
    ],
    ids=["no data", "no key", "data cut", "number cut", "a group", "number too long"],
)
def test_a_record_that_is_not_sound_makes_all_of_it_plain(inner: bytes) -> None:
    """Never an exception, and never a part."""
    sound = field(1, b"k") + record(0, None, b"a")
    assert user_records(sealed(sound + field(3, inner))) is None
    assert user_records(sealed(sound + field(3, inner) + record(0, None, b"b"))) is None


def test_a_length_beyond_the_end_is_plain() -> None:
    """Of a table's entry and of a record, whatever it claims."""
    sound = field(1, b"k") + record(0, None, b"a")
    for number in (1, 2, 3, 9):
        claim = varint(number << 3 | 2) + varint(2**40)
        assert user_records(sealed(sound + claim + b"x")) is None
