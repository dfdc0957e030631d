# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dnf_packages and dnf_repository_info against the real dnf, rpm and dkms. The tests run in order and hand their host on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _resolve
from fixtures.stack import TODAY, catalog
from hardware.hosts import Node
from integration import harness
from lab.client import HostSpec
from own_lab import own_lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="hosts need root")

OLD, NEW = "580.159.04", "580.178.04"
STREAM = "nvidia-driver:580-open"
SITE = "http://vendor.lab/compute/cuda/repos/rhel9/x86_64/"
KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpu-fleet-nvidia"
LOCKS = "/etc/dnf/plugins/versionlock.list"
REPO = "/etc/yum.repos.d/gpu-fleet-nvidia.repo"
STREAM_FILE = "/etc/dnf/modules.d/nvidia-driver.module"
CONTENT = f"[gpu-fleet-nvidia]\nname=NVIDIA\nbaseurl={SITE}\nenabled=1\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file://{KEY}\n"
USER_SPACE = (
    "nvidia-driver-cuda", "nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-modprobe", "libnvidia-ml", "libnvidia-cfg", "libnvidia-gpucomp",
    "nvidia-persistenced",
)  # fmt: skip
# Packages that need no others, for what does not take a whole driver.
FEW = ("nvidia-persistenced", "nvidia-modprobe")
PLAYBOOK = """
- name: Run one module
  hosts: n1
  gather_facts: false
  tasks:
    - name: Run it
      gpu.fleet.MODULE: "{{ given }}"
"""
ACTIONS = {
    "packages": "dnf_packages", "repository": "dnf_repository_info", "facts": "gpu_facts", "locks": "dnf_locks", "files": "managed_files",
    "key": "repository_key",
}  # fmt: skip
AUTOMATIC = "import sys\nfrom dnf.automatic.main import main\nsys.exit(main(['/etc/dnf/automatic.conf', '--installupdates']))\n"
TRACES = "find /etc /var/cache/dnf /var/lib/dnf /var/lib/rpm /var/log /tmp ! -path '/var/log/journal*' -type f -printf '%p %s %T@\\n' | sort"
HOLD = """
import dnf, time
base = dnf.Base()
with dnf.lock.build_metadata_lock(base.conf.cachedir, True):
    print("held", flush=True)
    time.sleep(600)
"""


class Host:
    """The host, and the modules on it."""

    def __init__(self, node: Node, folder: Path, fingerprint: str) -> None:
        """Remember where to write the playbook."""
        self.node, self.fingerprint = node, fingerprint
        self.playbook = folder / "run.yml"

    def run(self, kind: str, check: bool = False, **given: Any) -> dict[str, Any]:
        """Run a module and return its result."""
        self.playbook.write_text(PLAYBOOK.replace("MODULE", ACTIONS[kind]))
        outcome = harness.play(str(self.playbook), self.node.lab.name, extra={"given": given}, options="--check" if check else "")
        found = [result for _, result in outcome.results(ACTIONS[kind])]
        assert len(found) == 1, outcome.tail()
        return found[0]

    def repository(self, stream: str | None = STREAM) -> dict[str, Any]:
        """Return the vendor's repository as a plan describes it."""
        key = {"key_path": KEY, "key_url": SITE + "D42D0685.pub", "fingerprint": self.fingerprint}
        return {"id": "nvidia", "path": REPO, "content": CONTENT, **key, **({"stream": stream} if stream else {})}

    def packages(self, version: str, few: tuple[str, ...] = FEW, check: bool = False, stream: str = STREAM, **more: Any) -> dict[str, Any]:
        """Ask for packages of one release."""
        return self.run("packages", check, packages=dict.fromkeys(few, f"3:{version}-1.el9"), repository=self.repository(stream), **more)

    def enable(self, stream: str | None) -> None:
        """Write which stream is enabled, as dnf writes it, or that none is."""
        name = (stream or "").partition(":")[2]
        self.node("rm", "-f", STREAM_FILE)
        if stream:
            text = f"[nvidia-driver]\nname=nvidia-driver\nstream={name}\nprofiles=\nstate=enabled\n\n"
            self.node.lab.run(self.node.name, f"cat >{STREAM_FILE}", text)

    def set_up(self) -> None:
        """Set the repository up."""
        self.node("mkdir", "-p", os.path.dirname(KEY))
        self.node("curl", "-fsS", "-o", KEY, SITE + "D42D0685.pub")
        self.node.lab.run(self.node.name, f"cat >{REPO}", CONTENT)

    def version(self, name: str) -> str | None:
        """Return the version of an installed package, as rpm has it."""
        done = self.node.run("rpm", "-q", "--qf", "%{EVR}\n", name)
        return done.stdout.strip() if done.returncode == 0 else None


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with own_lab("dnf", [HostSpec("n1", image="el9", profile="t4-pcie1")]) as lab:
        found = json.loads(lab.paths.state.read_text())
        yield Host(Node(lab, "n1", "t4-pcie1"), tmp_path_factory.mktemp("dnf"), found["site"]["fingerprint"])


def names(result: dict[str, Any], action: str) -> dict[str, Any]:
    """Return name -> new version of what a result did in one way."""
    return {change["name"]: change["to"] for change in result["changes"] if change["action"] == action}


def test_the_host_is_seen_as_one_of_the_rhel_family_without_a_driver(host: Host) -> None:
    facts = host.run("facts")["ansible_facts"]["gpu_fleet"]
    assert facts["problems"] == []
    assert (facts["host"]["package_manager"], facts["host"]["version"].split(".")[0], facts["driver"]["owner"]) == ("dnf", "9", "absent")
    kernel = host.node("uname", "-r").strip()
    assert kernel == facts["host"]["kernel"] == facts["driver"]["next_boot"]["kernel"]
    assert host.version("kernel-core") == kernel.removesuffix(".x86_64")
    assert host.node("grubby", "--default-kernel").strip() == f"/boot/vmlinuz-{kernel}"


def test_check_mode_resolves_on_a_bare_host_and_leaves_no_trace(host: Host) -> None:
    before = host.node("sh", "-c", TRACES)
    found = host.packages(OLD, (*USER_SPACE, "kmod-nvidia-open-dkms"), check=True)
    assert found["changed"] is True
    assert set(found["changes"][0]) == {"name", "from", "to", "action"}
    brought = names(found, "install")
    assert brought["nvidia-driver-cuda"] == f"3:{OLD}-1.el9" and {"dkms", "ocl-icd"} <= set(brought)
    assert host.run("repository", True, repository=host.repository())["fingerprint"] == host.fingerprint
    assert set(host.node("sh", "-c", TRACES).splitlines()) ^ set(before.splitlines()) == set()


def test_a_stream_that_is_not_there_and_a_foreign_key_are_refused(host: Host) -> None:
    assert "there are 535-dkms, 535-open" in host.run("repository", repository=host.repository("nvidia-driver:999-open"))["msg"]
    other = {**host.repository(), "fingerprint": "A" * 40}
    assert "not the key" in host.run("repository", repository=other)["msg"]
    assert "not the key" in host.run("packages", True, packages={"nvidia-modprobe": ""}, repository=other)["msg"]


def test_lists_signed_by_somebody_else_are_refused(host: Host) -> None:
    host.node.lab.fault("site", "bad-signature")
    try:
        assert "signature" in host.run("repository", repository=host.repository())["msg"]
        assert "signature" in host.packages(OLD, check=True)["msg"]
    finally:
        host.node.lab.fault("site", "ok")


@pytest.mark.parametrize("enabled", [None, "nvidia-driver:latest-dkms", "nvidia-driver:580-dkms"])
def test_failure_05_nothing_is_installed_from_another_stream_than_the_wanted_one(host: Host, enabled: str | None) -> None:
    host.set_up()
    host.enable(enabled)
    said = host.packages(OLD)["msg"]
    assert "580-open" in said and STREAM_FILE in said and ("the stream " + enabled.partition(":")[2] if enabled else "no stream") in said
    assert host.version("nvidia-modprobe") is None


def test_failure_05_exactly_the_wanted_version_comes_and_no_newer_kernel(host: Host) -> None:
    host.enable(STREAM)
    kernel = host.node("uname", "-r").strip()
    kernels = host.node("rpm", "-q", "kernel-core")
    given: dict[str, Any] = {"unless_present": {f"kernel-devel-{kernel}": f"/lib/modules/{kernel}/build"}}
    found = host.packages(OLD, (*USER_SPACE, "kmod-nvidia-open-dkms"), **given)
    brought = names(found, "install")
    assert brought["kmod-nvidia-open-dkms"] == f"3:{OLD}-1.el9" and brought[f"kernel-devel-{kernel.removesuffix('.x86_64')}"]
    assert {host.version(name) for name in USER_SPACE} == {f"3:{OLD}-1.el9"}
    assert host.node("rpm", "-q", "kernel-core") == kernels
    assert host.node("modinfo", "-F", "version", "-k", kernel, "nvidia").strip() == OLD
    assert host.packages(OLD, (*USER_SPACE, "kmod-nvidia-open-dkms"), **given)["changed"] is False
    host.node("modprobe", "nvidia")
    assert OLD in host.node("nvidia-smi")


def test_what_is_installed_is_observed(host: Host) -> None:
    driver = host.run("facts")["ansible_facts"]["gpu_fleet"]["driver"]
    assert (driver["owner"], driver["user_space"], driver["loaded"]["version"], driver["flavour"]) == ("nvidia", OLD, OLD, "open")
    assert {package["name"]: package["version"] for package in driver["packages"]}["nvidia-driver-cuda"] == f"3:{OLD}-1.el9"
    assert driver["reboot_reasons"] == []


def test_failure_06_a_default_stream_that_flips_moves_nothing(host: Host) -> None:
    before = host.packages(NEW, (*USER_SPACE, "kmod-nvidia-open-dkms"), check=True)["changes"]
    assert {change["to"] for change in before} == {f"3:{NEW}-1.el9"}
    host.node.lab.fault("site", "newer")
    try:
        assert "nvidia-driver open-dkms [d]" in " ".join(host.node("dnf", "-q", "--refresh", "module", "list", "nvidia-driver").split())
        assert host.packages(NEW, (*USER_SPACE, "kmod-nvidia-open-dkms"), check=True)["changes"] == before
        host.enable(None)
        assert "no stream is enabled" in host.packages(NEW)["msg"]
    finally:
        host.node.lab.fault("site", "ok")
        host.enable(STREAM)


def test_a_removal_that_nobody_asked_for_is_refused(host: Host) -> None:
    names_other = (*USER_SPACE, "kmod-nvidia-latest-dkms")
    said = host.packages(OLD, names_other, check=True, stream="nvidia-driver:580-dkms")["msg"]
    assert "would remove kmod-nvidia-open-dkms" in said
    found = host.packages(OLD, names_other, check=True, stream="nvidia-driver:580-dkms", may_remove=["kmod-nvidia-open-dkms"])
    assert (names(found, "remove"), names(found, "install")) == ({"kmod-nvidia-open-dkms": None}, {"kmod-nvidia-latest-dkms": f"3:{OLD}-1.el9"})


def test_a_kernel_that_nobody_asked_for_is_refused(host: Host) -> None:
    said = host.run("packages", packages={"kernel-devel-matched": ""}, repository=host.repository())["msg"]
    assert "would bring the kernel packages" in said and "kernel-core" in said


def test_what_no_repository_has_is_named(host: Host) -> None:
    assert f"nvidia-driver-cuda-3:{OLD}9-1.el9" in host.packages(OLD + "9", ("nvidia-driver-cuda",))["msg"]
    said = host.packages("535.309.01", ("nvidia-driver-NVML",))["msg"]
    assert "other module streams have nvidia-driver-NVML-3:535.309.01-1.el9" in said


def test_what_was_fetched_is_installed_without_the_site(host: Host) -> None:
    wanted = (*USER_SPACE, "kmod-nvidia-open-dkms")
    assert host.packages(NEW, wanted, fetch_only=True)["changed"] is False
    assert host.version("nvidia-driver-cuda") == f"3:{OLD}-1.el9"
    host.node.lab.fault("site", "gone")
    try:
        assert "Cannot download" in host.packages(NEW, wanted)["msg"]
        found = host.packages(NEW, wanted, refresh=False)
    finally:
        host.node.lab.fault("site", "ok")
    assert set(names(found, "change").values()) == {f"3:{NEW}-1.el9"}
    assert {host.version(name) for name in wanted} == {f"3:{NEW}-1.el9"}
    assert host.node("modinfo", "-F", "version", "nvidia").strip() == NEW


def test_a_version_that_others_need_is_not_lowered_alone(host: Host) -> None:
    said = host.packages(OLD, ("libnvidia-ml",))["msg"]
    assert "refused: the transaction would lower" in said or "dnf finds no way" in said
    assert host.version("nvidia-driver-cuda") == f"3:{NEW}-1.el9"


def test_an_older_version_that_is_asked_for_as_a_whole_comes(host: Host) -> None:
    found = host.packages(OLD, (*USER_SPACE, "kmod-nvidia-open-dkms"), check=True)
    assert set(names(found, "change").values()) == {f"3:{OLD}-1.el9"}


def test_two_versions_of_one_package_are_cleaned_up(host: Host) -> None:
    """As a transaction leaves them that was cut off between the new files and the old ones."""
    rpm = f"{SITE}nvidia-persistenced-{OLD}-1.el9.x86_64.rpm"
    host.node("curl", "-fsS", "-o", "/tmp/old.rpm", rpm)
    host.node("rpm", "-i", "--justdb", "--nodeps", "--noscripts", "--force", "--oldpackage", "/tmp/old.rpm")
    assert len(host.node("rpm", "-q", "nvidia-persistenced").split()) == 2
    found = host.packages(NEW)
    assert found["changed"] is True
    assert host.version("nvidia-persistenced") == f"3:{NEW}-1.el9"
    assert host.packages(NEW)["changed"] is False


def test_another_run_of_dnf_is_waited_for_but_not_for_ever(host: Host) -> None:
    host.node.lab.run(host.node.name, "cat >/tmp/hold.py", HOLD)
    host.node("systemd-run", "--unit=hold-dnf", "python3", "/tmp/hold.py")
    try:
        host.node("sh", "-c", "for i in $(seq 100); do [ -e /var/cache/dnf/metadata_lock.pid ] && exit 0; sleep 0.1; done; exit 1")
        said = host.packages(OLD, ("nvidia-modprobe",), lock_timeout=1)["msg"]
    finally:
        host.node("systemctl", "stop", "hold-dnf")
    assert "another run of dnf did not end within 1 s" in said


def planned(host: Host) -> dict[str, Any]:
    """Return what the resolver plans for the host as it is."""
    known = catalog()
    request = {"driver": "580", "mirror": "http://vendor.lab", "mirror_key_fingerprint": host.fingerprint}
    ids = _resolve.managed_ids(known, request)
    facts = host.run("facts", managed=ids)["ansible_facts"]["gpu_fleet"]
    return _resolve.resolve_stack(known, request, None, None, facts, None, TODAY)


def test_a_plans_locks_hold_the_driver_whoever_upgrades(host: Host) -> None:
    host.node("rm", "-f", STREAM_FILE, REPO, KEY)
    host.node.lab.run(host.node.name, f"cat >{LOCKS}", "# somebody's\nhtop-0:3.2-1.el9.*\n")
    made = planned(host)
    assert "refusal" not in made, made
    source = made["repositories"][0]
    host.run("key", url=source["key_url"], fingerprint=source["fingerprint"], dest=source["key_path"])
    assert host.run("files", items=[item for item in made["managed"] if item["role"] == "nvidia_driver"])["changed"] is True
    assert host.run("locks", items=made["managed"])["changed"] is True
    assert host.run("locks", items=made["managed"])["changed"] is False
    host.run("packages", packages=made["packages"]["nvidia_driver"], repository=source)
    left = [name for name in planned(host)["differs"]["nvidia_driver"] if not name.startswith(("module:", "unit:"))]
    assert left == []
    host.node.lab.fault("site", "newer")
    try:
        host.node("dnf", "-y", "-q", "--refresh", "upgrade")
        host.node.lab.run(host.node.name, "cat >/tmp/automatic.py", AUTOMATIC)
        host.node("sh", "-c", "printf '[commands]\\napply_updates = yes\\n[emitters]\\nemit_via = stdio\\n' >/etc/dnf/automatic.conf")
        host.node("python3", "/tmp/automatic.py")
        assert {host.version(name) for name in (*USER_SPACE, "kmod-nvidia-open-dkms")} == {f"3:{NEW}-1.el9"}
        updates = host.run("facts")["ansible_facts"]["gpu_fleet"]["updates"]
        assert updates["automatic"][0]["exposed"] == [] and "htop-0:3.2-1.el9.*" in updates["versionlock"]
        # Without the locks the same command would move it.
        loose = host.node.run("dnf", "--assumeno", "--disableplugin=versionlock", "upgrade").stdout
        assert "580.195.03" in loose
    finally:
        host.node.lab.fault("site", "ok")


def test_a_newer_kernel_that_somebody_installs_starts_next(host: Host) -> None:
    running = host.node("uname", "-r").strip()
    host.node("dnf", "-y", "-q", "upgrade", "kernel")
    facts = host.run("facts")["ansible_facts"]["gpu_fleet"]["driver"]
    following = facts["next_boot"]["kernel"]
    assert following != running and following in facts["kernels"] and facts["kernels"][following]["initramfs"]
    assert {"asked_by_dnf", "newer_kernel"} <= {reason["id"] for reason in facts["reboot_reasons"]}
    host.node.reboot()
    assert host.node("uname", "-r").strip() == following
    assert host.run("facts")["ansible_facts"]["gpu_fleet"]["driver"]["reboot_reasons"] == []
