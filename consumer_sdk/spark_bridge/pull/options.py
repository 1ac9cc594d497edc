"""What a pulling query was asked to do: Spark's options, read once and checked.

Either ``url``, or the option names of Spark's own Kafka source, so that a query that exists ports
by changing its format.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from consumer_sdk.spark_bridge.pull.admission import Limits
from consumer_sdk.spark_bridge.pull.planning import Sizing
from consumer_sdk.spark_bridge.pull.starts import Starts

if TYPE_CHECKING:
    from consumer_sdk.range_reads import RangeReader
    from consumer_sdk.spark_bridge.pull.kafka_options import KafkaSource

__all__ = ["AckMode", "PullOptions", "UrlSource"]

AckMode: TypeAlias = Literal["auto", "commit", "none"]


@dataclass(frozen=True, slots=True)
class UrlSource:
    """A ``kafka://`` or ``pulsar://`` URL, as `open_ranges` takes it.

    Attributes:
        shown: the URL without its query, for logs.
    """

    url: str = field(repr=False)
    shown: str

    @property
    def broker(self) -> str:
        """``"kafka"`` or ``"pulsar"``."""
        raise NotImplementedError

    def open_reader(self) -> RangeReader:
        """A reader that is not open yet; secrets are looked up now."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class PullOptions:
    """Everything that the options say; picklable, hashable, and its repr shows no secret.

    Attributes:
        source: what is read, and how it is connected to.
        group: whose position is moved; None for nobody's.
        starting: None where nothing was said.
        ending: likewise; for batch queries.
        fail_on_data_loss: raise `DataLossError` rather than go on.
        limits: of one micro-batch.
        sizing: of its tasks.
        columns: which, in which order; None for the usual ones: see `column_names`.
        include_headers: ``headers`` is one of the usual ones.
        store: the URL of a checkpoint store that is told too, or None.
        ack_mode: what moves the group's position; see the acks.
        strict_acks: a position that cannot be moved fails the query.
    """

    source: UrlSource | KafkaSource
    group: str | None = None
    starting: Starts | None = None
    ending: Starts | None = None
    fail_on_data_loss: bool = True
    limits: Limits = Limits()
    sizing: Sizing = Sizing()
    columns: tuple[str, ...] | None = None
    include_headers: bool = False
    store: str | None = None
    ack_mode: AckMode = "auto"
    strict_acks: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> PullOptions:
        """Reads Spark's options; the case of their names does not matter.

        Raises:
            ConfigurationError: an option is unknown or its value wrong; says what is allowed.
        """
        raise NotImplementedError

    @property
    def broker(self) -> str:
        """``"kafka"`` or ``"pulsar"``."""
        return self.source.broker

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the rows, in order; names of `spark_bridge.columns.COLUMNS`."""
        raise NotImplementedError

    @property
    def with_headers(self) -> bool:
        """Headers have to be read."""
        return "headers" in self.column_names

    def stream_starts(self) -> Starts:
        """Where a streaming query begins: at the latest records, unless told otherwise.

        Raises:
            ConfigurationError: the options name an end, which a stream does not have.
        """
        raise NotImplementedError

    def batch_bounds(self) -> tuple[Starts, Starts]:
        """Where a batch query begins and ends: all that there is, unless told otherwise.

        Raises:
            ConfigurationError: it would begin at the latest or end at the earliest record, or
                has limits of a trigger.
        """
        raise NotImplementedError

    def open_reader(self) -> RangeReader:
        """A reader for them, not open yet; looks up secrets that are named by ``env:``, ``file:``.

        Raises:
            ConfigurationError: a secret cannot be found, or the reader refuses an option.
            MissingExtraError: the broker's client is not installed.
        """
        return self.source.open_reader()

    def identity(self) -> Hashable:
        """Two options that may share a connection have equal ones, and no others."""
        return self.source
