"""Texts of positions: each is read by one broker's reader, and none is guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.checkpoints.positions import (
    LAST_BATCH_INDEX,
    LAST_SUB_SEQUENCE,
    POSITION_READERS,
    decode_message_id,
    decode_sequence,
    encode_message_id,
    encode_sequence,
)
from consumer_sdk.errors import CheckpointFormatError

SEQUENCE = 49590338271490256608559692538361571095921575989136588898
SEQUENCES = st.tuples(st.integers(0, 10**129 - 1), st.integers(0, LAST_SUB_SEQUENCE))
MESSAGE_IDS = st.tuples(*[st.integers(0, 2**63 - 1)] * 2, st.integers(0, LAST_BATCH_INDEX))
NOT_SEQUENCES = (
    "",
    ":",
    "1",
    "1:",
    ":1",
    "1:2:3",
    "01:2",
    "1:02",
    "-1:0",
    "+1:0",
    "1: 0",
    "1_0:0",
    "1:0\n",
    "\uff11:0",
    f"1:{LAST_SUB_SEQUENCE + 1}",
    f"{10**129}:0",
    "1" * 5000 + ":0",
    "TRIM_HORIZON",
)


@given(SEQUENCES)
def test_sequence_reads_back(position: tuple[int, int]) -> None:
    """56 digits and more, with any sub-sequence number."""
    assert decode_sequence(encode_sequence(position)) == position


@given(SEQUENCES, SEQUENCES)
def test_sequences_are_ordered_as_numbers(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Not as text, and the sub-sequence number counts second."""
    texts = sorted((encode_sequence(one), encode_sequence(other)), key=decode_sequence)

    assert list(map(decode_sequence, texts)) == sorted((one, other))


def test_last_sub_sequence_is_above_every_other() -> None:
    """A record that is done as a whole covers what was aggregated in it, and no later record."""
    whole = (SEQUENCE, LAST_SUB_SEQUENCE)

    assert (SEQUENCE, 10_000) < whole < (SEQUENCE + 1, 0)


@pytest.mark.parametrize("text", NOT_SEQUENCES)
def test_other_text_is_no_sequence(text: str) -> None:
    """A typed error, at once, however long it is."""
    with pytest.raises(CheckpointFormatError, match="not a position of Kinesis"):
        decode_sequence(text)


@pytest.mark.parametrize(
    "broker, text, position",
    [
        ("kafka", "0", 0),
        ("kafka", str(2**63 - 1), 2**63 - 1),
        ("memory", "7", 7),
        ("memory", "7:3", (7, 3)),
        ("kinesis", f"{SEQUENCE}:3", (SEQUENCE, 3)),
        ("pulsar", "17:0:0", (17, 0, 0)),
        ("pulsar", f"17:4:{LAST_BATCH_INDEX}", (17, 4, LAST_BATCH_INDEX)),
    ],
)
def test_text_of_each_broker_is_read(broker: str, text: str, position: object) -> None:
    """As its adapter reads it."""
    assert POSITION_READERS[broker](text) == position


@given(st.sampled_from(sorted(POSITION_READERS)), st.text(max_size=30))
def test_any_text_is_a_position_or_an_error(broker: str, text: str) -> None:
    """What is read has digits and colons alone."""
    try:
        POSITION_READERS[broker](text)
    except CheckpointFormatError:
        return
    assert text.isascii()
    assert text.replace(":", "").isdecimal()


@pytest.mark.parametrize("text", ["", "-1", "007", str(2**63), "9" * 5000, "1:2", "٣"])
def test_other_text_is_no_offset(text: str) -> None:
    """A typed error."""
    with pytest.raises(CheckpointFormatError, match="offset"):
        POSITION_READERS["kafka"](text)


@given(MESSAGE_IDS)
def test_message_id_reads_back(position: tuple[int, int, int]) -> None:
    """Ledger, entry and index."""
    assert decode_message_id(encode_message_id(position)) == position


@given(MESSAGE_IDS, MESSAGE_IDS)
def test_message_ids_are_ordered_as_numbers(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    """Pulsar trap 18: over ledgers, and an entry that is no batch is above each index of it."""
    texts = sorted((encode_message_id(one), encode_message_id(other)), key=decode_message_id)

    assert list(map(decode_message_id, texts)) == sorted((one, other))


@pytest.mark.parametrize(
    "text",
    ["", "::", "1:2", "1:2:", "1:2:3:4", "1:2:-1", "01:2:3", "1:2: 3", f"{2**63}:0:0", "1:2:3\n"],
)
def test_other_text_is_no_message_id(text: str) -> None:
    """Pulsar's own text of an id, which has its partition third, is no position either."""
    with pytest.raises(CheckpointFormatError, match="not a position of Pulsar"):
        decode_message_id(text)
