"""The options of a consumer, for tests of what goes by them."""

from __future__ import annotations

from typing import Any

from consumer_sdk.options import given_fields
from consumer_sdk.runtime.consumer import DEFAULTS
from consumer_sdk.runtime.options import Options, parse_start

__all__ = ["options_of"]


def options_of(**given: Any) -> Options:
    """Those of a consumer that is given these; the defaults are those of its signature."""
    all_of_them = DEFAULTS["Consumer"] | given
    all_of_them["start"] = parse_start(all_of_them["start"])
    return Options(**given_fields(Options, all_of_them))
