# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves the site over http, with whatever faults the control file asks for."""

from __future__ import annotations

import email.utils
import http.server
import io
import json
import socket
import struct
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from lab.vendor import repodata
from lab.vendor.faults import Faults, read_faults
from lab.vendor.site import ARCHITECTURE_FOLDER, REPOSITORIES, Offer, SiteTree

# "older" dates its lists this much before the fault was set.
DAY = 86400.0
POLL_SECONDS = 0.1
SLOW_RATE = 20000
CHUNK = 1 << 16
TYPES = {
    ".deb": "application/vnd.debian.binary-package", ".rpm": "application/x-rpm", ".gz": "application/gzip",
    ".html": "text/html; charset=utf-8", ".pub": "text/plain",
}  # fmt: skip


class Site:
    """A site that is being served: its documents under the faults of the moment."""

    def __init__(self, tree: SiteTree, control: Path, log: Path) -> None:
        """Remember what to serve and where to look for faults."""
        self.tree = tree
        self.control = control
        self.log = log
        self.guard = threading.Lock()
        self.made: dict[str, tuple[tuple[Any, ...], dict[str, bytes], float]] = {}
        self.began = time.time()

    def faults(self) -> Faults:
        """Return the faults of the moment."""
        return read_faults(self.control)

    def lists(self, platform: str, faults: Faults) -> tuple[dict[str, bytes], float]:
        """Return the lists of a platform and their date.

        They are dated when the faults last changed, and later than the lists before: apt keeps what it has when it is offered an older date.
        """
        folder = f"/{REPOSITORIES}/{platform}/{ARCHITECTURE_FOLDER}"
        offer, forged = faults.offer(), any(faults.on("bad-signature", f"{folder}/{name}") for name in ("InRelease", repodata.SIGNATURE))
        key = (offer, forged, faults.moment)
        with self.guard:
            known = self.made.get(platform)
            if not known or known[0] != key:
                moment = max(float(int(faults.moment or self.began)), known[2] + 1 if known else 0.0)
                dated = moment - DAY if offer.older else moment
                self.made[platform] = known = (key, self.tree.lists(platform, offer, dated, forged=forged), moment)
            return known[1], known[2] - DAY if offer.older else known[2]

    def find(self, path: str, faults: Faults) -> tuple[bytes | Path, float] | None:
        """Return the body of a path and when it was modified, or None when there is no such thing."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts:
            return None
        depth = REPOSITORIES.count("/") + 1
        if "/".join(parts[:depth]) == REPOSITORIES and parts[depth + 1 : depth + 2] == [ARCHITECTURE_FOLDER] and parts[depth] in self.tree.records:
            platform, name = parts[depth], "/".join(parts[depth + 2 :])
            made, moment = self.lists(platform, faults)
            if name in made:
                return made[name], moment
            if name.endswith((".deb", ".rpm")) and not self.offered(platform, name, faults.offer()):
                return None
            if name.endswith(".pub") and faults.on("wrong-key", path):
                return self.tree.impostor.public, faults.moment
        file = self.tree.root.joinpath(*parts)
        if file.is_dir() and path.endswith("/"):
            file = file / "index.html"
        return (file, float(int(file.stat().st_mtime))) if file.is_file() else None

    def offered(self, platform: str, name: str, offer: Offer) -> bool:
        """Tell whether a package's file is there at the moment."""
        every = self.tree.records[platform]
        return any(record["file"] == name and offer.holds(record, every) for record in every)

    def note(self, **fields: Any) -> None:
        """Add a line to the request log."""
        with self.guard, self.log.open("a") as stream:
            stream.write(json.dumps({"time": round(time.time(), 3), **fields}) + "\n")


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "lab-vendor"
    timeout = 60
    site: Site

    def do_GET(self) -> None:
        """Answer a request."""
        self.answer()

    def do_HEAD(self) -> None:
        """Answer a request without its body."""
        self.answer()

    def answer(self) -> None:
        """Find what is asked for and send it, or what the faults make of it."""
        path = unquote(urlsplit(self.path).path)
        faults = self.site.faults()
        gone = faults.on("gone", path)
        if gone and gone.get("mode") in ("reset", "refuse"):
            self.noted(path, 0, 0)
            reset(self.connection)
            self.close_connection = True
            return
        if gone:
            self.refuse(path, HTTPStatus.SERVICE_UNAVAILABLE)
            return
        found = self.site.find(path, faults)
        if found is None:
            self.refuse(path, HTTPStatus.NOT_FOUND)
            return
        body, modified = found
        size = len(body) if isinstance(body, bytes) else body.stat().st_size
        stamp = email.utils.formatdate(modified, usegmt=True)
        if self.headers.get("If-Modified-Since") == stamp:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.send_header("Last-Modified", stamp)
            self.end_headers()
            self.noted(path, 304, 0)
            return
        try:
            start, end = self.wanted_range(size, stamp)
        except ValueError:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.noted(path, 416, 0)
            return
        partial = (start, end) != (0, size)
        self.send_response(HTTPStatus.PARTIAL_CONTENT if partial else HTTPStatus.OK)
        self.send_header("Content-Type", TYPES.get(Path(path).suffix, "text/html" if path.endswith("/") else "application/octet-stream"))
        self.send_header("Content-Length", str(end - start))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Last-Modified", stamp)
        if partial:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.end_headers()
        sent = 0 if self.command == "HEAD" else self.send_body(body, start, end, path, faults)
        self.noted(path, 206 if partial else 200, sent)

    def wanted_range(self, size: int, stamp: str) -> tuple[int, int]:
        """Return the half-open range of bytes that is asked for; raises ValueError when the body has no such bytes."""
        text = self.headers.get("Range", "")
        if not text.startswith("bytes=") or "," in text or self.headers.get("If-Range", stamp) != stamp:
            return 0, size
        first, _, last = text.removeprefix("bytes=").strip().partition("-")
        if not (first or last) or not (first + last).isdigit():
            return 0, size
        start = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        if start >= end:
            raise ValueError(text)
        return start, end

    def send_body(self, body: bytes | Path, start: int, end: int, path: str, faults: Faults) -> int:
        """Send bytes at the pace and as far as the faults allow; returns how many went out."""
        slow = faults.on("slow", path)
        rate = int(slow.get("rate", SLOW_RATE)) if slow else 0
        if faults.on("half", path):
            end = start + (end - start) // 2
            self.close_connection = True
        sent = 0
        with open_body(body) as stream:
            stream.seek(start)
            while sent < end - start:
                data = stream.read(min(max(1, rate // 10) if rate else CHUNK, end - start - sent))
                try:
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True
                    break
                sent += len(data)
                if rate:
                    time.sleep(len(data) / rate)
        return sent

    def refuse(self, path: str, status: HTTPStatus) -> None:
        """Answer with an error."""
        text = f"{status.value} {status.phrase}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
        self.noted(path, status.value, 0)

    def noted(self, path: str, status: int, sent: int) -> None:
        """Note the request."""
        self.site.note(client=self.client_address[0], method=self.command, path=path, status=status, sent=sent, range=self.headers.get("Range"))

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: requests are noted in the request log."""


def open_body(body: bytes | Path) -> BinaryIO:
    """Return a body as a stream."""
    if isinstance(body, Path):
        return body.open("rb")
    return io.BytesIO(body)


def reset(connection: socket.socket) -> None:
    """Make the coming close of a connection a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Server(http.server.ThreadingHTTPServer):
    """A threaded server that takes a hangup for what it is."""

    daemon_threads = True
    request_queue_size = 128
    timeout = POLL_SECONDS

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing when a client went away."""


def serve(tree: SiteTree, address: str, port: int, control: Path, *, log: Path | None = None, stop: threading.Event | None = None) -> None:
    """Serve the site until `stop` is set. The request log (a JSON object a line) lies beside the control file unless named.

    Sockets are made by the calling thread, so they belong to its network namespace.
    """
    site = Site(tree, control, log or control.with_suffix(".log"))
    handler = type("SiteHandler", (Handler,), {"site": site})
    ear: Server | None = None
    stop = stop or threading.Event()
    try:
        while not stop.is_set():
            if site.faults().refuses:
                if ear:
                    ear.server_close()
                    ear = None
                time.sleep(POLL_SECONDS)
                continue
            if ear is None:
                ear = Server((address, port), handler)
            ear.handle_request()
    finally:
        if ear:
            ear.server_close()
