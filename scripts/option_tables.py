"""Writes the tables of options in the documents anew: from signatures, dataclasses and docstrings.

A table stands between ``<!-- options: NAME -->`` and ``<!-- end of options -->``; `TABLES` has the names.
``--check`` writes nothing, and ends with 1 where a table is not what it would write.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from consumer_sdk import Consumer, RetryPolicy
from consumer_sdk.adapters import (
    KafkaAdapter,
    KafkaTransactions,
    KinesisAdapter,
    PulsarAdapter,
)
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.kinesis.service.connection import Connection as KinesisConnection
from consumer_sdk.adapters.pulsar.client.connection import Connection as PulsarConnection
from consumer_sdk.adapters.pulsar.options import PulsarOptions
from consumer_sdk.cli.run.config import AdminOptions, ProcessOptions, TelemetryOptions
from consumer_sdk.dead_letters import KafkaDeadLetters, PulsarDeadLetters
from consumer_sdk.options import TEXT, OptionType, help_of, kinds_of, spelling_of
from consumer_sdk.runtime.consumer import DEAD_LETTERS, STORE
from consumer_sdk.runtime.options import Options, RunOptions
from consumer_sdk.schema_registry import SchemaRegistry
from consumer_sdk.spark_bridge.feed.url import FeedUrl
from consumer_sdk.spark_bridge.option_values import DURATION
from consumer_sdk.spark_bridge.pull.options.options import PullSettings
from consumer_sdk.stores import LocalStore, ZooKeeperStore
from consumer_sdk.stores.sqlite.file import OWN as SQLITE
from consumer_sdk.stores.zookeeper.options import OWN as ZOOKEEPER

__all__ = ["TABLES", "pages", "table", "written"]

DOCS = Path(__file__).parent.parent / "docs"
MARKED = re.compile(r"(<!-- options: ([^\n]+) -->\n).*?(<!-- end of options -->)", re.DOTALL)
MEBIBYTE = 1 << 20
MINUTE = 60
SERVERS = replace(TEXT, wanted="`host:port`, several with commas or in a list")


def _own(called: type) -> Mapping[str, OptionType]:
    """What each option takes of a class whose module has a table of them."""
    found: Mapping[str, OptionType] = vars(sys.modules[called.__module__])["OWN"]
    return found


TABLES: Mapping[str, tuple[Callable[..., Any], Mapping[str, OptionType]]] = {
    "Consumer": (
        Consumer,
        {"store": STORE, "dead_letters": DEAD_LETTERS} | kinds_of(Options),
    ),
    "Consumer.run": (Consumer.run, kinds_of(RunOptions)),
    "RetryPolicy": (RetryPolicy, kinds_of(RetryPolicy)),
    "KafkaAdapter": (KafkaAdapter, {"bootstrap_servers": SERVERS} | kinds_of(KafkaOptions)),
    "KafkaDeadLetters": (
        KafkaDeadLetters,
        {"bootstrap_servers": SERVERS, **_own(KafkaDeadLetters)},
    ),
    "KafkaTransactions": (KafkaTransactions, _own(KafkaTransactions)),
    "KinesisAdapter": (KinesisAdapter, kinds_of(KinesisOptions)),
    "Connection of Kinesis": (KinesisConnection, kinds_of(KinesisConnection)),
    "PulsarAdapter": (PulsarAdapter, kinds_of(PulsarOptions)),
    "Connection of Pulsar": (PulsarConnection, kinds_of(PulsarConnection)),
    "PulsarDeadLetters": (PulsarDeadLetters, _own(PulsarDeadLetters)),
    "LocalStore": (LocalStore, SQLITE),
    "ZooKeeperStore": (ZooKeeperStore, ZOOKEEPER),
    "SchemaRegistry": (SchemaRegistry, kinds_of(SchemaRegistry)),
    "format": (PullSettings, kinds_of(PullSettings)),
    "feed": (FeedUrl, kinds_of(FeedUrl)),
    "[run]": (ProcessOptions, kinds_of(ProcessOptions)),
    "[admin]": (AdminOptions, kinds_of(AdminOptions)),
    "[telemetry]": (TelemetryOptions, kinds_of(TelemetryOptions)),
}
"""A table's name → what users call, and what each of its options takes."""


def table(called: Callable[..., Any], kinds: Mapping[str, OptionType]) -> str:
    """The rows, each with a line break at its end."""
    defaults, helps = _defaults(called), help_of(called)
    spelled = (
        {each: name for name, each in spelling_of(called).items()} if is_dataclass(called) else {}
    )
    shown = _shown_text if any(each != name for each, name in spelled.items()) else _shown
    rows = [
        f"| `{spelled.get(name, name)}` | {_cell(kinds[name].wanted)} | {shown(default, kinds[name])} | {_cell(helps[name])} |"
        for name, default in defaults.items()
        if name in kinds
    ]
    return "\n".join(["| option | takes | default | meaning |", "|---|---|---|---|", *rows, ""])


def written(text: str) -> str:
    """A document with its tables as they have to be."""
    return MARKED.sub(lambda found: found[1] + table(*TABLES[found[2]]) + found[3], text)


def pages() -> Iterable[Path]:
    """The documents that have tables."""
    return [page for page in sorted(DOCS.glob("*.md")) if MARKED.search(page.read_text("utf-8"))]


def _defaults(called: Callable[..., Any]) -> dict[str, Any]:
    given = inspect.signature(called).parameters.values()
    made = {
        each.name: each.default_factory()
        for each in (fields(called) if is_dataclass(called) else ())
        if each.default_factory is not MISSING
    }
    return {each.name: made.get(each.name, each.default) for each in given}


def _shown(default: Any, kind: OptionType) -> str:
    """A default for people; what has to be given has none."""
    if default is inspect.Parameter.empty:
        return ""
    if default is None or default in ((), {}):
        return "none"
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, Enum):
        return f'`"{default.value}"`'
    if isinstance(default, int | float):
        return _shown_number(default, kind)
    return f'`"{default}"`' if isinstance(default, str) else f"`{default}`"


def _shown_number(default: float, kind: OptionType) -> str:
    if kind.wanted.startswith("seconds"):
        return f"{default:g} s"
    if default >= MEBIBYTE and default % MEBIBYTE == 0:
        return f"{default / MEBIBYTE:g} MiB"
    return f"{default:,}".replace(",", " ")


def _shown_text(default: Any, kind: OptionType) -> str:
    """A default of an option that is given as text, such as Spark's."""
    if default is None:
        return "none"
    if kind.wanted == DURATION.wanted:
        return f"`{default / MINUTE:g}m`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", r"\|").removesuffix(".")


def main() -> int:
    """Write the tables, or with ``--check`` name the documents whose tables are stale; then 1."""
    stale = [
        page for page in pages() if written(page.read_text("utf-8")) != page.read_text("utf-8")
    ]
    for page in stale:
        if "--check" in sys.argv:
            sys.stderr.write(f"{page.name}: tables are stale: python scripts/option_tables.py\n")
        else:
            page.write_text(written(page.read_text("utf-8")), "utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
