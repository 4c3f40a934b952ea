"""Run the review page: bind an address of this machine, print where it is, serve until it is stopped."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from satl.errors import Argument, ConfigError, SatlError, Sentence, Wording
from satl.review.annotators import annotator_name
from satl.review.database import ReviewStore
from satl.review.served_images import open_review_images

if TYPE_CHECKING:
    import uvicorn

    from satl.review.gate import Gate

PORT = 8484
"""Tried first, so that a page which is open finds the server again after a restart."""


def bind(host: str, port: int | None) -> socket.socket:
    """Return a listening socket on ``host``; without ``port`` the usual one, or any free one if that is taken.

    >>> with bind("127.0.0.1", 0) as listening:
    ...     listening.getsockname()[0]
    '127.0.0.1'
    """
    if host in ("0.0.0.0", "::", ""):
        raise ConfigError(
            "would listen on every network",
            where=Argument("host", host),
            remedy="name the one address of this machine to use, such as 192.168.1.20",
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise ConfigError(
            "is not an address of this machine",
            where=Argument("host", host),
            remedy="leave it out for 127.0.0.1",
        ) from None
    for candidate in (PORT, 0) if port is None else (port,):
        listening = socket.socket(family, kind, protocol)
        # Without it the port of a server that was killed stays taken for a minute.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address[0], candidate, *address[2:]))
            listening.listen(128)
            return listening
        except OSError as error:
            listening.close()
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(
                    f"cannot be used with port {candidate} ({error.strerror})",
                    where=Argument("host", host),
                    remedy=Sentence(
                        "leave {host} out for 127.0.0.1, and {port} for a free one",
                        host=Argument("host"),
                        port=Argument("port"),
                    ),
                ) from None
    raise ConfigError(
        "is taken by another program", where=Argument("port", port), remedy="leave it out to get a free one"
    )


def serve(
    out: str | Path,
    images: Path | None,
    host: str,
    port: int | None,
    ready: Callable[[str, int], object],
    opened: Callable[[str], object],
    words: Wording = str,
    *,
    annotator: str | None = None,
    ask_name: bool = False,
) -> None:
    """Serve the review of ``out`` until a signal ends it.

    Args:
        ready: called with the address to open and the number of suggestions, before the first request.
        opened: called with the address for a further browser, when the last one was used.
        words: how errors word arguments and tasks on the page.
        annotator: whose decisions these are; None lets people name themselves on the page.
        ask_name: let nobody decide without a name.

    Raises:
        SatlError: the extra ``web`` is not installed, or the folder, the images or the address are wrong.
    """
    try:
        import uvicorn

        from satl.review.server import create_app
    except ModuleNotFoundError as error:
        raise SatlError(
            f"the review needs the package '{error.name}'",
            remedy="install it with `pip install 'satl[web]'`",
        ) from None
    name = _checked_name(annotator)
    with ReviewStore(out) as store, bind(host, port) as listening:
        suggestions = store.refresh()
        shown_images = open_review_images(store.folder.path, store.overview().get("images"), images, words)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/?token="
        gate = create_app(
            store, shown_images, host, lambda token: opened(address + token), words,
            annotator=name, ask_name=ask_name,
        )  # fmt: skip
        ready(address + gate.token, suggestions)
        # uvicorn closes in good order and then raises the signal again.
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(server_config(gate)).run(sockets=[listening])


def server_config(gate: Gate) -> uvicorn.Config:
    """Return how the page is served; tests serve it in the same way.

    The parser of requests is the strict one, whatever else is installed: it refuses two hosts, two lengths and
    headers of more than 64 kB.
    """
    import uvicorn

    return uvicorn.Config(
        gate, http="h11", log_level="warning", access_log=False, server_header=False, ws="none", lifespan="off",
        timeout_graceful_shutdown=2,
    )  # fmt: skip


def _checked_name(annotator: str | None) -> str | None:
    if annotator is None:
        return None
    try:
        name = annotator_name(annotator)
    except ValueError as error:
        problem = str(error)
    else:
        if name:
            return name
        problem = "is empty"
    raise ConfigError(
        problem, where=Argument("annotator", annotator), remedy="give a name of up to 64 letters, such as Ann"
    )
