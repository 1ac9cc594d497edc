"""Finds out whether a subscription is new, by a property that the broker keeps with its cursor.

``start=`` is for new subscriptions, and several consumers may be opened before there is one. So the subscription is
made with the property `MARK`, which says where the topic ended just then. The consumer that is granted the
partition reads the property, seeks, and sets it to `BEGUN` before the first record comes out.

====================================  ==========================================================
the property                          the subscription
====================================  ==========================================================
``"ledger:entry"``                    is new: who made it was not granted it, or died just then
``"begun"``                           has a cursor that is to be followed
none                                  is somebody else's; followed, unless there was none when
                                      this consumer was opened: then it is new until one begins
====================================  ==========================================================
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.options import PulsarOptions
from consumer_sdk.errors import AdapterError, TransientAdapterError
from consumer_sdk.log_limits import REPEATS

__all__ = ["Beginning"]

log = logging.getLogger(__name__)

T = TypeVar("T")

MARK = "consumer_sdk.start"
BEGUN = "begun"

UNMARKED = (
    "%s: if several consumers of the new subscription %r are opened now, each of them may follow "
    "start= when it takes over"
)


class Beginning:
    """Whether the subscription of one partition is new.

    Attributes:
        is_new: no consumer has begun to read it; None if unknown.
        end: the end of the topic when the subscription was made, while it is new; None if unknown.

    Args:
        admin: the REST API; None: nothing is known.
        topic: not a partitioned one; may be a partition.
        is_discovered: the topic is newer than the adapter, and is read from its first record.

    Every method raises:

    Raises:
        AdapterError: the broker refuses, or does not answer.
    """

    def __init__(
        self, admin: Admin | None, topic: str, options: PulsarOptions, *, is_discovered: bool
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._options = options
        self._is_marked = not (options.is_queue or is_discovered)
        self._properties: Mapping[str, str] | None = None
        self.is_new: bool | None = None
        self.end: Place | None = None

    async def prepare(self) -> None:
        """Makes the subscription with its property, unless it exists. Call it before subscribing."""
        if self._admin is None:
            return
        name = self._options.subscription
        self.is_new = name not in await self._admin.subscriptions(self._topic)
        if self.is_new and self._is_marked:
            await self._make(self._admin)

    async def _make(self, admin: Admin) -> None:
        """If the answer says that it exists, this very request may have made it, and was repeated: `look` tells."""
        end = await self._if_allowed(admin.after_last(self._topic))
        if end is None:  # or there is no topic yet
            return
        options = self._options
        making = admin.make_subscription(
            self._topic,
            options.subscription,
            {MARK: f"{end[0]}:{end[1]}"},
            is_latest=options.initial_position == "latest",
            is_replicated=options.replicate_subscription_state_enabled,
        )
        if await self._if_allowed(making) is False:
            self.is_new = False

    async def look(self) -> None:
        """Reads the property again: another consumer may have begun since."""
        if self._admin is None or not self._is_marked:
            return
        name = self._options.subscription
        found = await self._if_allowed(self._admin.properties(self._topic, name))
        self._properties = found
        mark = None if found is None else found.get(MARK)
        if mark is not None:
            self.is_new, self.end = mark != BEGUN, _place_in(mark)

    async def begun(self) -> None:
        """Sets the property to `BEGUN`; returns when the broker has stored it."""
        found = self._properties
        if self._admin is not None and self.is_new and found is not None:
            changed = {**found, MARK: BEGUN}
            name = self._options.subscription
            if not await self._admin.set_properties(self._topic, name, changed):
                raise TransientAdapterError(f"{self._topic} has no subscription {name!r} any more")
        self.is_new = self._is_marked = False
        self.end = None

    async def _if_allowed(self, asking: Awaitable[T]) -> T | None:
        """The answer; None if the admin API's role may not ask: then no property is used."""
        try:
            return await asking
        except TransientAdapterError:
            raise
        except AdapterError as error:
            self._is_marked = False
            if self.is_new:
                log.warning(UNMARKED, error, self._options.subscription, extra=REPEATS)
            return None


def _place_in(mark: str) -> Place | None:
    ledger, _, entry = mark.partition(":")
    return (int(ledger), int(entry), 0) if ledger.isdecimal() and entry.isdecimal() else None
