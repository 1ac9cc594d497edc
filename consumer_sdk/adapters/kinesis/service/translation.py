"""The client's errors as the SDK's, translated once, with the cause kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from consumer_sdk.adapters.kinesis import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiohttp import ClientError as HttpError
from botocore import exceptions as client
from botocore.eventstream import ParserError
from botocore.parsers import ResponseParserError

from consumer_sdk.adapters.kinesis.service.service import (
    IteratorExpiredError,
    ShardGoneError,
    SubscriptionBusyError,
    ThrottledError,
)
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    TransientAdapterError,
)

__all__ = ["Faults", "readable", "refusal", "translate"]

Faults = Mapping[str, type[ConsumerSdkError]]
"""What a code of the service means in one operation, where that is not what it means elsewhere."""

PERMISSIONS = "allow this principal the operation on the stream, in IAM"
CREDENTIALS = "check the access key, the secret, the session token, and this machine's clock"
ENCRYPTION = "the key that encrypts the stream cannot be used: look at it in KMS"

CODES: Mapping[str, tuple[type[ConsumerSdkError], str]] = {
    "ProvisionedThroughputExceededException": (ThrottledError, ""),
    "LimitExceededException": (ThrottledError, ""),
    "KMSThrottlingException": (ThrottledError, ""),
    "ThrottlingException": (ThrottledError, ""),
    **dict.fromkeys(
        (
            "BandwidthLimitExceeded",
            "EC2ThrottledException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestThrottledException",
            "SlowDown",
            "ThrottledException",
            "Throttling",
            "TooManyRequestsException",
        ),
        (ThrottledError, ""),
    ),
    "ExpiredIteratorException": (IteratorExpiredError, ""),
    "ResourceNotFoundException": (ShardGoneError, "the stream, or the shard, does not exist"),
    "ResourceInUseException": (SubscriptionBusyError, ""),
    "InternalFailureException": (TransientAdapterError, ""),
    "InternalFailure": (TransientAdapterError, ""),
    "ServiceUnavailable": (TransientAdapterError, ""),
    "PriorRequestNotComplete": (TransientAdapterError, ""),
    "RequestTimeout": (TransientAdapterError, ""),
    "RequestTimeoutException": (TransientAdapterError, ""),
    "TransactionInProgressException": (TransientAdapterError, ""),
    "AccessDeniedException": (AdapterError, PERMISSIONS),
    "AccessDenied": (AdapterError, PERMISSIONS),
    "UnrecognizedClientException": (AdapterError, CREDENTIALS),
    "InvalidClientTokenId": (AdapterError, CREDENTIALS),
    "InvalidSignatureException": (AdapterError, CREDENTIALS),
    "IncompleteSignature": (AdapterError, CREDENTIALS),
    "SignatureDoesNotMatch": (AdapterError, CREDENTIALS),
    "MissingAuthenticationTokenException": (AdapterError, CREDENTIALS),
    "ExpiredTokenException": (AdapterError, "the session token has expired: get another"),
    "OptInRequired": (AdapterError, "subscribe this account to Kinesis"),
    "KMSAccessDeniedException": (AdapterError, ENCRYPTION),
    "KMSDisabledException": (AdapterError, ENCRYPTION),
    "KMSInvalidStateException": (AdapterError, ENCRYPTION),
    "KMSNotFoundException": (AdapterError, ENCRYPTION),
    "KMSOptInRequired": (AdapterError, ENCRYPTION),
}
"""What the service's codes mean, and what to do where trying again does not help.

All that botocore's own retries would try again (`botocore.retries.standard`) may pass.
"""

PASSING = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
}
"""Beside those of 500 and above."""

Advice = tuple[tuple[type[BaseException], ...], type[ConsumerSdkError], str]

KINDS: tuple[Advice, ...] = (
    (
        (client.NoRegionError,),
        ConfigurationError,
        "give region_name=, or set AWS_DEFAULT_REGION",
    ),
    (
        (client.NoCredentialsError, client.PartialCredentialsError),
        ConfigurationError,
        "give aws_access_key_id= and aws_secret_access_key=, or profile=, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (
        (client.ProfileNotFound, client.ConfigParseError, client.InvalidConfigError),
        ConfigurationError,
        "look at the profile in AWS's configuration files (AWS_CONFIG_FILE), or give another profile=",
    ),
    (
        (client.InvalidRegionError, client.UnknownEndpointError, client.EndpointVariantError),
        ConfigurationError,
        "give another region_name=",
    ),
    (
        (client.ParamValidationError, client.ValidationError),
        ConfigurationError,
        "the client does not accept this",
    ),
    (
        (client.SSOError, client.LoginError, client.TokenRetrievalError),
        AdapterError,
        "log in again, such as with: aws sso login",
    ),
    (
        (client.SSLError,),
        AdapterError,
        "give verify= the file of the authority's certificates, or endpoint_url=http://… if the server has no TLS",
    ),
    (
        (
            client.HTTPClientError,
            client.ConnectionError,
            client.CredentialRetrievalError,
            client.MetadataRetrievalError,
            client.IncompleteReadError,
            ResponseParserError,
            ParserError,
            HttpError,
            OSError,
            TimeoutError,
        ),
        TransientAdapterError,
        "",
    ),
)
"""What the client's own errors mean, and what to do; the first that fits."""

UNREADABLE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What the client's parser, and ours, raise where an answer is not of the form that it should have."""

FOREIGN = (client.BotoCoreError, client.ClientError, *KINDS[-1][0])
"""All that the client raises on purpose; anything else flies unchanged."""


def translate(error: BaseException, doing: str, faults: Faults | None = None) -> ConsumerSdkError:
    """The SDK's error for one of the client's.

    Args:
        doing: what was being done, and to what; the message starts with it.
        faults: what codes mean here.
    """
    if isinstance(error, client.ClientError):
        found = _answered(error.response, doing, faults)
    else:
        found = _of_kind(error, doing)
    found.__cause__ = error
    return found


def refusal(
    code: str, message: str, doing: str, faults: Faults | None = None, *, status: int = 400
) -> ConsumerSdkError:
    """The SDK's error for an error code of the service.

    Args:
        status: of the HTTP answer; where the code is not known, a failure of the server may pass.
            So may an answer without a code, which the client gives its status for one: the service
            itself always has a code, so that this came from a proxy.
    """
    may_pass = (
        status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in PASSING or code == str(status)
    )
    unknown = TransientAdapterError if may_pass else AdapterError
    kind, advice = CODES.get(code, (unknown, ""))
    if faults and code in faults:
        kind, advice = faults[code], ""
    return kind(_sentence(f"{doing}: {code}: {message}", advice))


@contextmanager
def readable(doing: str) -> Iterator[None]:
    """For whatever reads an answer.

    Raises:
        TransientAdapterError: it is not of the form that it should have; some proxy may have
            answered.
    """
    try:
        yield
    except (ConsumerSdkError, *FOREIGN):  # some are value errors too
        raise
    except UNREADABLE as error:
        what = f"no {error} in it" if isinstance(error, KeyError) else str(error)
        raise TransientAdapterError(f"{doing}: the answer cannot be read: {what}") from error


def _answered(response: Mapping[str, Any], doing: str, faults: Faults | None) -> ConsumerSdkError:
    found = response.get("Error", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    code, message = str(found.get("Code", status)), str(found.get("Message", ""))
    return refusal(code, message, doing, faults, status=status)


def _of_kind(error: BaseException, doing: str) -> ConsumerSdkError:
    text = f"{doing}: {str(error) or type(error).__name__}"
    for kinds, ours, advice in KINDS:
        if isinstance(error, kinds):
            return ours(_sentence(text, advice))
    return AdapterError(text)


def _sentence(text: str, advice: str) -> str:
    text = text.strip().rstrip(":.")
    return f"{text}; {advice}" if advice else text
