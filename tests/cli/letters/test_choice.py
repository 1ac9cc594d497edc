"""Which letters are meant, how fast they go, and what a time is."""

from __future__ import annotations

import pytest

from consumer_sdk.cli.letters.dead_letters import Choice, Pace
from consumer_sdk.cli.times import parse_time
from consumer_sdk.errors import ConfigurationError
from tests.cli.worlds import letter_of

LETTER = letter_of(("orders", "0", 5), b"k", b"v")


@pytest.mark.parametrize(
    "choice, is_meant",
    [
        (Choice(), True),
        (Choice(error_type="ValueError", stream="orders", since=1_700_000_005.0), True),
        (Choice(error_type="app.ValueError", places=frozenset({"0@5"})), True),
        (Choice(error_type="Error"), False),
        (Choice(stream="order"), False),
        (Choice(since=1_700_000_005.5), False),
        (Choice(places=frozenset({"0@6"})), False),
    ],
)
def test_letter_is_meant_if_it_is_all_that_was_asked_for(choice: Choice, *, is_meant: bool) -> None:
    """The error's name may be its last part."""
    assert choice.matches("0@5", LETTER) is is_meant


def test_pace_waits_for_what_went_before() -> None:
    """Idle time is not made up for."""
    pace = Pace(20.0)
    assert pace.at_once == 2
    assert [pace.wait(2, 100.0), pace.wait(2, 100.0), pace.wait(2, 110.0)] == [
        0.0,
        pytest.approx(0.1),
        0.0,
    ]
    assert (Pace(None).at_once, Pace(None).wait(5, 1.0), Pace(0.5).at_once) == (100, 0.0, 1)


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("2026-05-01T12:00:00Z", 1_777_636_800.0),
        ("2026-05-01T14:00:00+02:00", 1_777_636_800.0),
        ("2026-05-01", 1_777_593_600.0),
        ("2h", 2_800.0),
        ("@1700000000.5", 1_700_000_000.5),
    ],
)
def test_times_are_read(text: str, seconds: float) -> None:
    """In a zone, or so long before now, 10 000."""
    assert parse_time(text, 10_000.0) == seconds


@pytest.mark.parametrize("text", ["yesterday", "2026-05-01T12:00:00", "12", "5w", "", "-1h"])
def test_other_texts_are_no_times(text: str) -> None:
    """The error says what to write."""
    with pytest.raises(ConfigurationError, match=r"no time; TIME: 2026|any time zone's"):
        parse_time(text, 0.0)
