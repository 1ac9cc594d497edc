"""Stored bytes that are not a checkpoint: always a typed error, never a wrong checkpoint."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import Checkpoint
from tests.trackers.codec import assert_sound, decode, encode, forge, sign

WHOLE = Checkpoint(5, 6, ((8, 9), (11, 12), (14, 14)), {6: (2, 1.5), 10: (1, 2e9)}, identity="abc")


def test_forged_checkpoint_without_changes_is_read() -> None:
    """The forger itself works: what the tests below change is what is refused."""
    assert decode(forge()).ranges == ((8, 9), (11, 12))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": "1"},
        {"version": ...},
        {"watermark": 5},
        {"watermark": ["5"]},
        {"watermark": "five"},
        {"watermark": ...},
        {"resume": True},
        {"resume": {}},
        {"resume": ""},
        {"resume": ...},
        {"ranges": None},
        {"ranges": "89"},
        {"ranges": {}},
        {"ranges": ["89"]},
        {"ranges": [["8"]]},
        {"ranges": [["8", "9", "10"]]},
        {"ranges": [[8, 9]]},
        {"ranges": [["8", None]]},
        {"ranges": [8]},
        {"ranges": ...},
        {"attempts": None},
        {"attempts": [["6", [1, 1.0]]]},
        {"attempts": {"six": [1, 1.0]}},
        {"attempts": {"6": [1]}},
        {"attempts": {"6": [1, 1.0, 1.0]}},
        {"attempts": {"6": 1}},
        {"attempts": {"6": "12"}},
        {"attempts": {"6": [True, 1.0]}},
        {"attempts": {"6": [1.0, 1.0]}},
        {"attempts": {"6": ["1", 1.0]}},
        {"attempts": {"6": [-1, 1.0]}},
        {"attempts": {"6": [1, True]}},
        {"attempts": {"6": [1, "1.0"]}},
        {"attempts": {"6": [1, None]}},
        {"attempts": {"6": [1, math.nan]}},
        {"attempts": {"6": [1, math.inf]}},
        {"attempts": {"6": [1, -math.inf]}},
        {"attempts": {"6": [1, 10**400]}},
        {"attempts": ...},
        {"ended": "false"},
        {"ended": 0},
        {"ended": None},
        {"ended": ...},
        {"identity": 7},
        {"identity": ["abc"]},
        {"identity": ...},
    ],
    ids=str,
)
def test_field_of_a_wrong_kind_is_refused(changes: dict[str, Any]) -> None:
    """Types are exact: true is no count, a text is no list, NaN is no time."""
    with pytest.raises(CheckpointFormatError):
        decode(forge(**changes))


@pytest.mark.parametrize(
    "ranges",
    [
        [["9", "8"]],
        [["5", "9"]],
        [["1", "2"]],
        [["8", "9"], ["8", "9"]],
        [["8", "11"], ["10", "12"]],
        [["8", "9"], ["9", "12"]],
        [["11", "12"], ["8", "9"]],
    ],
    ids=str,
)
def test_ranges_out_of_order_are_refused(ranges: list[list[str]]) -> None:
    """Duplicate, overlapping, reversed or at the watermark: a search in them would go astray."""
    with pytest.raises(CheckpointFormatError, match="out of order"):
        decode(forge(ranges=ranges))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "1",
        "{}",
        '"checkpoint"',
        "\x00\xff",
        "{" * 2_000_000,
        "[" * 2_000_000,
        '{"a":' * 100_000,
        "9" * 2_000_000,
        '"' + "x" * 2_000_000 + '"',
        "[" * 400 + "]" * 400,
        " " * 4_000_001,
    ],
    ids=lambda text: f"{text[:8]!r} and {len(text)} long",
)
def test_text_that_is_no_checkpoint_is_refused(text: str) -> None:
    """Also where it is long, or nested deeper than the parser goes."""
    with pytest.raises(CheckpointFormatError):
        decode(text)


@pytest.mark.parametrize("depth", range(100, 1500, 50))
def test_nesting_near_the_parsers_limit_is_refused(depth: int) -> None:
    """What can be parsed may still be too deep to be checked."""
    text = forge()[:-1] + ',"extra":' + "[" * depth + "]" * depth + "}"

    with pytest.raises(CheckpointFormatError):
        decode(text)


def test_every_truncation_is_refused() -> None:
    """A torn write is not half a checkpoint."""
    text, _ = encode(WHOLE)
    for end in range(len(text)):
        with pytest.raises(CheckpointFormatError):
            decode(text[:end])


def test_unknown_field_is_left_alone() -> None:
    """A later minor version may add one; the checksum covers it."""
    assert decode(forge(note="hello")) == decode(forge())


def test_signed_nonsense_is_refused() -> None:
    """A right checksum makes no checkpoint."""
    for body in ({"version": 1}, {"version": 1, "broker": "kafka"}, {"version": 1, "ranges": []}):
        with pytest.raises((CheckpointFormatError, CheckpointMismatchError)):
            decode(sign(body))


def mutate(text: str, rng: random.Random) -> str:
    """One to three small changes: a character, a cut, a repeat, a swap."""
    for _ in range(rng.randint(1, 3)):
        at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        end = min(end, at + rng.choice([1, 1, 1, 4, 40]))
        middle = rng.choice(
            [
                "",
                text[at:end] * 2,
                text[at:end][::-1],
                rng.choice('0123456789[]{}",:.-eInNtf\\ \x00é'),
            ]
        )
        text = text[:at] + middle + text[end:]
    return text


def read_mutations(count: int, seed: int) -> None:
    """Each is refused with a typed error, or read as what was written."""
    rng = random.Random(seed)
    whole, _ = encode(WHOLE)
    for _ in range(count):
        text = mutate(whole, rng)
        try:
            found = decode(text, identity="abc")
        except (CheckpointFormatError, CheckpointMismatchError):
            continue
        assert found == WHOLE, text


def test_mutated_checkpoints_are_refused_or_harmless() -> None:
    """Twenty thousand seeded mutations."""
    read_mutations(20_000, seed=1)


@pytest.mark.campaign
def test_many_mutated_checkpoints_are_refused_or_harmless() -> None:
    """Three hundred thousand more."""
    read_mutations(300_000, seed=2)


VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 10**30, 1.5, -0.0, 1e308, math.nan, math.inf, -math.inf),
    *("", "5", "06", "-3", "six", "8", "\ud800", [], {}, [[]], ["8"], ["8", "9"], [["8", "9"]]),
    *([2, 1.5], {"6": [2, 1.5]}, {"06": [1, 1.0], "6": [2, 1.0]}, [["20", "21"], ["8", "9"]]),
]


def change(value: Any, rng: random.Random) -> Any:
    """Somewhere in a JSON value another one, one more, one less, or two that are swapped."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.2:
        return rng.choice(VALUES)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key, other = rng.choice(keys), rng.choice(keys)
    changed = value.copy()
    kind = rng.choice(["inside", "inside", "inside", "less", "more", "swap"])
    if kind == "inside":
        changed[key] = change(value[key], rng)
    elif kind == "less":
        del changed[key]
    elif kind == "swap":
        changed[key], changed[other] = value[other], value[key]
    elif isinstance(changed, dict):
        changed[str(rng.randrange(20))] = value[key]
    else:
        changed.insert(key, value[other])
    return changed


def read_forgeries(count: int, seed: int) -> None:
    """With a checksum that is right each is refused, or is a checkpoint that is sound."""
    rng = random.Random(seed)
    whole = json.loads(encode(WHOLE)[0])
    del whole["crc32"]
    for _ in range(count):
        body = whole
        for _ in range(rng.randint(1, 3)):
            body = change(body, rng)
        try:
            found = decode(sign(body) if isinstance(body, dict) else json.dumps(body))
        except (CheckpointFormatError, CheckpointMismatchError):
            continue
        assert_sound(found)
        assert decode(encode(found)[0]) == found


def test_forged_checkpoints_are_refused_or_sound() -> None:
    """Five thousand seeded changes of fields, under a checksum that is right."""
    read_forgeries(5_000, seed=3)


@pytest.mark.campaign
def test_many_forged_checkpoints_are_refused_or_sound() -> None:
    """A hundred thousand more."""
    read_forgeries(100_000, seed=4)


def test_name_that_is_there_twice_is_refused() -> None:
    """Which of the two was meant, nobody can say; the parser would take the last in silence."""
    text = forge()
    for name in ('"watermark": "5"', '"resume": "6"', '"6": [2, 1.5]'):
        assert text.count(name) == 1
        with pytest.raises(CheckpointFormatError, match="a name that is there twice"):
            decode(text.replace(name, f"{name}, {name}"))


def test_position_that_is_there_twice_is_refused() -> None:
    """Also where its text differs."""
    with pytest.raises(CheckpointFormatError, match="one position that is there twice"):
        decode(forge(attempts={"6": [1, 1.0], "06": [2, 1.0]}))


@pytest.mark.parametrize("written", [float("inf"), float("nan"), "1.5", True, None])
def test_time_of_writing_that_is_no_time_is_refused(written: object) -> None:
    """Delays are measured from it."""
    with pytest.raises(CheckpointFormatError, match="malformed field"):
        decode(forge(written=written))
