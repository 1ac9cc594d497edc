"""Log lines that say which record they are about."""

from __future__ import annotations

import io
import json
import logging
import math
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from consumer_sdk import Message, Partition
from consumer_sdk.telemetry import JsonFormatter, message_fields, traced
from tests.runtime.bench import Bench, bench


def test_line_says_record_trace_extra_and_error() -> None:
    """One JSON object a line, also of what is no JSON."""
    stream = io.StringIO()
    output = logging.StreamHandler(stream)
    output.setFormatter(JsonFormatter())
    log = logging.getLogger("tests.telemetry.lines")
    log.addHandler(output)
    log.propagate = False

    async def handle(message: Message) -> None:
        try:
            int("näh\nzwei")
        except ValueError:
            log.exception("no %s", "way", extra={"order": 7, "what": {1}})
        assert message_fields()["position"] == message.position

    async def test(b: Bench) -> None:
        b.append("1")
        await b.run(b.consumer(), handle, around=[traced(provider=TracerProvider())])
        log.warning("outside")

    bench(test)
    log.removeHandler(output)
    inside, outside = map(json.loads, stream.getvalue().splitlines())
    found: dict[str, Any] = {name: inside[name] for name in ("message", "level", "order", "what")}
    assert found == {"message": "no way", "level": "ERROR", "order": 7, "what": "{1}"}
    place = [inside[name] for name in ("stream", "partition", "position", "attempt")]
    assert place == ["s", "0", 0, 1]
    assert (len(inside["trace_id"]), len(inside["span_id"])) == (32, 16)
    assert "ValueError: invalid literal" in inside["error"]
    assert outside.keys() == {"time", "level", "logger", "message"}


class Wrong:
    """Has no text."""

    def __str__(self) -> str:
        raise KeyError("no text")


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value, text",
    [
        (math.nan, "nan"),
        ({"worst": math.inf}, "{'worst': inf}"),
        ({Partition("s", "0"): 5}, "{Partition(stream='s', id='0'): 5}"),
        (CYCLE, "[[...]]"),
        (b"raw", "b'raw'"),
        ("caf\udce9", "caf\udce9"),
    ],
)
def test_what_is_no_json_is_written_as_its_text(value: object, text: str) -> None:
    """The line is JSON for every reader, can be written in UTF-8, and has the other fields."""
    line = json.loads(_formatted(value=value, order=7).encode("utf-8"), parse_constant=pytest.fail)
    assert (line["value"], line["order"], line["message"]) == (text, 7, "hello")


def test_what_has_no_text_does_not_cost_the_line() -> None:
    """Whatever user code raises there."""
    assert "Wrong object at" in json.loads(_formatted(value=Wrong(), more=[Wrong()]))["value"]


def _formatted(**extra: object) -> str:
    return JsonFormatter().format(logging.makeLogRecord({"msg": "hello", **extra}))


def test_position_that_is_no_number_is_text() -> None:
    """Kinesis counts with more digits than those who read JSON take for a number."""

    async def handle(message: Message) -> None:
        message.position = (2**180, 0)
        assert message_fields()["position"] == f"({2**180}, 0)"

    async def test(b: Bench) -> None:
        b.append("1")
        await b.run(b.consumer(), handle, seconds=1)

    bench(test)
