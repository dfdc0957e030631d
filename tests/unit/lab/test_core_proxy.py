# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts' way out: passes on what is asked, keeps packages, and gives nothing else when it is closed."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from lab.proxy import Proxy, Upstream

BODY = b"package" * 50_000


class Far(BaseHTTPRequestHandler):
    """The far end: what it is asked for is noted."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, str]]

    def do_GET(self) -> None:
        """Answer by the path."""
        self.seen.append((self.command, self.path))
        self.send_response(404 if "absent" in self.path else 200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        # Half a body, then the line is cut.
        self.wfile.write(BODY[: len(BODY) // 2] if "half" in self.path else BODY)
        if "half" in self.path:
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


def started(server: ThreadingHTTPServer) -> int:
    """Start a server and return its port."""
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return int(server.server_address[1])


@pytest.fixture
def far() -> Iterator[ThreadingHTTPServer]:
    """Give a far end."""
    Far.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Far)
    started(server)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    """Give a proxy with an empty cache."""
    server = Proxy(("127.0.0.1", 0), tmp_path / "kept")
    started(server)
    yield server
    server.shutdown()
    server.server_close()


def ask(proxy: Proxy, far: ThreadingHTTPServer, path: str) -> tuple[int, bytes]:
    """Ask through the proxy."""
    line = http.client.HTTPConnection("127.0.0.1", proxy.server_address[1], timeout=10)
    line.request("GET", f"http://127.0.0.1:{far.server_address[1]}{path}")
    answer = line.getresponse()
    try:
        body = answer.read()
    except http.client.IncompleteRead as error:
        body = error.partial
    line.close()
    return answer.status, body


def test_packages_are_fetched_once(proxy: Proxy, far: ThreadingHTTPServer) -> None:
    """A package never changes under its name."""
    assert ask(proxy, far, "/pool/a.deb") == (200, BODY)
    assert ask(proxy, far, "/pool/a.deb") == (200, BODY)
    assert Far.seen == [("GET", "/pool/a.deb")]


def test_lists_are_asked_for_every_time(proxy: Proxy, far: ThreadingHTTPServer) -> None:
    """What changes under its name is not taken from the disk."""
    assert ask(proxy, far, "/dists/InRelease") == ask(proxy, far, "/dists/InRelease") == (200, BODY)
    assert len(Far.seen) == 2


def test_offline_gives_what_was_kept_and_nothing_else(proxy: Proxy, far: ThreadingHTTPServer) -> None:
    """A site without internet still has what it fetched, lists too."""
    ask(proxy, far, "/dists/InRelease")
    proxy.offline = True
    assert ask(proxy, far, "/dists/InRelease") == (200, BODY)
    assert ask(proxy, far, "/pool/b.deb")[0] == 504
    assert len(Far.seen) == 1
    proxy.offline = False
    assert ask(proxy, far, "/pool/b.deb") == (200, BODY)


def test_half_a_body_is_not_kept(proxy: Proxy, far: ThreadingHTTPServer) -> None:
    """What was cut off is cut off for the host too, and asked for anew the next time."""
    status, body = ask(proxy, far, "/pool/half.deb")
    assert status == 200
    assert len(body) < len(BODY)
    ask(proxy, far, "/pool/half.deb")
    assert len(Far.seen) == 2
    assert not [path for path in proxy.cache.iterdir() if not path.name.startswith(".")]


def test_refusals_are_passed_on_and_not_kept(proxy: Proxy, far: ThreadingHTTPServer) -> None:
    """A missing package is the far end's word, this time."""
    assert ask(proxy, far, "/pool/absent.deb")[0] == 404
    assert ask(proxy, far, "/pool/absent.deb")[0] == 404
    assert len(Far.seen) == 2


def test_a_far_end_that_is_not_there_is_a_bad_gateway(proxy: Proxy, far: ThreadingHTTPServer) -> None:
    """The host is told, and the proxy lives on."""
    far.shutdown()
    far.server_close()
    assert ask(proxy, far, "/pool/a.deb")[0] == 502


def connect(proxy: Proxy, target: str) -> bytes:
    """Ask for a tunnel and return the first line of the answer."""
    with socket.create_connection(("127.0.0.1", proxy.server_address[1]), 10) as line:
        line.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return line.recv(4096).split(b"\r\n")[0]


def test_tunnels_lead_to_the_port_for_encrypted_pages_only(proxy: Proxy) -> None:
    """The proxy is no way to just any service."""
    assert b" 403 " in connect(proxy, "127.0.0.1:22")
    proxy.offline = True
    assert b" 504 " in connect(proxy, "127.0.0.1:443")


def test_the_machines_own_proxy_is_used(tmp_path: Path, far: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine reaches the world through a proxy, so do the hosts."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    chained = Proxy(("127.0.0.1", 0), tmp_path / "kept", Upstream({"http": f"http://127.0.0.1:{far.server_address[1]}", "https": "DIRECT"}))
    started(chained)
    line = http.client.HTTPConnection("127.0.0.1", chained.server_address[1], timeout=10)
    line.request("GET", "http://mirror.example/pool/a.deb")
    assert line.getresponse().read() == BODY
    assert Far.seen == [("GET", "http://mirror.example/pool/a.deb")]
    line.close()
    chained.shutdown()
    chained.server_close()


def test_credentials_of_a_proxy_go_into_a_header() -> None:
    """They stand in its address, quoted."""
    upstream = Upstream({"http": "http://me:se%40cret@proxy.example:3128"})
    proxy = upstream.to("http", "mirror.example")
    assert proxy is not None
    assert Upstream.credentials(proxy) == {"Proxy-Authorization": "Basic bWU6c2VAY3JldA=="}
