"""Errors of the feed.

::

    ConsumerSdkError
    └── FeedError
        ├── TransientFeedError    the write failed in a way that may pass: try again
        ├── FeedFormatError       the directory's files are damaged or not a feed
        └── FeedRecordError       this record cannot be stored, however often it is tried
"""

from consumer_sdk.errors import ConsumerSdkError

__all__ = ["FeedError", "FeedFormatError", "FeedRecordError", "TransientFeedError"]


class FeedError(ConsumerSdkError):
    """A feed directory could not be written or read."""


class TransientFeedError(FeedError):
    """The file system refused a write (disk full, quota, I/O error): try again.

    No half segment is left. A record that did get stored after all is recognised by its position.
    """


class FeedFormatError(FeedError):
    """A manifest or segment is damaged or missing; names the file."""


class FeedRecordError(FeedError):
    """A record does not fit the feed's columns (no bytes, a timestamp out of range)."""
