"""The client's errors, made by the client itself from answers of a server, as the SDK's."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from botocore import exceptions as client

from consumer_sdk.adapters.kinesis.service.service import (
    IteratorExpiredError,
    ShardGoneError,
    SubscriptionBusyError,
    ThrottledError,
)
from consumer_sdk.adapters.kinesis.service.translation import readable, refusal, translate
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from tests.adapters.kinesis.answering import Answer, answering, error, opened

Kind = type[AdapterError | ConfigurationError]

CODES = [
    ("ProvisionedThroughputExceededException", ThrottledError, ""),
    ("LimitExceededException", ThrottledError, ""),
    ("KMSThrottlingException", ThrottledError, ""),
    ("ThrottlingException", ThrottledError, ""),
    ("ExpiredIteratorException", IteratorExpiredError, ""),
    ("ResourceNotFoundException", ShardGoneError, "does not exist"),
    ("ResourceInUseException", SubscriptionBusyError, ""),
    ("ValidationException", AdapterError, ""),
    ("InvalidArgumentException", IteratorExpiredError, ""),
    ("AccessDeniedException", AdapterError, "IAM"),
    ("UnrecognizedClientException", AdapterError, "access key"),
    ("InvalidSignatureException", AdapterError, "clock"),
    ("ExpiredTokenException", AdapterError, "get another"),
    ("KMSDisabledException", AdapterError, "KMS"),
    ("KMSAccessDeniedException", AdapterError, "KMS"),
    ("NobodyKnowsException", AdapterError, ""),
]


async def refused(*answers: Answer) -> tuple[BaseException, int]:
    """What comes of a GetRecords that is answered so, and how many requests that took."""
    async with answering() as server, opened(server.url) as service:
        server.on("GetRecords", *answers)
        with pytest.raises(AdapterError) as caught:
            await service.records("iterator", 10)
        return caught.value, server.count("GetRecords")


@pytest.mark.parametrize("code, kind, advice", CODES)
async def test_a_code_of_the_service_becomes_its_error(
    code: str, kind: type[AdapterError], advice: str
) -> None:
    """Its type says whether trying again helps, its text what was done, the code, what to do."""
    found, _ = await refused(error(code, "the reason"))
    assert type(found) is kind
    assert f"reading stream 'orders': {code}: the reason" in str(found)
    assert advice in str(found)
    assert isinstance(found.__cause__, client.ClientError)


@pytest.mark.parametrize(
    "answer",
    [
        error("InternalFailure", status=500),
        error("InternalFailureException", status=500),
        error("ServiceUnavailable", status=503),
        error("NobodyKnowsException", status=500),
        error("NobodyKnowsException", status=429),
        (500, b"<html>oh</html>"),
        (502, b""),
        (200, b"<html>a proxy's page</html>"),
        (200, b""),
    ],
)
async def test_a_failure_of_the_server_may_pass(answer: Answer) -> None:
    """Kinesis trap 25: an internal failure, whatever its body is."""
    found, _ = await refused(answer)
    assert type(found) is TransientAdapterError


@pytest.mark.parametrize(
    "answer",
    [
        error("ProvisionedThroughputExceededException"),
        error("InternalFailure", status=500),
    ],
)
async def test_one_refused_call_is_one_request(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinesis trap 22: the client's own retries are off, also where the environment wants some."""
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "5")
    _, requests = await refused(answer)
    assert requests == 1


@pytest.mark.parametrize(
    "foreign, kind, advice",
    [
        (client.NoRegionError(), ConfigurationError, "region_name="),
        (client.NoCredentialsError(), ConfigurationError, "aws_access_key_id="),
        (client.ProfileNotFound(profile="x"), ConfigurationError, "profile="),
        (client.ParamValidationError(report="x"), ConfigurationError, "does not accept"),
        (client.SSOTokenLoadError(error_msg="x"), AdapterError, "log in"),
        (client.SSLError(endpoint_url="x", error="y"), AdapterError, "verify="),
        (client.EndpointConnectionError(endpoint_url="x"), TransientAdapterError, ""),
        (client.ConnectTimeoutError(endpoint_url="x"), TransientAdapterError, ""),
        (client.ReadTimeoutError(endpoint_url="x"), TransientAdapterError, ""),
        (client.ConnectionClosedError(endpoint_url="x"), TransientAdapterError, ""),
        (client.CredentialRetrievalError(provider="x", error_msg="y"), TransientAdapterError, ""),
        (client.UnknownSignatureVersionError(signature_version="x"), AdapterError, ""),
        (TimeoutError(), TransientAdapterError, "TimeoutError"),
        (ConnectionResetError("gone"), TransientAdapterError, "gone"),
    ],
)
def test_an_error_of_the_client_becomes_one_that_says_what_to_do(
    foreign: Exception, kind: Kind, advice: str
) -> None:
    """What can be set right is told apart from what may pass; the cause is kept."""
    found = translate(foreign, "doing it")
    assert type(found) is kind
    assert str(found).startswith("doing it: ")
    assert advice in str(found)
    assert found.__cause__ is foreign


def test_a_code_may_mean_something_else_in_one_operation() -> None:
    """What the caller says goes before the table."""
    found = refusal(
        "InvalidArgumentException", "", "doing it", {"InvalidArgumentException": OwnError}
    )
    assert type(found) is OwnError
    assert str(found) == "doing it: InvalidArgumentException"


@pytest.mark.parametrize("status", [400, 403, 404, 408, 413, 425, 429, 499, 500, 503])
def test_unknown_code_may_pass_where_its_status_says_so(status: int) -> None:
    """As botocore tells; a code that is the status itself comes from a proxy, and may pass too."""
    may_pass = status in {408, 413, 425, 429, 500, 503}
    found = refusal("NobodyKnows", "why", "doing it", status=status)
    assert type(found) is (TransientAdapterError if may_pass else AdapterError)
    assert str(found) == "doing it: NobodyKnows: why"
    assert type(refusal(str(status), "", "doing it", status=status)) is TransientAdapterError


def test_known_code_is_what_it_is_whatever_its_status() -> None:
    """Also where the caller knows of other codes; without a status it is the caller's fault."""
    for faults in (None, {"Another": OwnError}):
        found = refusal("AccessDenied", "no.", "doing it", faults, status=503)
        assert type(found) is AdapterError
        assert str(found).startswith("doing it: AccessDenied: no; allow")
    assert type(refusal("NobodyKnows", "", "doing it")) is AdapterError


@pytest.mark.parametrize(
    "answer, kind, text",
    [
        ({}, TransientAdapterError, "doing it: 400"),
        ({"Error": {}}, TransientAdapterError, "doing it: 400"),
        ({"Error": {"Code": "Odd", "Message": "why"}}, AdapterError, "doing it: Odd: why"),
        (
            {"Error": {"Code": "Odd"}, "ResponseMetadata": {"HTTPStatusCode": 500}},
            TransientAdapterError,
            "doing it: Odd",
        ),
        (
            {"ResponseMetadata": {"HTTPStatusCode": 403}},
            TransientAdapterError,
            "doing it: 403",
        ),
    ],
)
def test_answer_that_has_not_all_of_an_error_is_one(answer: Any, kind: Kind, text: str) -> None:
    """A proxy may have made it."""
    found = translate(client.ClientError(answer, "GetRecords"), "doing it")
    assert (type(found), str(found)) == (kind, text)


@pytest.mark.parametrize(
    "error, text",
    [
        (KeyError("Records"), "no 'Records' in it"),
        (IndexError("out"), "out"),
        (RecursionError("deep"), "deep"),
        (ValueError("odd"), "odd"),
        (TypeError("kind"), "kind"),
        (AttributeError("name"), "name"),
    ],
)
def test_answer_that_cannot_be_read_may_come_again(error: Exception, text: str) -> None:
    """It is said what was wrong with it."""
    with pytest.raises(TransientAdapterError) as caught, readable("doing it"):
        raise error
    assert str(caught.value) == f"doing it: the answer cannot be read: {text}"
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("a ValueError too"),
        client.ParamValidationError(report="x"),
        client.ClientError({}, "GetRecords"),
        aiohttp.InvalidURL("x"),
        OSError("gone"),
        ZeroDivisionError("a defect"),
    ],
)
def test_other_errors_of_reading_an_answer_fly_unchanged(error: Exception) -> None:
    """Those of the client are translated by whoever asks; defects are to be seen."""
    with pytest.raises(type(error)) as caught, readable("doing it"):
        raise error
    assert caught.value is error


class OwnError(AdapterError):
    """An error of this test."""
