# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts' only way out: an HTTP proxy that listens in the lab's network and connects from the machine's.

Packages and wheels are kept on disk. With `offline` it gives only what it has, as a site without internet does.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import select
import shutil
import socket
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

KEPT = (".deb", ".udeb", ".whl", ".rpm")
HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "date", "server", "proxy-connection", "host", "accept-encoding"}
TIMEOUT = 60


class Proxy(ThreadingHTTPServer):
    """The proxy; `cache` is a folder, `offline` may be changed while it runs."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], cache: Path) -> None:
        """Listen in the network namespace of the calling thread."""
        super().__init__(address, Handler)
        self.cache = cache
        self.offline = False
        cache.mkdir(parents=True, exist_ok=True)


class Handler(BaseHTTPRequestHandler):
    """One request of a host."""

    protocol_version = "HTTP/1.1"
    timeout = 120
    server: Proxy

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        """Fetch a page, or give it from the disk."""
        url = urllib.parse.urlsplit(self.path)
        kept = self.server.cache / hashlib.sha256(self.path.encode()).hexdigest()
        constant = url.path.endswith(KEPT) or "/by-hash/" in url.path
        if kept.exists() and (constant or self.server.offline):
            self.give(kept)
        elif self.server.offline:
            self.send_error(504, "not kept, and the way out is closed")
        else:
            self.fetch(url, kept, constant)

    do_HEAD = do_GET

    def give(self, kept: Path) -> None:
        """Answer from the disk."""
        self.send_response(200)
        self.send_header("Content-Length", str(kept.stat().st_size))
        self.end_headers()
        if self.command == "GET":
            with kept.open("rb") as source:
                shutil.copyfileobj(source, self.wfile)

    def fetch(self, url: urllib.parse.SplitResult, kept: Path, constant: bool) -> None:
        """Answer from the far end, and keep the answer."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        if constant:
            headers = {name: value for name, value in headers.items() if not name.lower().startswith(("if-", "range"))}
        try:
            far = http.client.HTTPConnection(url.hostname or "", url.port or 80, timeout=TIMEOUT)
            far.request(self.command, url.path + (f"?{url.query}" if url.query else ""), headers={"Host": url.netloc, **headers})
            answer = far.getresponse()
        except OSError as error:
            self.send_error(502, str(error))
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if answer.getheader("Content-Length") is None and answer.status not in (204, 304):
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command == "HEAD" or answer.status in (204, 304):
            return
        part = kept.with_suffix(f".{threading.get_ident()}")
        with part.open("wb") as copy:
            while block := answer.read(1 << 18):
                copy.write(block)
                self.wfile.write(block)
        expected = answer.getheader("Content-Length")
        if answer.status == 200 and (expected is None or int(expected) == part.stat().st_size):
            os.replace(part, kept)
        else:
            part.unlink()

    def do_CONNECT(self) -> None:
        """Pass an encrypted connection through, to port 443 only."""
        host, _, port = self.path.rpartition(":")
        if self.server.offline or port != "443":
            self.send_error(504 if self.server.offline else 403)
            return
        try:
            far = socket.create_connection((host, 443), TIMEOUT)
        except OSError as error:
            self.send_error(502, str(error))
            return
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        with far:
            while True:
                ready, _, _ = select.select([self.connection, far], [], [], 300)
                for end in ready:
                    block = end.recv(1 << 16)
                    if not block:
                        return
                    (far if end is self.connection else self.connection).sendall(block)
                if not ready:
                    return
