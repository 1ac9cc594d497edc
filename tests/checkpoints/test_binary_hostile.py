"""Stored bytes that are not a checkpoint: always a typed error, never a wrong checkpoint."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.checkpoints.binary import MAX_SIZE
from consumer_sdk.checkpoints.varints import append_rows
from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import Checkpoint
from tests.trackers.codec import (
    SOME,
    assert_sound,
    checkpoints,
    decode_bytes,
    encode,
    encode_bytes,
    sign_bytes,
)

REFUSED = (CheckpointFormatError, CheckpointMismatchError)
HEAD = encode_bytes(Checkpoint())[0][:12]
"""Of kafka orders/0, without an identity."""
NEWER = b"\xc5\x03" + HEAD[2:]
"""The same of version 3."""


def forge(*numbers: int, head: bytes = HEAD) -> bytes:
    """Any numbers as the rows of a checkpoint, with a checksum that is right."""
    out = bytearray(head)
    for number in numbers:
        append_rows(out, [(number,)], (0,))
    return sign_bytes(bytes(out))


def test_forged_bytes_without_changes_are_read() -> None:
    """The forger itself works: what the tests below change is what is refused."""
    found = decode_bytes(forge(7, 0, 1, 5, 1, 2, 1, 1, 2, 1500))

    assert found == Checkpoint(5, 6, ((8, 9),), {7: (2, 1.5)}, ended=True)


@pytest.mark.parametrize(
    "numbers, problem",
    [
        ((0, 0), "row that is cut off"),
        ((8, 0, 0), "version 1, and rows of another"),
        ((-1, 0, 0), "flags -1"),
        ((256, 0, 0), "version 1, and rows of another"),
        ((2, 9, 0, *range(9)), "positions of 9 numbers"),
        ((2, -1, 0, 5), "positions of -1 numbers"),
        ((2, 10**70, 0, 5), "positions of 10"),
        ((0, 3, 0), "positions of 3 numbers"),
        ((2, 0, -1, 5), "-1 ranges"),
        ((2, 0, 1, 5), "row that is cut off"),
        ((2, 0, 1, 5, 1), "row that is cut off"),
        ((2, 0, 10**70, 5, 1, 1), "row that is cut off"),
        ((2, 0, 1, 5, 2, -1), "ranges out of order"),
        ((2, 0, 1, 5, 0, 3), "ranges out of order"),
        ((2, 0, 2, 5, 1, 1, 0, 1), "ranges out of order"),
        ((0, 0, 1, 8, 1), "no position to read from"),
        ((4, 0, 0), "row that is cut off"),
        ((6, 0, 0, 5), "row that is cut off"),
        ((6, 2, 0, 5, 0, 1), "row that is cut off"),
        ((2, 0, 0, 5, 1), "row that is cut off"),
        ((2, 0, 0, 5, 1, 1), "row that is cut off"),
        ((2, 0, 0, 5, 1, 1, 1, 1), "row that is cut off"),
        ((2, 0, 0, 5, 1, -1, 0), "-1 is not a count"),
        ((2, 0, 0, 5, 1, 2**31, 0), "2147483648 is not a count"),
        ((2, 0, 0, 5, 1, 1, 10**15 + 1), "milliseconds that are no time"),
        ((2, 0, 0, 5, 1, 1, -(10**15) - 1), "milliseconds that are no time"),
        ((2, 0, 0, 5, 1, 1, 0, 0, 0, 0), "attempts out of order"),
        ((2, 0, 0, 5, 2, 1, 0, -1, 0, 0), "attempts out of order"),
    ],
)
def test_rows_that_make_no_checkpoint_are_refused(numbers: tuple[int, ...], problem: str) -> None:
    """Unknown flags, what is missing, what is too much, what cannot be."""
    with pytest.raises(CheckpointFormatError, match=problem):
        decode_bytes(forge(*numbers))


@pytest.mark.parametrize(
    "numbers, problem",
    [
        ((8, 1, 0, 0), "positions of 1 numbers"),
        ((0, 0, 0), "version 3, and rows of another"),
        ((2, 0, 0, 5), "version 3, and rows of another"),
        ((64, 0, 0), "flags 64"),
        ((256, 0, 0), "flags 256"),
        ((8, 0, 0), "row that is cut off"),
        ((8, 0, 0, 10**15 + 1), "milliseconds that are no time"),
    ],
)
def test_rows_that_version_3_does_not_write_are_refused(
    numbers: tuple[int, ...], problem: str
) -> None:
    """Those of version 1 too: the same checkpoint is written in one way only."""
    with pytest.raises(CheckpointFormatError, match=problem):
        decode_bytes(forge(*numbers, head=NEWER))


DENSE = b"\xaa" * 100
"""400 ranges of a record."""


def forge_bits(bits: bytes, count: int, *, arity: int = 0, length: int | None = None) -> bytes:
    """A checkpoint at offset 5 whose bit set begins at 6."""
    rows = forge(18, arity, count, *(5,) * (arity or 1), 1, head=NEWER)[:-4]
    return sign_bytes(rows + bits + (len(bits) if length is None else length).to_bytes(2))


def test_forged_bit_set_without_changes_is_read() -> None:
    """The forger itself works."""
    ranges = tuple((6 + 2 * n, 6 + 2 * n) for n in range(400))

    assert decode_bytes(forge_bits(DENSE, 400)) == Checkpoint(5, None, ranges)


@pytest.mark.parametrize(
    "data, problem",
    [
        (forge_bits(DENSE, 399), "400 ranges instead of 399"),
        (forge_bits(b"\xaa" * 9, 36), "a needless one"),
        (forge_bits(b"\x2a" + DENSE, 403), "longer than it needs to be"),
        (forge_bits(DENSE + b"\0", 400), "longer than it needs to be"),
        (forge_bits(b"", 0), "bit set that is cut off"),
        (forge_bits(DENSE, 400, length=0xFFFF), "bit set that is cut off"),
        (forge_bits(DENSE, 400, length=99), "396 ranges instead of 400"),
        (forge_bits(DENSE, 400, arity=1), "a bit set, and positions of 1 numbers"),
        (forge(16, head=NEWER), "bit set that is cut off"),
        (forge(2, 0, 400, 5, 1), "row that is cut off"),
    ],
)
def test_bit_set_that_nothing_writes_is_refused(data: bytes, problem: str) -> None:
    """Zeros around it, another count than it holds, one that saves too little."""
    with pytest.raises(CheckpointFormatError, match=problem):
        decode_bytes(data)


def test_longest_bit_set_takes_bounded_memory() -> None:
    """It is 65 535 bytes; a longer one has no length."""
    data = forge_bits(b"\xaa" * 0xFFFF, 4 * 0xFFFF)
    tracemalloc.start()
    try:
        assert len(decode_bytes(data).ranges) == 4 * 0xFFFF
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc5",
        bytes(18),
        bytes(MAX_SIZE),
        b"\xff" * 100,
        encode(SOME[0])[0].encode(),
        sign_bytes(b"\xc5\x02" + HEAD[2:] + bytes(3)),
        sign_bytes(b"\xc4\x01" + HEAD[2:] + bytes(3)),
        sign_bytes(b"\xc5\x00" + HEAD[2:] + bytes(3)),
        sign_bytes(b"\xc5\x05" + HEAD[2:] + bytes(3)),
        sign_bytes(HEAD[:8]),
        sign_bytes(HEAD),
        encode_bytes(SOME[0])[0] + b"\x00",
        b"\x00" + encode_bytes(SOME[0])[0],
        forge(0, 0, 0, head=HEAD[:10] + b"\x00\x09"),
        forge(0, 0, 0, head=HEAD[:10] + b"\x00\x02\xff\xff"),
        sign_bytes(encode_bytes(Checkpoint(5, 6))[0][:-4] + b"\x00"),
        sign_bytes(encode_bytes(Checkpoint(5, 6))[0][:-4] + b"\xff"),
    ],
    ids=lambda data: f"{data[:2].hex()} to {data[-6:].hex()}, {len(data)} long",
)
def test_bytes_that_are_no_checkpoint_are_refused(data: bytes) -> None:
    """Empty, foreign, of another version, longer or shorter than they say."""
    with pytest.raises(CheckpointFormatError):
        decode_bytes(data)


def test_bytes_beyond_the_limit_are_refused_unread() -> None:
    """Even when they are a checkpoint: nothing writes so many."""
    ranges = tuple((2 * i, 2 * i) for i in range(4, 6))
    signed = encode_bytes(Checkpoint(5, 6, ranges))[0][:-4] + b"\x00" * MAX_SIZE

    with pytest.raises(CheckpointFormatError, match="at most 1000000"):
        decode_bytes(sign_bytes(signed))


def test_checkpoint_of_another_partition_is_a_mismatch_though_it_is_whole() -> None:
    """It is told from a broken one."""
    for at in range(2, 10):
        signed = bytearray(encode_bytes(SOME[0])[0][:-4])
        signed[at] ^= 1
        with pytest.raises(CheckpointMismatchError):
            decode_bytes(sign_bytes(bytes(signed)))


@pytest.mark.parametrize("checkpoint", SOME)
def test_every_truncation_of_the_bytes_is_refused(checkpoint: Checkpoint) -> None:
    """A torn write is not half a checkpoint."""
    data, _ = encode_bytes(checkpoint)
    for end in range(len(data)):
        with pytest.raises(CheckpointFormatError):
            decode_bytes(data[:end])


@pytest.mark.parametrize("numbers", [(0,) * 50_001, (1,) * 50_001, (2**263 - 1, *(1,) * 50_000)])
@pytest.mark.parametrize("flags", [(0, 0, 0), (2, 0, 23_998), (2, 8, 3_000), (6, 1, 20_000)])
def test_memory_is_bounded_by_the_length(numbers: tuple[int, ...], flags: tuple[int, ...]) -> None:
    """Whatever the bytes ask for, they cost some hundred times their length."""
    data = forge(*flags, *numbers)
    tracemalloc.start()
    try:
        decode_bytes(data)
    except CheckpointFormatError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 300 * len(data)


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One to three changes: flip a bit, set a byte, cut, repeat, or splice in a part of another."""
    for _ in range(rng.randint(1, 3)):
        at, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        end = min(end, at + rng.choice([1, 1, 1, 4, 40]))
        start = rng.randrange(len(other) + 1)
        middle = rng.choice(
            [
                b"",
                bytes(byte ^ 1 << rng.randrange(8) for byte in data[at : at + 1]),
                bytes((rng.choice([0, 1, 2, 191, 192, 223, 224, 225, 255, rng.randrange(256)]),)),
                data[at:end] * 2,
                other[start : start + end - at],
            ]
        )
        data = data[:at] + middle + data[end:]
    return data


def read_mutations(count: int, seed: int) -> None:
    """Each is refused with a typed error, or read as what was written.

    With a checksum that is right again it is refused, or a checkpoint that is sound and would be
    written as just these bytes: nothing in them was passed over.
    """
    rng = random.Random(seed)
    written = {encode_bytes(checkpoint)[0]: checkpoint for checkpoint in SOME}
    for _ in range(count):
        data, other = rng.choices(list(written), k=2)
        is_signed = rng.random() < 0.7
        changed = mutate(data[:-4], other, rng)
        changed = sign_bytes(changed) if is_signed else mutate(data, other, rng)
        try:
            found = decode_bytes(changed)
        except REFUSED:
            continue
        assert is_signed or changed in written, changed.hex()
        assert_sound(found)
        assert encode_bytes(found) == (changed, None), changed.hex()


def test_mutated_bytes_are_refused_or_harmless() -> None:
    """Five thousand seeded mutations."""
    read_mutations(5_000, seed=1)


@pytest.mark.campaign
def test_many_mutated_bytes_are_refused_or_harmless() -> None:
    """Two hundred thousand more."""
    read_mutations(200_000, seed=2)


@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_refused_or_harmless(data: bytes, is_headed: bool) -> None:  # noqa: FBT001 - drawn
    """Also behind a head and under a checksum that are right."""
    signed = sign_bytes(HEAD + data if is_headed else data)
    try:
        found = decode_bytes(signed)
    except REFUSED:
        return
    assert_sound(found)
    assert encode_bytes(found) == (signed, None)


@given(checkpoints(), st.data())
def test_changed_numbers_are_refused_or_harmless(
    checkpoint: Checkpoint, draws: st.DataObject
) -> None:
    """A bit of any checkpoint flipped, and its checksum made right."""
    signed = bytearray(encode_bytes(checkpoint)[0][:-4])
    signed[draws.draw(st.integers(12, len(signed) - 1))] ^= 1 << draws.draw(st.integers(0, 7))
    data = sign_bytes(bytes(signed))
    try:
        found = decode_bytes(data)
    except REFUSED:
        return
    assert_sound(found)
    assert encode_bytes(found) == (data, None)
