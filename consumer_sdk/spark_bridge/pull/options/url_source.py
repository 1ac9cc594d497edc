"""A broker's URL as what is read, with secrets that are only named in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from consumer_sdk.adapters.urls import split_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.options.option_values import secret

if TYPE_CHECKING:
    from consumer_sdk.range_reads import RangeReader

__all__ = ["UrlSource"]

BROKERS = {"kafka": "kafka", "pulsar": "pulsar", "pulsar+ssl": "pulsar"}
GROUPS = {"kafka": "group", "pulsar": "subscription"}
"""The option of a URL that names whose position is moved."""
FORM = "give kafka://host:port/topic?group=name, pulsar://host:port/topic or feed:///directory"
WAITS = {"kafka": ("connect_timeout", "read_timeout"), "pulsar": ("stall_timeout",)}
"""Options of a URL that say how many seconds a task waits for the broker."""
SECRETS = ("sasl_plain_username", "sasl_plain_password", "token", "admin_token")
"""Options of a URL that may name a secret instead: ``token=env:TOKEN``."""


@dataclass(frozen=True, slots=True)
class UrlSource:
    """A ``kafka://`` or ``pulsar://`` URL, as `open_ranges` takes it.

    Attributes:
        url: with its secrets as they were given.
        shown: the URL without its options, for logs.
        broker: ``"kafka"`` or ``"pulsar"``.
        group: whose position is moved, or None.
    """

    url: str = field(repr=False)
    shown: str
    broker: str
    group: str | None

    @classmethod
    def parse(cls, url: str, group: str | None) -> UrlSource:
        """Reads a URL; ``group`` is what the option says, and goes into it.

        Raises:
            ConfigurationError: it is malformed, or of another scheme; or names another group.
        """
        shown = url.partition("?")[0].rpartition("@")[2]
        if shown.startswith("kinesis:"):
            raise ConfigurationError(
                f"url={shown!r}: Spark cannot pull from Kinesis, whose records have no numbers: "
                f"run a consumer that feeds a directory (SparkFeed), and read feed://"
            )
        parts, texts = split_url(url, BROKERS, FORM)
        broker = BROKERS[parts.scheme]
        name = GROUPS[broker]
        if group is not None and texts.setdefault(name, group) != group:
            raise ConfigurationError(
                f"group={group!r}, but the URL has {name}={texts[name]!r}: give one of them"
            )
        return cls(_with(parts, texts), shown, broker, texts.get(name))

    def for_tasks(self, outage: float | None = None) -> UrlSource:
        """The same without the group, which tasks have no business with.

        Nor do they need topics that are not theirs: one may be gone, and others are still read.

        Args:
            outage: how many seconds they wait for the broker; None for as long as it says itself.
        """
        parts, texts = _parts(self.url)
        texts.pop(GROUPS[self.broker], None)
        for name in WAITS[self.broker] if outage is not None else ():
            texts[name] = str(max(outage or 0, float(texts.get(name, 0))))
        if self.broker == "kafka":
            texts["require_topics"] = "false"
        return replace(self, url=_with(parts, texts), group=None)

    def open_reader(self) -> RangeReader:
        """A reader that is not open yet; secrets are looked up now.

        Raises:
            ConfigurationError: a secret cannot be found, or an option is wrong.
            MissingExtraError: the broker's client is not installed.
        """
        from consumer_sdk.adapters.ranges import open_ranges

        return open_ranges(self.resolved())

    def resolved(self) -> str:
        """The URL with the secrets themselves.

        Raises:
            ConfigurationError: a secret cannot be found.
        """
        parts, texts = _parts(self.url)
        found = {name: secret(name, text) for name, text in texts.items() if name in SECRETS}
        return _with(parts, texts | found)


def _parts(url: str) -> tuple[SplitResult, dict[str, str]]:
    parts = urlsplit(url)
    return parts, dict(parse_qsl(parts.query, keep_blank_values=True))


def _with(parts: SplitResult, texts: Mapping[str, str]) -> str:
    return parts._replace(query=urlencode(texts)).geturl()
