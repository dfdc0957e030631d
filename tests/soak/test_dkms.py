# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The distribution's own NVIDIA packages, with the real build of the real kernel module by dkms (ten minutes of compiling)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.harness import observation, plan, play
from lab.client import HostSpec, Lab
from own_lab import own_lab

BRANCH = "535"
# What talks to the GPU itself finds none here. The lab's programs stand where Debian's would, which dpkg then puts beside them.
DIVERT = """
set -e
for path in /usr/bin/nvidia-persistenced /usr/bin/nvidia-modprobe /usr/lib/nvidia/current/nvidia-smi; do
    mkdir -p "$(dirname "$path")"
    dpkg-divert --quiet --local --no-rename --divert "$path.debian" --add "$path"
    ln -s "/usr/local/lib/lab/$(basename "$path")" "$path"
done
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Give a bare host without NVSwitches, as the distribution has no fabric manager."""
    with own_lab("dkms", [HostSpec("n1", image="debian12", profile="t4-pcie1")]) as running:
        diverted = running.run("n1", ["sh", "-c", DIVERT])
        assert diverted.returncode == 0, diverted.stderr
        yield running


def test_the_distributions_driver_is_built_and_a_second_run_is_quiet(lab: Lab) -> None:
    """The module of the running kernel comes from the archive's source package and has its version."""
    asked = {"gpu_stack_driver": BRANCH, "nvidia_driver_source": "distro", "gpu_stack_pytorch": None, "gpu_stack_mirror": None}
    first = play("site.yml", lab.name, extra=asked, options="--tags node_baseline,nvidia_driver")
    assert first.rc == 0, first.tail(60)
    wanted = plan(first, "n1")["components"]["driver"]["wanted"]
    assert wanted["version"].startswith(f"{BRANCH}.") and wanted["source"] == "distro"
    status = lab.run("n1", ["dkms", "status"]).stdout
    kernel = observation(first, "n1")["host"]["kernel"]
    assert f"{wanted['version']}, {kernel}, x86_64: installed" in status, status
    built = lab.run("n1", ["modinfo", "-k", kernel, "-F", "version", "nvidia-current"]).stdout.strip()
    assert built == wanted["version"]
    # The genuine module, not a stand-in, is tens of megabytes of machine code.
    path = lab.run("n1", ["modinfo", "-k", kernel, "-F", "filename", "nvidia-current"]).stdout.strip()
    assert int(lab.run("n1", ["stat", "--format=%s", path]).stdout) > 10_000_000

    second = play("site.yml", lab.name, extra=asked, options="--tags node_baseline,nvidia_driver")
    assert second.rc == 0 and second.changed_tasks() == [], second.tail()
