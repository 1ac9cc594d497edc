"""The rules that every request has to meet before it is answered.

Any site that a user has open can send requests to a page on 127.0.0.1, so none of the rules relies on the network.
These are refused:

- a request for another host's name, since an attacker's DNS may lead that name here (421);
- a change without the header `HEADER`, which forms cannot send, or from another origin (403);
- a request by another site's page, but not a link to here (403);
- with a token, a request that does not show it (401).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Collection
from urllib.parse import urlsplit

from consumer_sdk.errors import MissingExtraError

try:
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.responses import JSONResponse, Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as _error:
    raise MissingExtraError("starlette", "admin") from _error

__all__ = ["HEADER", "Guard", "Key", "refusal"]

HEADER = "x-consumer-sdk"
"""The header that every POST has to have: another site's form cannot send it, and its script may not."""
COOKIE = "consumer_sdk"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def refusal(status: int, why: str, **headers: str) -> JSONResponse:
    """``{"error": why}``."""
    return JSONResponse(
        {"error": why}, status, {k.replace("_", "-"): v for k, v in headers.items()}
    )


class Key:
    """A token, and the cookie that stands for it while this process lives.

    Attributes:
        name: of the cookie. Browsers send the cookies of all ports of a host to each of them, so that
            two servers with one name would log each other's people out.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.name = f"{COOKIE}_{secrets.token_hex(4)}"
        self._cookie = hmac.new(secrets.token_bytes(32), self._token, hashlib.sha256).hexdigest()

    @property
    def cookie(self) -> str:
        """The value of the cookie."""
        return self._cookie

    def is_token(self, given: str) -> bool:
        """Whether a text is the token; compared in constant time."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def opens(self, headers: Headers) -> bool:
        """Whether a request shows the token, or the cookie."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        return any(
            hmac.compare_digest(value.encode(), self._cookie.encode())
            for header in headers.getlist("cookie")
            for value in _cookies(header, self.name)
        )


def _cookies(header: str, name: str) -> list[str]:
    """The values of a cookie, whatever others' cookies look like."""
    pairs = (each.strip().partition("=") for each in header.split(";"))
    return [value for found, _, value in pairs if found == name]


class Guard:
    """The rules around an application.

    Args:
        key: None: no token is asked for.
        hosts: names by which this may be asked, beside localhost and addresses; None for any.
        is_open: paths that need no token.
        probes: paths that are asked by any name: whoever probes this has its own.
        door: what answers a browser that has no token yet.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        key: Key | None,
        hosts: Collection[str] | None,
        is_open: Collection[str],
        probes: Collection[str],
        door: ASGIApp,
    ) -> None:
        self._app = app
        self._key = key
        self._hosts = None if hosts is None else {name.lower() for name in hosts}
        self._is_open = is_open
        self._probes = probes
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses a request, or passes it to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers[name] = value
            await send(message)

        answer = self._refused(scope) or self._app
        await answer(scope, receive, with_headers)

    def _refused(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path not in self._probes and not self._knows(headers.get("host", "")):
            return refusal(
                421,
                f"nobody is called {headers.get('host', '')!r} here; ask by address, or give "
                "hosts=[…] to the admin server",
            )
        if scope["method"] not in {"GET", "HEAD"} and (why := _forged(headers)):
            return refusal(403, why)
        if _is_foreign(headers):
            return refusal(403, "another site's page asks for this")
        if self._key is None or path in self._is_open or self._key.opens(headers):
            return None
        return self._door if path == "/" and scope["method"] == "GET" else _unknown()

    def _knows(self, host: str) -> bool:
        if self._hosts is None:
            return True
        name = (urlsplit(f"//{host}").hostname or "") if _is_host(host) else ""
        return name == "localhost" or name in self._hosts or _is_address(name)


def _forged(headers: Headers) -> str | None:
    if HEADER not in headers:
        return f"a POST needs the header {HEADER}: 1, which another site's form cannot send"
    origin = headers.get("origin")
    if origin is not None and _host_of(origin) != headers.get("host", "").lower():
        return f"{origin} is another site"
    return None


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _is_foreign(headers: Headers) -> bool:
    """Whether another site's page asks, as browsers say. A person who follows a link from there is let in."""
    is_cross = headers.get("sec-fetch-site") == "cross-site"
    return is_cross and headers.get("sec-fetch-dest") != "document"


def _unknown() -> Response:
    return refusal(
        401,
        "the token is missing or wrong; send Authorization: Bearer …",
        www_authenticate="Bearer",
    )


def _is_host(host: str) -> bool:
    try:
        urlsplit(f"//{host}").port  # noqa: B018 - raises where it is none
    except ValueError:
        return False
    return not set(host) & set("/?#@\\ ")


def _is_address(name: str) -> bool:
    """Whether a host is a literal IP address: an attacker's DNS cannot lead it anywhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
