"""Dead letters in this process's memory, for tests and simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from consumer_sdk.abc import DeadLetters
from consumer_sdk.errors import ConsumerSdkError, StoreError, TransientStoreError
from consumer_sdk.records import DeadLetter, Outcome
from consumer_sdk.testing.faults import Seam

__all__ = ["MemoryDeadLetters"]


@final
class MemoryDeadLetters(DeadLetters):
    """Dead letters in a list. Loses them with the process. Several consumers may share one.

    Args:
        faults: fails, delays and cancels `send` at the seam ``"dead_letter"``, before or after its
            effect. A letter whose reply was lost is there twice after it was sent again.

    Attributes:
        letters: all of them, in the order in which they came.
    """

    def __init__(self, *, faults: Seam | None = None) -> None:
        self._faults = faults
        self.letters: list[DeadLetter] = []

    async def open(self) -> None:
        """Does nothing: memory is there."""

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """Keeps them; one outcome for each, all of them DURABLE or all RETRY."""

        async def keep() -> None:
            self.letters.extend(letters)

        try:
            await (keep() if self._faults is None else self._faults.around("dead_letter", keep))
        except ConsumerSdkError as error:
            return [Outcome.retry(_as_store_error(error)) for _ in letters]
        return [Outcome.durable() for _ in letters]

    async def aclose(self) -> None:
        """Does nothing, so that others may go on."""


def _as_store_error(error: ConsumerSdkError) -> StoreError:
    if isinstance(error, StoreError):
        return error
    translated = TransientStoreError(f"dead_letter: {error}")
    translated.__cause__ = error
    return translated
