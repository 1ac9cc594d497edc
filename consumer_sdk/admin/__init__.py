"""A running consumer's own small server: probes, metrics, a live page, and actions by hand.

It runs in the consumer's event loop, and costs nothing while there are no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.admin.application import app
    from consumer_sdk.admin.server import serve

__all__ = ["app", "serve"]

__getattr__ = lazy_names(
    __name__,
    {"app": "consumer_sdk.admin.application", "serve": "consumer_sdk.admin.server"},
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
