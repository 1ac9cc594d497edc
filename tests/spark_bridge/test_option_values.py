"""Values of options: texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge import option_values as values


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("15m", 900),
        ("15min", 900),
        ("30s", 30),
        ("500ms", 0.5),
        ("500", 0.5),
        ("2 h", 7200),
        ("1d", 86400),
    ],
)
def test_durations_are_those_of_spark(text: str, seconds: float) -> None:
    """A number alone is milliseconds."""
    assert values.DURATION.parse("maxTriggerDelay", text) == seconds


@pytest.mark.parametrize("text", ["", "m", "1.5h", "-1s", "5 parsecs", "10s 5ms"])
def test_a_wrong_duration_names_the_units(text: str) -> None:
    """And the option."""
    with pytest.raises(ConfigurationError, match=r"maxTriggerDelay=.*us, ms, s, m, min, h, d"):
        values.DURATION.parse("maxTriggerDelay", text)


@pytest.mark.parametrize("text", ["", "0", "-1", "1.0", "٣", "many", "1e3"])
def test_a_wrong_count_is_refused(text: str) -> None:
    """Digits that only look like digits too."""
    with pytest.raises(ConfigurationError, match=r"tasks=.*an integer of at least 1"):
        values.COUNT.parse("tasks", text)


def test_truth_is_true_or_false() -> None:
    """In any case, as in Spark; nothing else."""
    assert values.TRUTH.parse("failOnDataLoss", "True")
    assert not values.TRUTH.parse("failOnDataLoss", "false")
    with pytest.raises(ConfigurationError, match="failOnDataLoss='no': give one of true, false"):
        values.TRUTH.parse("failOnDataLoss", "no")


def test_names_are_trimmed_and_each_there_once() -> None:
    """A trailing comma is no name."""
    assert values.NAMES.parse("subscribe", " a, b ,") == ("a", "b")
    for text in ("", " , ", "a,b,a"):
        with pytest.raises(ConfigurationError, match="each once"):
            values.NAMES.parse("subscribe", text)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"a":1}', '{"a":{}}', '{"a":{"0":1},"a":{}}', "{a"]
)
def test_wrong_json_says_what_to_write(text: str) -> None:
    """A name that is there twice too."""
    with pytest.raises(ConfigurationError, match=r"startingOffsets=.*give this"):
        values.json_object("startingOffsets", text, "this")


def test_a_secret_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 22: by a variable or a file, whose line end is no part of it; else it is itself."""
    monkeypatch.setenv("PULL_TOKEN", "s3cret")
    (tmp_path / "token").write_text("f1le\n", encoding="utf-8")
    assert values.secret("token", "env:PULL_TOKEN") == "s3cret"
    assert values.secret("token", f"file:{tmp_path}/token") == "f1le"
    assert values.secret("token", "plain:text") == "plain:text"


def test_a_secret_that_is_not_there_names_where_it_was_looked_for(tmp_path: Path) -> None:
    """With the option."""
    with pytest.raises(ConfigurationError, match="token=env:…: no environment variable 'ABSENT_X'"):
        values.secret("token", "env:ABSENT_X")
    with pytest.raises(ConfigurationError, match=r"token=file:…: .*gone' is unreadable"):
        values.secret("token", f"file:{tmp_path}/gone")
