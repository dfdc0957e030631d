# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts' only way out: an HTTP proxy that listens in the lab's network and connects from the machine's.

Packages and wheels are kept on disk. With `offline` it gives only what it has, as a site without internet does.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import select
import shutil
import socket
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# These never change under their name.
KEPT = (".deb", ".udeb", ".whl", ".rpm")
HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "date", "server", "proxy-connection", "host", "accept-encoding"}
CONSTANT_PATH = "/by-hash/"
BLOCK = 1 << 18
TIMEOUT = 60.0
IDLE_SECONDS = 300.0


class Upstream:
    """The proxies that the machine itself has to use, by scheme; none is the usual case."""

    def __init__(self, proxies: Mapping[str, str]) -> None:
        """Take proxies as {"http": URL, "https": URL}."""
        self.proxies = {scheme: urllib.parse.urlsplit(url) for scheme, url in proxies.items() if url and url.upper() != "DIRECT"}

    @classmethod
    def of_the_machine(cls, apt: Mapping[str, str]) -> Upstream:
        """Return what the environment says, or else what apt is told."""
        said = urllib.request.getproxies()
        return cls({scheme: said.get(scheme) or apt.get(f"Acquire::{scheme}::Proxy", "") for scheme in ("http", "https")})

    def to(self, scheme: str, host: str) -> urllib.parse.SplitResult | None:
        """Return the proxy for a host."""
        return None if urllib.request.proxy_bypass(host) else self.proxies.get(scheme)

    @staticmethod
    def credentials(proxy: urllib.parse.SplitResult) -> dict[str, str]:
        """Return the headers that open a proxy."""
        if proxy.username is None:
            return {}
        pair = f"{urllib.parse.unquote(proxy.username)}:{urllib.parse.unquote(proxy.password or '')}"
        return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


class Proxy(ThreadingHTTPServer):
    """The proxy; `cache` is a folder, `offline` may be changed while it runs."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], cache: Path, upstream: Upstream | None = None) -> None:
        """Listen in the network namespace of the calling thread."""
        super().__init__(address, Handler)
        self.cache = cache
        self.upstream = upstream or Upstream({})
        self.offline = False
        cache.mkdir(parents=True, exist_ok=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Take a hangup for what it is."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


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
        if url.scheme != "http" or not url.hostname:
            self.send_error(400, "this is a proxy: ask it for http://HOST/PATH")
            return
        kept = self.server.cache / hashlib.sha256(self.path.encode()).hexdigest()
        constant = url.path.endswith(KEPT) or CONSTANT_PATH in url.path
        if kept.exists() and (constant or self.server.offline):
            self.give(kept)
        elif self.server.offline:
            self.send_error(504, "not kept, and the way out is closed")
        else:
            self.fetch(url, kept, constant)

    do_HEAD = do_GET

    def give(self, kept: Path) -> None:
        """Answer from the disk."""
        with kept.open("rb") as source:
            self.send_response(200)
            self.send_header("Content-Length", str(os.fstat(source.fileno()).st_size))
            self.end_headers()
            if self.command == "GET":
                shutil.copyfileobj(source, self.wfile, BLOCK)

    def ask(self, url: urllib.parse.SplitResult, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Send the request on."""
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        proxy = self.server.upstream.to("http", url.hostname or "")
        if proxy:
            far = http.client.HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=TIMEOUT)
            path, headers = f"http://{url.netloc}{path}", {**headers, **Upstream.credentials(proxy)}
        else:
            far = http.client.HTTPConnection(url.hostname or "", url.port or 80, timeout=TIMEOUT)
        far.request(self.command, path, headers={"Host": url.netloc, **headers})
        return far.getresponse()

    def fetch(self, url: urllib.parse.SplitResult, kept: Path, constant: bool) -> None:
        """Answer from the far end, and keep the answer when it is whole."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        if constant:
            headers = {name: value for name, value in headers.items() if not name.lower().startswith(("if-", "range"))}
        try:
            answer = self.ask(url, headers)
        except (OSError, http.client.HTTPException) as error:
            self.send_error(502, str(error) or type(error).__name__)
            return
        length = answer.getheader("Content-Length")
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if length is None and answer.status not in (204, 304):
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command == "GET" and answer.status not in (204, 304):
            self.copy(answer, kept if answer.status == 200 else None, None if length is None else int(length))

    def copy(self, answer: http.client.HTTPResponse, kept: Path | None, length: int | None) -> None:
        """Pass a body on. It is kept before its last part leaves: whoever has all of it may ask again at once, and finds it."""
        size, last = 0, b""
        with tempfile.NamedTemporaryFile(dir=self.server.cache, prefix=".part-") as part:
            try:
                while block := answer.read(BLOCK):
                    self.wfile.write(last)
                    size, last = size + len(block), block
                    if kept:
                        part.write(block)
            except http.client.HTTPException:
                self.close_connection = True
                return
            if length is not None and size != length:
                self.close_connection = True
            elif kept:
                part.flush()
                # A second name for the whole file; the first goes with the block.
                rival = kept.with_name(f"{Path(part.name).name}.whole")
                os.link(part.name, rival)
                rival.replace(kept)
            self.wfile.write(last)

    def do_CONNECT(self) -> None:
        """Pass an encrypted connection through, to port 443 only."""
        self.close_connection = True
        host, _, port = self.path.rpartition(":")
        if self.server.offline or port != "443":
            self.send_error(504 if self.server.offline else 403)
            return
        try:
            far = self.tunnel(host)
        except OSError as error:
            self.send_error(502, str(error))
            return
        with far:
            self.send_response(200)
            self.end_headers()
            self.pass_through(far)

    def tunnel(self, host: str) -> socket.socket:
        """Return a connection to a host's port for encrypted pages."""
        proxy = self.server.upstream.to("https", host)
        if not proxy:
            return socket.create_connection((host, 443), TIMEOUT)
        connection = http.client.HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=TIMEOUT)
        connection.set_tunnel(host, 443, headers=Upstream.credentials(proxy))
        connection.connect()
        return connection.sock

    def pass_through(self, far: socket.socket) -> None:
        """Copy both ways until one end is done."""
        near = self.connection
        while ready := select.select([near, far], [], [], IDLE_SECONDS)[0]:
            for end in ready:
                block = end.recv(BLOCK)
                if not block:
                    return
                (far if end is near else near).sendall(block)
