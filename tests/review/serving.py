"""The review page on a real socket of this machine, served from this process."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import uvicorn

from review.synthetic import Completed
from satl.review.database import ReviewStore
from satl.review.serve import bind, server_config
from satl.review.served_images import ReviewImageFiles
from satl.review.server import create_app

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page


class Served:
    """The page of a folder, with the images of the folder ``images`` beside it."""

    def __init__(self, completed: Completed) -> None:
        self.completed = completed
        self.store = ReviewStore(completed.out)
        self.store.refresh()
        images = completed.out.parent / "images"
        pictures = ReviewImageFiles(images if images.is_dir() else None, "No image folder is known.")
        self.gate = create_app(self.store, pictures)
        self.socket = bind("127.0.0.1", 0)
        self.home = f"http://127.0.0.1:{self.socket.getsockname()[1]}/"
        self.server = uvicorn.Server(server_config(self.gate))
        logging.getLogger("uvicorn").propagate = True  # tests read what it logs
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        self.thread.start()

    def open(self, context: BrowserContext) -> Page:
        """Open the page in a browser, signed in."""
        page = context.new_page()
        page.goto(f"{self.home}?token={self.gate.token}")
        page.wait_for_selector("#card[data-state=ready]")
        return page

    def stop(self) -> None:
        """End the server and close the store."""
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()
        self.store.close()
