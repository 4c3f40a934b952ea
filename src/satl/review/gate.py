"""Who may talk to the review page: one person, from this machine, through the page itself.

The printed address carries a token that works once and is exchanged for a cookie no script can read. Every
other request needs that cookie. Against web pages that the same browser has open at the same time:

* a foreign ``Host`` is refused, so a name that is made to point here (DNS rebinding) reaches nothing;
* a request that another site or another port started is refused by ``Sec-Fetch-Site``;
* what changes something needs an ``Origin`` that is this very address, JSON, and a header that no form can send;
* the cookie is ``SameSite=Strict``, the page cannot be framed, and its policy lets it load only from here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from h11 import LocalProtocolError

from satl.review.database import ReviewStore

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-satl-review"
LARGEST_BODY = 1 << 20
_TOO_MUCH = (413, "That is too much at once.")
_DIGITS = 20
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:36em;"
    "margin:18vh auto 0;padding:0 20px}h1{font-size:22px}code{font-size:15px}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' 'sha256-{_STYLE_HASH}'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SAFE_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Gate:
    """Tokens, cookies and the rules above, around an ASGI application.

    Args:
        app: the application behind the gate.
        store: remembers signed-in browsers, as digests of their cookies.
        host: the address that the server is bound to; its name is allowed beside those of loopback.
        opened: called with a fresh token whenever the last one was used.
    """

    def __init__(
        self, app: ASGIApp, store: ReviewStore, host: str, opened: Callable[[str], object] | None = None
    ) -> None:
        self._app = app
        self._store = store
        self._hosts = LOOPBACK | {f"[{host}]" if ":" in host else host.lower()}
        self._opened = opened
        # Cookies are shared by all ports of a host, so two reviews at a time need two names.
        self.cookie = f"satl_review_{store.meta('id')}"
        self.token = secrets.token_urlsafe(32)
        self._seen: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, sign a browser in, or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method, path = scope["method"], scope["path"]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                extra = {"cache-control": "no-store", **SAFE_HEADERS}
                added = [(k.encode(), v.encode()) for k, v in extra.items() if k.encode() not in given]
                message = {**message, "headers": [*message["headers"], *added]}
            try:
                await send(message)
            except LocalProtocolError:
                # The body turned out to be no HTTP: it has been refused already, and its connection is being closed.
                while (await receive())["type"] != "http.disconnect":
                    pass

        refusal = self._refusal(method, path, headers)
        if refusal is not None:
            await _answer(guarded, path, *refusal)
        elif self._signed_in(headers):
            # The token has no use any more and leaves the address bar; a used one harms nobody.
            if path == "/" and scope["query_string"]:
                await _forward(guarded, [])
            elif (whole := await _whole_body(receive)) is None:
                await _answer(guarded, path, *_TOO_MUCH)
            else:
                await self._app(scope, whole, guarded)
        elif method == "GET" and path == "/" and self._redeem(scope["query_string"]):
            await _forward(guarded, [self._sign_in()])
        else:
            await _answer(
                guarded,
                path,
                403,
                "This browser is not signed in: open the address that was printed last. "
                "Each address works once.",
            )

    def _refusal(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "").lower()
        name = host.rpartition(":")[0] if _is_number(host.rpartition(":")[2]) else host
        if name not in self._hosts:
            return 421, "This server does not answer to that name."
        site = headers.get("sec-fetch-site", "same-origin")
        # A link may lead here from anywhere; the cookie does not come along, a token does.
        arriving = method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not arriving:
            return 403, "Another web page may not ask here."
        if method == "GET":
            return None
        if method != "POST":
            return 405, "There is nothing to do here in that way."
        if headers.get("origin") != f"http://{host}" or headers.get(HEADER) != "1":
            return 403, "Only the review page itself may change something."
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "Send JSON."
        length = headers.get("content-length", "")
        if not _is_number(length) or "transfer-encoding" in headers:
            return 411, "Say how long the request is."
        if len(length) > _DIGITS or int(length) > LARGEST_BODY:
            return _TOO_MUCH
        return None

    def _signed_in(self, headers: dict[str, str]) -> bool:
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        if morsel is None or not morsel.value:
            return False
        digest = _digest(morsel.value)
        if digest not in self._seen and self._store.has_session(digest):
            self._seen.add(digest)
        return digest in self._seen

    def _redeem(self, query: bytes) -> bool:
        given = parse_qs(query.decode("latin-1")).get("token", [""])[0]
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return False
        self.token = secrets.token_urlsafe(32)
        if self._opened is not None:
            self._opened(self.token)
        return True

    def _sign_in(self) -> tuple[str, str]:
        secret = secrets.token_urlsafe(32)
        self._store.add_session(_digest(secret))
        return "set-cookie", f"{self.cookie}={secret}; Path=/; HttpOnly; SameSite=Strict"


async def _whole_body(receive: Receive) -> Receive | None:
    """Return what hands out the body of a request, or None if it is too long, whatever its header said."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            break  # the browser is gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST_BODY:
            return None
        if not message.get("more_body", False):
            break
    waiting = [b"".join(parts)]

    async def whole() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return whole


def _is_number(text: str) -> bool:
    """Whether a header holds plain digits; ``isdigit`` alone takes a superscript two, which is no number.

    >>> _is_number("80"), _is_number("\u00b2"), _is_number("")
    (True, False, False)
    """
    return text.isascii() and text.isdigit()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


async def _forward(send: Send, headers: list[tuple[str, str]]) -> None:
    # Not a redirect: after a link from elsewhere the browser would follow it without the strict cookie.
    page = (
        '<!doctype html><html lang="en"><title>satl review</title><link rel="icon" href="/static/icon.svg">'
        '<meta http-equiv="refresh" content="0; url=/"></html>'
    )
    await _send(send, 200, "text/html; charset=utf-8", page, headers)


async def _answer(send: Send, path: str, status: int, sentence: str) -> None:
    if path == "/":
        page = (
            '<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">'
            f"<title>satl review</title><style>{_STYLE}</style><h1>satl review</h1><p>{sentence}</p></html>"
        )
        await _send(send, status, "text/html; charset=utf-8", page, [])
    else:
        await _send(send, status, "application/json", json.dumps({"error": sentence}), [])


async def _send(send: Send, status: int, kind: str, body: str, headers: list[tuple[str, str]]) -> None:
    content = body.encode()
    sent = [("content-type", kind), ("content-length", str(len(content))), *headers]
    encoded = [(name.encode(), value.encode()) for name, value in sent]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": content})
