"""Log lines that name the record that is being handled."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from consumer_sdk.runtime import current_message

__all__ = ["JsonFormatter", "message_fields"]

OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record of `logging` has; the rest was given as ``extra``."""


def message_fields() -> dict[str, Any]:
    """Returns the fields of the current handler's record, for a log line.

    Returns:
        ``stream``, ``partition``, ``position`` and ``attempt`` in a handler of `Consumer.run`;
        ``trace_id`` and ``span_id`` in a span of OpenTelemetry, if that is used; else nothing.
    """
    fields: dict[str, Any] = {}
    message = current_message()
    if message is not None:
        stream, partition = message.partition
        at = message.position  # a sequence number of Kinesis is no number that JSON's readers take
        position = at if isinstance(at, int) else str(at)
        fields |= {"stream": stream, "partition": partition, "position": position}
        fields["attempt"] = message.attempt
    return fields | _trace()


def _trace() -> dict[str, str]:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, `message_fields`, ``extra`` and errors.

    Use it with any handler of `logging`. It has to format in the task that logs. With a
    `logging.handlers.QueueHandler`, give it to that handler.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line; a value that JSON cannot hold is written as its text."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = {name: value for name, value in vars(record).items() if name not in OWN}
        fields = {**extra, **fields, **message_fields()}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        return _line(fields)


def _line(fields: Mapping[str, Any]) -> str:
    try:
        line = _json(fields)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, NaN, a cycle
        line = _json({str(name): _plain(value) for name, value in fields.items()})
    # Half of a surrogate pair, as of a file's name: its escape is JSON's too.
    return line.encode("utf-8", "backslashreplace").decode("utf-8")


def _json(value: object) -> str:
    return json.dumps(value, default=_text, ensure_ascii=False, allow_nan=False)


def _plain(value: object) -> object:
    try:
        _json(value)
    except (TypeError, ValueError, RecursionError):
        return _text(value)
    return value


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - user code; a line without it is better than no line
        return object.__repr__(value)
