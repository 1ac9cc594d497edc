"""The pages of the stores and of Kinesis name options that exist, with the defaults that they have."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer, RetryPolicy
from consumer_sdk.adapters import KafkaAdapter, KinesisAdapter
from consumer_sdk.stores import ZooKeeperStore

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [(DOCS / name).read_text(encoding="utf-8") for name in ("stores.md", "kinesis.md")]
OWNERS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Consumer, RetryPolicy, KafkaAdapter, KinesisAdapter, ZooKeeperStore)
}
OPTION = re.compile(r"`(\w+)\((\w+)=\)`")

CELLS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for page in PAGES
    for line in page.splitlines()
    if line.startswith("| `") and line.count("|") == 5
]
ROWS = [
    (setting, *found.groups(), default)
    for setting, _, here, default in CELLS
    if (found := OPTION.search(here))
]


def test_page_has_the_seeds_settings() -> None:
    """Where the state is, what it is called, how long a session lives, how often it is written."""
    named = {name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[0])}
    storm = {"zkServers", "zkPort", "zkRoot", "id", "stateUpdateIntervalMs", "forceFromStart"}
    kinesis = {"zookeeperPrefix", "zookeeperSessionTimeoutMillis", "checkpointIntervalMillis"}
    kcl = {"applicationName", "failoverTimeMillis", "maxLeasesForWorker"}
    assert named >= storm | kinesis | kcl


@pytest.mark.parametrize("setting, owner, option, default", ROWS)
def test_setting_of_a_seed_has_a_counterpart(
    setting: str, owner: str, option: str, default: str
) -> None:
    """The option is there, and its default is the one that the page says."""
    parameter = inspect.signature(OWNERS[owner]).parameters[option]
    has_none = parameter.default is inspect.Parameter.empty
    assert default == ("" if has_none else f"`{parameter.default!r}`")
