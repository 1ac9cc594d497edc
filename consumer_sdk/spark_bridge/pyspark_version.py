"""Which PySpark is installed, and whether that is new enough."""

from __future__ import annotations

import re

from consumer_sdk.errors import MissingExtraError

__all__ = ["OLDEST", "check_version", "require_pyspark"]

OLDEST = "4.0"
"""The first PySpark with data sources in Python."""


def require_pyspark(needed: str = OLDEST) -> None:
    """Sees that PySpark is installed, in this version or a newer one.

    Raises:
        MissingExtraError: it is not; names the version that is installed, if any is.
    """
    try:
        from pyspark import __version__
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyspark", "spark") from error
    check_version(__version__, needed)


def check_version(found: str, needed: str) -> None:
    """Sees that a version is not older than another one; two numbers count.

    Raises:
        MissingExtraError: it is.
    """
    if _numbers(found) < _numbers(needed):
        raise MissingExtraError("pyspark", "spark", found=found, needed=needed)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:2]]
