# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A key that the host's own verifier does not accept is found before anything changes, and the reason says what to use."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from integration.harness import play, refused
from integration.poison import must
from lab.client import HostSpec, Lab
from lab.vendor.signing import gpg, gpg_home
from own_lab import own_lab

HOST = "n1"
FOLDER = "/srv/weak/compute/cuda/repos/debian13/x86_64"
RELEASE = "Origin: NVIDIA\nLabel: NVIDIA CUDA\nArchitectures: amd64\nDate: Mon, 30 Nov 2026 00:00:00 UTC\nSHA256:\n {sha256} 0 Packages\n"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture(scope="module")
def host() -> Iterator[Lab]:
    """Give a host whose apt verifies with sqv."""
    with own_lab("verifier", [HostSpec(HOST, image="debian13", profile="t4-pcie1")]) as lab:
        assert "sqv" in must(lab, HOST, "ls /usr/bin")
        must(lab, HOST, """echo 'Acquire::http::Proxy::127.0.0.1 "DIRECT";' >/etc/apt/apt.conf.d/zz-mirror""")
        yield lab


def mirror(lab: Lab, digest: str, port: int) -> str:
    """Serve an empty repository on the host, by a key whose own signature is made with a digest; returns the key's fingerprint."""
    with gpg_home() as home:
        gpg(home, "--cert-digest-algo", digest, "--passphrase", "", "--quick-generate-key", "mirror <mirror@example.org>", "rsa3072", "sign", "never")
        listed = gpg(home, "--with-colons", "--list-keys").decode().splitlines()
        signed = gpg(home, "--digest-algo", "SHA512", "--clear-sign", stdin=RELEASE.format(sha256=EMPTY).encode())
        files = {"8793F200.pub": gpg(home, "--armor", "--export"), "InRelease": signed, "Packages": b""}
    writes = "\n".join(f"echo {base64.b64encode(data).decode()} | base64 -d >{FOLDER}/{name}" for name, data in files.items())
    script = f"mkdir -p {FOLDER}\n{writes}\nsystemctl stop mirror 2>/dev/null || true\n"
    script += f"systemd-run --quiet --unit=mirror python3 -m http.server --bind 127.0.0.1 --directory /srv/weak {port}\n"
    look = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
    must(lab, HOST, f'{script}for try in $(seq 100); do python3 -c "{look}" 2>/dev/null && exit; sleep 0.1; done; exit 1')
    return next(line.split(":")[9] for line in listed if line.startswith("fpr:"))


def site(lab: Lab, port: int, fingerprint: str) -> str:
    """Return why a run that is to take the driver from the mirror changes nothing."""
    asked = {
        "gpu_stack_driver": "580",
        "gpu_stack_pytorch": "",
        "gpu_stack_mirror": f"http://127.0.0.1:{port}",
        "gpu_stack_mirror_key_fingerprint": fingerprint,
    }
    return refused(play("site.yml", lab.name, extra=asked, options="--tags nvidia_driver"))


def test_failure_07_a_key_that_sqv_does_not_accept(host: Lab) -> None:
    """Since February 2026 sqv takes no key whose own signature is made with SHA-1; such a repository counts as unsigned."""
    fingerprint = mirror(host, "SHA1", 8071)
    reason = site(host, 8071, fingerprint)
    assert f"does not accept the key {fingerprint}" in reason and "SHA-1" in reason
    assert "https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64/, signed by 02182E60" in reason
    assert must(host, HOST, "find /etc /var/lib -name '*gpu[-_]fleet*'") == ""


def test_a_sound_key_is_accepted(host: Lab) -> None:
    """The same mirror under another key lacks the packages, and nothing else."""
    reason = site(host, 8072, mirror(host, "SHA512", 8072))
    assert "does not accept the key" not in reason and "nvidia" in reason
