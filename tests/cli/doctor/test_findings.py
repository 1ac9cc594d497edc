"""How bad what was found is."""

from __future__ import annotations

import pytest

from consumer_sdk.cli.doctor.findings import (
    DAY,
    Finding,
    Level,
    exit_status,
    of_certificate,
    of_clock,
    of_files,
    of_retention,
)
from consumer_sdk.cli.doctor.servers import Server, servers_of


@pytest.mark.parametrize(
    "levels, status",
    [([], 0), (["ok", "ok"], 0), (["ok", "warn"], 3), (["warn", "FAIL", "ok"], 1)],
)
def test_worst_finding_is_the_exit_status(levels: list[Level], status: int) -> None:
    """A warning has one of its own."""
    assert exit_status(Finding(level, "what", "found") for level in levels) == status


@pytest.mark.parametrize(
    "finding, level",
    [
        (of_files(1023), "warn"),
        (of_files(1024), "ok"),
        (of_certificate("h:1", 14 * DAY, 0), "ok"),
        (of_certificate("h:1", 14 * DAY, 1), "warn"),
        (of_clock(60, 0), "ok"),
        (of_clock(61, 0), "warn"),
        (of_retention("orders/0", 800, 1000), "ok"),
        (of_retention("orders/0", 801, 1000), "warn"),
        (of_retention("orders/0", 50, 50), "ok"),
    ],
)
def test_finding_has_its_level_and_what_to_do(finding: Finding, level: str) -> None:
    """Only what is not well has something to do."""
    assert finding.level == level
    assert bool(finding.todo) == (level != "ok")


@pytest.mark.parametrize(
    "url, servers",
    [
        ("kafka://a,b:1/t?group=g", [Server("a", 9092), Server("b", 1)]),
        ("kafka://[::1]:9/t?security_protocol=SASL_SSL", [Server("::1", 9, is_tls=True)]),
        ("kafka://a/t?security_protocol=SASL_PLAINTEXT", [Server("a", 9092)]),
        (
            "pulsar+ssl://a/t?admin_url=https://b:8443&tls_trust_certs=ca.pem",
            [
                Server("a", 6651, is_tls=True, ca_file="ca.pem"),
                Server("b", 8443, is_tls=True, ca_file="ca.pem"),
            ],
        ),
        ("kinesis://eu-central-1/s?endpoint_url=http://a", [Server("a", 80)]),
        ("kinesis://eu-central-1/s", []),
        ("zookeeper://a,b:1/root", [Server("a", 2181), Server("b", 1)]),
        ("sqlite:///state.db", []),
    ],
)
def test_servers_are_those_of_the_url(url: str, servers: list[Server]) -> None:
    """With the ports that they have by default."""
    assert servers_of(url) == servers
