"""How large records are, many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

__all__ = ["total_bytes"]

KEY, VALUE = map(attrgetter, ("key", "value"))


def total_bytes(records: Sequence[Any]) -> int:
    """Of keys and values: as the sum of ``message.size``, at a tenth of the cost.

    Args:
        records: whatever has a ``key`` and a ``value``: messages, or a client's records.
    """
    cells = chain(map(KEY, records), map(VALUE, records))
    return sum(map(len, filter(None, cells)))
