"""Which PySpark is new enough."""

from __future__ import annotations

import pickle
import sys

import pytest

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.spark_bridge.pyspark_version import OLDEST, check_version, require_pyspark


@pytest.mark.parametrize("version", ["4.0.0", "4.0.5", "4.2.0.dev1", "4.10.0", "5.0.0-preview1"])
def test_a_version_that_is_new_enough_passes(version: str) -> None:
    """Numbers are compared, not texts."""
    check_version(version, OLDEST)


def test_a_version_that_is_too_old_is_named() -> None:
    """Not "pyspark is not installed": with the version that is needed, also out of a pickle."""
    with pytest.raises(MissingExtraError) as caught:
        check_version("3.5.9", "4.0")
    said = "pyspark 3.5.9 is installed, and 4.0 or newer is needed; install it with: pip install"
    assert str(caught.value) == f"{said} 'pyspark>=4.0'"
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
    assert (again.found, again.needed, str(again)) == ("3.5.9", "4.0", str(caught.value))


def test_no_pyspark_is_not_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not installed has no version."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtraError, match=r"not installed.*consumer-sdk\[spark\]"):
        require_pyspark()
