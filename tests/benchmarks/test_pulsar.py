"""``python -m benchmarks pulsar --quick``, and the check of what was read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks import pulsar
from benchmarks.__main__ import main
from benchmarks.pulsar_tables import RATIOS, tables
from benchmarks.pulsar_topic import NUMBER, MissingRecordsError, check, value
from consumer_sdk.testing.servers import PulsarEndpoint

TINY = replace(pulsar.QUICK, many=3_000, few=500, warmup=500)


@pytest.mark.campaign
@pytest.mark.pulsar
def test_quick_run_reaches_every_figure(
    pulsar_server: PulsarEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promised figure is in the last line, and no contestant failed."""
    monkeypatch.setenv("CONSUMER_SDK_PULSAR", pulsar_server.service_url.removeprefix("pulsar://"))
    monkeypatch.setenv("CONSUMER_SDK_PULSAR_ADMIN", pulsar_server.admin_url)
    monkeypatch.setattr(pulsar, "QUICK", TINY)
    lines: list[str] = []
    monkeypatch.setattr("builtins.print", lambda *texts, **_: lines.append(" ".join(texts)))
    assert main(["pulsar", "--quick", "--json"]) == 0
    result = json.loads(lines[-1])
    assert all(result[key] > 0 for key in RATIOS)
    assert result["failures"] == {}
    assert result["records"]["ours_batches"] == result["records"]["batch_receive"] == 3_000
    page = tables(result)
    assert all(f"`{name}`" in page for name in [*RATIOS, *result["rates"]])


def read(*numbers: int) -> bytes:
    """What a contestant has noted of these records."""
    return b"".join(value(number)[:NUMBER] for number in numbers)


def test_records_in_any_order_pass() -> None:
    """A queue keeps no order; what was received beyond the last one counted is fine."""
    check(read(2, 0, 1, 3), 3)


@pytest.mark.parametrize("numbers", [[0, 1], [0, 1, 1], [1, 2, 3]], ids=["few", "twice", "first"])
def test_records_that_are_lost_or_repeated_are_noticed(numbers: list[int]) -> None:
    """A contestant that skips or repeats records fails."""
    with pytest.raises(MissingRecordsError):
        check(read(*numbers), 3)
