# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.modules import repository_key
from fixtures.module_run import ModuleRun

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a key file belongs to root")


def packet(seed: bytes) -> tuple[bytes, str]:
    """Return a public key packet of version 4 and its fingerprint, which is the hash of just this packet in the old form (RFC 4880, 12.2)."""
    body = b"\x04" + b"\x65\x00\x00\x00" + b"\x01" + seed * 8
    data = b"\x99" + len(body).to_bytes(2, "big") + body
    return data, hashlib.new("sha1", data).hexdigest().upper()


KEY, FINGERPRINT = packet(b"the site's key")
OTHER, OTHER_FINGERPRINT = packet(b"another's key")
ARMORED = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + base64.encodebytes(KEY) + b"-----END PGP PUBLIC KEY BLOCK-----\n"


class Site:
    """A site on the loopback that offers one body and counts its visitors."""

    def __init__(self) -> None:
        self.body, self.status, self.visits, self.cut, self.url = ARMORED, 200, 0, 0, ""

    def handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.visits += 1
                self.send_response(site.status)
                self.send_header("Content-Length", str(len(site.body)))
                self.end_headers()
                self.wfile.write(site.body[: len(site.body) - site.cut])

            def log_message(self, *_words: object) -> None:
                """Say nothing: the tests' output is for the tests."""

        return Handler


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), made.handler())
    made.url = f"http://127.0.0.1:{server.server_port}/key.pub"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(repository_key, capsys)


def test_the_key_is_fetched_once(run: ModuleRun, site: Site, tmp_path: Path) -> None:
    dest = tmp_path / "keyrings" / "vendor.asc"
    result = run(url=site.url, fingerprint=FINGERPRINT.lower(), dest=str(dest))
    assert (result["changed"], result["fingerprints"]) == (True, [])
    assert dest.read_bytes() == ARMORED
    assert dest.stat().st_mode & 0o7777 == 0o644
    assert [path.name for path in dest.parent.iterdir()] == ["vendor.asc"]
    site.visits = 0
    again = run(url=site.url, fingerprint=FINGERPRINT, dest=str(dest))
    assert (again["changed"], again["fingerprints"], site.visits) == (False, [FINGERPRINT], 0)


def test_check_mode_proves_the_key_and_writes_nothing(run: ModuleRun, site: Site, tmp_path: Path) -> None:
    dest = tmp_path / "keyrings" / "vendor.asc"
    predicted = run(check=True, url=site.url, fingerprint=FINGERPRINT, dest=str(dest))
    assert not dest.parent.exists()
    assert predicted == run(url=site.url, fingerprint=FINGERPRINT, dest=str(dest))
    assert predicted["diff"]["after"] == FINGERPRINT + "\n"
    site.body = OTHER
    assert run(check=True, url=site.url, fingerprint=FINGERPRINT, dest=str(tmp_path / "x"))["failed"] is True


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(OTHER, f"holds the key {OTHER_FINGERPRINT}, not the key {FINGERPRINT}; nothing was written", id="another key"),
        pytest.param(KEY + OTHER, " and ", id="a stranger beside it"),
        pytest.param(b"<html>Sign in to the network</html>", "holds no OpenPGP key", id="a captive portal"),
        pytest.param(KEY[:-1], "holds no OpenPGP key", id="damaged"),
        pytest.param(b"", "holds no OpenPGP key", id="empty"),
    ],
)
def test_nothing_else_is_ever_trusted(run: ModuleRun, site: Site, tmp_path: Path, body: bytes, message: str) -> None:
    dest = tmp_path / "vendor.asc"
    dest.write_bytes(OTHER)
    site.body = body
    result = run(url=site.url, fingerprint=FINGERPRINT, dest=str(dest))
    assert result["failed"] is True
    assert message in result["msg"]
    assert result["fingerprints"] == [OTHER_FINGERPRINT]
    assert dest.read_bytes() == OTHER
    assert [path.name for path in tmp_path.iterdir()] == ["vendor.asc"]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: path.write_bytes(OTHER), id="another key"),
        pytest.param(lambda path: path.write_bytes(KEY + OTHER), id="a key was added"),
        pytest.param(lambda path: path.write_bytes(KEY[:-3]), id="damaged"),
        pytest.param(lambda path: path.chmod(0o600), id="unreadable for apt"),
        pytest.param(lambda path: path.chmod(0o666), id="writable for all"),
        pytest.param(lambda path: os.chown(path, 65534, 65534), id="somebody else's"),
    ],
)
def test_a_spoilt_key_file_is_replaced(run: ModuleRun, site: Site, tmp_path: Path, spoil: object) -> None:
    dest = tmp_path / "vendor.asc"
    dest.write_bytes(KEY)
    dest.chmod(0o644)
    assert callable(spoil)
    spoil(dest)
    assert run(url=site.url, fingerprint=FINGERPRINT, dest=str(dest))["changed"] is True
    state = dest.stat()
    assert (dest.read_bytes(), state.st_mode & 0o7777, state.st_uid, state.st_gid) == (ARMORED, 0o644, 0, 0)


@pytest.mark.parametrize(("status", "cut"), [pytest.param(404, 0, id="not there"), pytest.param(503, 0, id="gone"), pytest.param(200, 20, id="half")])
def test_a_site_in_trouble(run: ModuleRun, site: Site, tmp_path: Path, status: int, cut: int) -> None:
    site.status, site.cut = status, cut
    result = run(url=site.url, fingerprint=FINGERPRINT, dest=str(tmp_path / "vendor.asc"), timeout=5)
    assert result["failed"] is True
    assert site.url in result["msg"]
    assert list(tmp_path.iterdir()) == []


def test_a_proxy_is_used_whatever_the_environment_says(run: ModuleRun, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "vendor.example")
    dest = tmp_path / "key.asc"
    proxy = site.url.rpartition("/")[0]
    assert run(url="http://vendor.example/key.pub", fingerprint=FINGERPRINT, dest=str(dest), proxy=proxy)["changed"]
    assert (dest.read_bytes(), site.visits) == (ARMORED, 1)
