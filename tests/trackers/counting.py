"""Counts operations where a claim is about cost: time would measure the machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any


def operations(action: Callable[[], Any]) -> int:
    """How many functions, in Python and in C, are called or resumed by ``action``."""
    counted = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    previous = sys.getprofile()
    gc.disable()  # others' callbacks of the collector would count
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(previous)
        gc.enable()
    return counted
