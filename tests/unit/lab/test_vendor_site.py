# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The served site over loopback: as a web server should be, and under each of its faults."""

from __future__ import annotations

import gzip
import http.client
import socket
import time
from pathlib import Path

import pytest
from lab.paths import LabError
from lab.vendor import set_fault
from lab.vendor.faults import KINDS, parse, read_faults
from unit.lab.vendor_clients import Served

FOLDER = "/compute/cuda/repos/debian12/x86_64"
DEB = f"{FOLDER}/libcuda1_580.178.04-1_amd64.deb"
OLD_DEB = f"{FOLDER}/libcuda1_580.159.04-1_amd64.deb"


def test_a_file_whole_in_part_and_unchanged(served: Served) -> None:
    status, headers, body = served.get(DEB)
    assert (status, len(body)) == (200, int(headers["Content-Length"]))
    assert body.startswith(b"!<arch>\ndebian-binary")
    assert headers["Accept-Ranges"] == "bytes"
    status, headers, part = served.get(DEB, Range="bytes=100-199")
    assert (status, part) == (206, body[100:200])
    assert headers["Content-Range"] == f"bytes 100-199/{len(body)}"
    assert served.get(DEB, Range="bytes=100-")[2] == body[100:]
    assert served.get(DEB, Range="bytes=-50")[2] == body[-50:]
    assert served.get(DEB, Range=f"bytes={len(body)}-")[0] == 416
    stamp = headers["Last-Modified"]
    assert served.get(DEB, If_Modified_Since=stamp)[0] == 304
    assert served.get(DEB, If_Modified_Since="Thu, 01 Jan 2099 00:00:00 GMT")[0] == 200
    assert served.get(DEB, Range="bytes=100-199", If_Range=stamp)[0] == 206
    assert served.get(DEB, Range="bytes=100-199", If_Range="Thu, 01 Jan 2015 00:00:00 GMT")[2] == body
    status, headers, nothing = served.get(DEB, "HEAD")
    assert (status, headers["Content-Length"], nothing) == (200, str(len(body)), b"")


def test_what_is_not_there_and_what_lies_outside(served: Served) -> None:
    assert served.get(f"{FOLDER}/nothing.deb")[0] == 404
    assert served.get("/compute/cuda/repos/fedora99/x86_64/InRelease")[0] == 404
    assert served.get(f"{FOLDER}/../../../../../../records.json")[0] == 404
    assert served.get("/%2e%2e/records.json")[0] == 404
    # Not published yet, although its file lies in the folder.
    assert served.get(f"{FOLDER}/libcuda1_580.195.03-1_amd64.deb")[0] == 404


def test_lists_agree_and_the_log_tells_who_asked(served: Served) -> None:
    packages = served.get(f"{FOLDER}/Packages")[2]
    assert served.get("/nothing")[0] == 404
    assert gzip.decompress(served.get(f"{FOLDER}/Packages.gz")[2]) == packages
    assert b"Filename: ./libcuda1_580.178.04-1_amd64.deb\n" in packages
    assert served.get(f"{FOLDER}/3bf863cc.pub")[2] == served.tree.key.read_bytes()
    # Each connection is noted by its own thread, in any order.
    told = {(entry["client"], entry["method"], entry["path"], entry["status"]) for entry in served.requested(4)}
    assert told >= {("127.0.0.1", "GET", f"{FOLDER}/3bf863cc.pub", 200), ("127.0.0.1", "GET", "/nothing", 404)}


def test_one_connection_carries_many_requests(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), 10) as line:
        line.sendall(f"HEAD {DEB} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 3 + f"HEAD {DEB} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while data := line.recv(65536):
            received += data
    assert received.count(b"HTTP/1.1 200 OK") == 4


def test_gone_and_back(served: Served) -> None:
    served.fault("gone")
    assert served.get(DEB)[0] == 503
    served.fault("ok")
    assert served.get(DEB)[0] == 200
    served.fault("gone", "mode=reset")
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        served.get(DEB)
    served.fault("gone", "mode=refuse")
    served.wait(False)
    with pytest.raises(ConnectionRefusedError):
        served.get(DEB)
    served.fault("ok")
    served.wait(True)
    assert served.get(DEB)[0] == 200


def test_a_fault_meets_only_the_paths_it_names(served: Served) -> None:
    served.fault("gone", "path=*.deb")
    assert served.get(DEB)[0] == 503
    assert served.get(f"{FOLDER}/InRelease")[0] == 200


def test_half_a_file(served: Served) -> None:
    whole = served.get(DEB)[2]
    served.fault("half", "path=*/libcuda1_*")
    with pytest.raises(http.client.IncompleteRead) as caught:
        served.get(DEB)
    assert caught.value.partial == whole[: len(whole) // 2]
    assert served.get(f"{FOLDER}/3bf863cc.pub")[0] == 200


def test_slow(served: Served) -> None:
    size = len(served.get(DEB)[2])
    served.fault("slow", f"rate={size * 2}")
    began = time.monotonic()
    assert len(served.get(DEB)[2]) == size
    assert 0.3 < time.monotonic() - began < 5


def test_removed_newer_and_older(served: Served) -> None:
    served.fault("removed", "580.159.04")
    assert served.get(OLD_DEB)[0] == 404
    assert b"580.159.04" not in served.get(f"{FOLDER}/Packages")[2]
    assert served.get(DEB)[0] == 200
    served.fault("newer")
    assert served.get(f"{FOLDER}/libcuda1_580.195.03-1_amd64.deb")[0] == 200
    assert served.get(OLD_DEB)[0] == 404
    served.fault("ok")
    served.fault("older")
    assert served.get(DEB)[0] == 404
    assert served.get(OLD_DEB)[0] == 200


def test_another_key_is_offered(served: Served) -> None:
    served.fault("wrong-key")
    assert served.get(f"{FOLDER}/3bf863cc.pub")[2] == served.tree.impostor.public.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_understood(kind: str) -> None:
    assert parse(kind, ["580.159.04"] if kind == "removed" else ["path=*.deb"])["kind"] == kind


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("broken", []),
        ("removed", []),
        ("slow", ["rate=fast"]),
        ("slow", ["rate=0"]),
        ("gone", ["mode=away"]),
        ("half", ["*.deb"]),
        ("half", ["path="]),
    ],
)
def test_a_fault_that_means_nothing_is_refused_and_changes_nothing(tmp_path: Path, kind: str, args: list[str]) -> None:
    control = tmp_path / "site.json"
    set_fault(control, "gone", [])
    with pytest.raises(LabError):
        set_fault(control, kind, args)
    assert [fault["kind"] for fault in read_faults(control).listed] == ["gone"]


def test_faults_add_up_and_replace_their_like(tmp_path: Path) -> None:
    control = tmp_path / "site.json"
    assert read_faults(control).listed == ()
    for kind, args in (("slow", ["rate=10"]), ("slow", ["rate=20"]), ("removed", ["580.159.04"]), ("removed", ["535.274.02"])):
        set_fault(control, kind, args)
    assert [fault.get("rate", fault.get("version")) for fault in read_faults(control).listed] == ["20", "580.159.04", "535.274.02"]
    set_fault(control, "ok", [])
    assert read_faults(control).listed == ()
