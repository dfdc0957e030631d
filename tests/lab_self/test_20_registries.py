# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts' one way out: packages come through the proxy, and with it closed only what was fetched before."""

from __future__ import annotations

from lab.client import Lab

UPDATE = ["apt-get", "-q", "update"]


def download(lab: Lab, host: str, package: str) -> bool:
    """Fetch a package that the host has not kept itself, and tell whether that worked."""
    done = lab.run(host, f"cd $(mktemp -d) && apt-get -q download {package} && ls *.deb")
    return done.returncode == 0


def test_packages_come_through_the_proxy_and_stay_for_a_site_without_internet(pair: Lab) -> None:
    """What one host fetched another one gets with the way out closed; what nobody fetched is not to be had."""
    assert pair.run("n1", UPDATE).returncode == 0
    assert download(pair, "n1", "hello")
    pair.fault("proxy", "offline")
    try:
        updated = pair.run("n2", UPDATE)
        assert updated.returncode == 0, updated.stderr
        assert "Err:" not in updated.stdout
        assert download(pair, "n2", "hello")
        # Nobody installs that: a large game's data, asked for by its name only.
        assert not download(pair, "n2", "flightgear-data-ai")
    finally:
        pair.fault("proxy", "online")


def test_there_is_no_way_around_the_proxy(pair: Lab) -> None:
    """Without it apt reaches nothing, and a tunnel leads to no other port than that of encrypted pages."""
    done = pair.run("n1", [*UPDATE, "-o", "Acquire::http::Proxy=DIRECT", "-o", "Acquire::https::Proxy=DIRECT", "-o", "APT::Update::Error-Mode=any"])
    assert done.returncode != 0
    tunnel = "import http.client as h; c = h.HTTPConnection('10.213.7.254', 3128); c.set_tunnel('10.213.7.254', 22); c.connect()"
    assert "403" in pair.run("n1", ["python3", "-c", tunnel]).stderr


def test_the_vendors_site_answers_by_its_name(pair: Lab) -> None:
    """Past the proxy, and with the faults that it is told to have."""
    look = [
        "curl",
        "--silent",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
        "http://vendor.lab/compute/cuda/repos/debian12/x86_64/InRelease",
    ]
    assert pair.run("n1", look).stdout == "200"
    pair.fault("site", "gone")
    try:
        assert pair.run("n1", look).stdout == "503"
    finally:
        pair.fault("site", "ok")
    assert pair.run("n1", look).stdout == "200"
