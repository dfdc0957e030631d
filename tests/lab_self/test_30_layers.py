# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host wrote can be kept, and other hosts start from it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from lab import cache, images, layers
from lab.client import HostSpec, Lab, LabError
from lab_self.looks import boot_id


@pytest.fixture
def layer() -> Iterator[str]:
    """Give a name for a layer, and remove the layer."""
    name = f"self-{os.getpid()}"
    yield name
    assert cache.remove_unused(layers.place(name, images.find("debian12").layer().name))


def test_a_saved_state_is_where_other_hosts_start(pair: Lab, layer: str) -> None:
    """Files written, deleted, renamed and linked are all there; names and keys are the new host's own."""
    assert not pair.has_layer(layer)
    pair.run("n1", "echo mark > /opt/mark; rm /usr/bin/less; mv /usr/share/zoneinfo/Europe /usr/share/zoneinfo/Moved; ln /opt/mark /opt/linked; sync")
    packages = pair.run("n1", ["dpkg-query", "--show"]).stdout
    before = boot_id(pair, "n1")
    pair.save("n1", layer)
    assert pair.has_layer(layer)
    assert boot_id(pair, "n1") != before
    look = "cat /opt/mark; stat -c %h /opt/mark; ls /usr/bin/less; ls -d /usr/share/zoneinfo/Europe; ls /usr/share/zoneinfo/Moved/Berlin; hostname"
    assert pair.run("n1", look).stdout == "mark\n2\n/usr/share/zoneinfo/Moved/Berlin\nn1\n"
    pair.up([HostSpec("n3", layers=(layer,))])
    try:
        assert pair.run("n3", look).stdout == "mark\n2\n/usr/share/zoneinfo/Moved/Berlin\nn3\n"
        assert pair.run("n3", ["dpkg-query", "--show"]).stdout == packages
        identities = {pair.run(host, ["cat", "/etc/machine-id"]).stdout for host in ("n1", "n2", "n3")}
        assert len(identities) == 3
        pair.run("n3", "echo changed > /opt/mark")
        assert pair.run("n1", ["cat", "/opt/mark"]).stdout == "mark\n"
        with pytest.raises(LabError, match="in use"):
            pair.save("n2", layer)
    finally:
        pair.down(["n3", "n1"])
    pair.up([HostSpec("n1")])
    assert pair.run("n1", "ls /opt/mark").returncode != 0


def test_a_layer_that_is_not_there_is_said(pair: Lab) -> None:
    """With how to make it."""
    with pytest.raises(LabError, match="lab save"):
        pair.up([HostSpec("n3", layers=("never-saved",))])
