# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No upgrade moves the driver, whatever a repository offers; what keeps it is proved, and all of it can be undone.

One host, on which somebody had installed an earlier driver as the vendor's own pages say; its tests run in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from integration import poison
from integration.harness import CHECKOUT, Outcome, plan, play
from integration.poison import must
from lab.client import HostSpec, Lab
from own_lab import own_lab

HOST = "n1"
EARLIER, WANTED = "580.159.04", "580.178.04"
NAMES = (
    *("nvidia-driver-cuda", "libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-opencl-icd", "nvidia-modprobe"),
    *("nvidia-kernel-open-dkms", "nvidia-kernel-support", "firmware-nvidia-gsp", "nvidia-persistenced"),
)
PIN = "/etc/apt/preferences.d/gpu-fleet-nvidia.pref"
FENCE = "/etc/apt/apt.conf.d/51gpu-fleet-unattended-upgrades"
SITE = "http://vendor.lab/compute/cuda/repos/debian12/x86_64"
KEYRING = "/usr/share/keyrings/cuda-archive-keyring.asc"
LEGACY = "/etc/apt/sources.list.d/cuda-debian12-x86_64.list"
MAIN = "/etc/apt/sources.list"
# As an installation of some years ago left a host: a list of its own, one line in the main list, a key that is trusted for every source.
EARLIER_HOST = f"""
export DEBIAN_FRONTEND=noninteractive
python3 -c "import urllib.request as u; open('{KEYRING}', 'wb').write(u.urlopen('{SITE}/3bf863cc.pub').read())"
cp {KEYRING} /etc/apt/trusted.gpg.d/cuda.asc
echo 'deb [signed-by={KEYRING}] {SITE}/ /' >{LEGACY}
printf '# The site.\\ndeb [signed-by={KEYRING}] {SITE} /\\ndeb [trusted=yes] file:/srv/local ./\\n' >{MAIN}
mkdir -p /srv/local && : >/srv/local/Packages
apt-get -q update
apt-get -q -y install --no-install-recommends unattended-upgrades {" ".join(f"{name}={EARLIER}-1" for name in NAMES)}
apt-mark hold libcuda1
modprobe nvidia
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Lab]:
    """Give the host, before this collection has seen it."""
    with own_lab("upgrades", [HostSpec(HOST, image="debian12", profile="t4-pcie1")]) as lab:
        must(lab, HOST, EARLIER_HOST)
        poison.prepare(lab, HOST)
        yield lab


@pytest.fixture(scope="module")
def before(host: Lab) -> dict[str, str]:
    """Give what others had set up on it."""
    lab_files = must(host, HOST, f"cat {LEGACY}"), must(host, HOST, f"cat {MAIN}"), must(host, HOST, "sha256sum </etc/apt/trusted.gpg.d/cuda.asc")
    return dict(zip((LEGACY, MAIN, "key"), lab_files, strict=True)) | {"holds": must(host, HOST, "apt-mark showhold")}


@pytest.fixture(scope="module")
def managed(host: Lab, before: dict[str, str]) -> Lab:
    """Give it with the driver that is asked for."""
    outcome = site(host)
    assert outcome.rc == 0, outcome.tail(80)
    assert before["holds"] == "libcuda1\n", "the hold of somebody else did not keep what the plan names"
    return host


def site(lab: Lab, **extra: Any) -> Outcome:
    """Run the part of the main job that is about the driver."""
    asked = {"gpu_stack_driver": WANTED, "gpu_stack_pytorch": "", "gpu_stack_disruption": "idle", **extra}
    return play("site.yml", lab.name, options="--tags nvidia_driver", extra=asked)


def proof(lab: Lab, options: str = "") -> str:
    """Return what the proof complains of; nothing where it passes."""
    asked = {"gpu_stack_driver": WANTED, "gpu_stack_pytorch": ""}
    outcome = play(str(CHECKOUT / "tests/integration/proof.yml"), lab.name, extra=asked, options=options)
    if outcome.rc == 0:
        assert outcome.results("apt_upgrade_info"), outcome.tail()
        return ""
    return str([event for event in outcome.events if event["event"] == "runner_on_failed"][-1]["event_data"]["res"]["msg"])


def upgrade(lab: Lab) -> str:
    """Return what apt says of a full upgrade that concerns the driver."""
    said = must(lab, HOST, "apt-get -q --simulate dist-upgrade")
    return "\n".join(re.findall(r"^(?:Inst|Remv) \S*(?:nvidia|cuda).*", said, re.MULTILINE))


def unattended(lab: Lab) -> list[str]:
    """Return the packages that the real unattended-upgrades would upgrade."""
    said = must(lab, HOST, "unattended-upgrade --dry-run --verbose 2>&1; cat /var/log/unattended-upgrades/unattended-upgrades.log; "
                           "rm /var/log/unattended-upgrades/*")  # fmt: skip
    assert "Starting unattended upgrades script" in said
    return re.findall(r"\S+", " ".join(re.findall(r"Packages that will be upgraded: (.*)", said)))


@contextmanager
def without(lab: Lab, *layers: str) -> Iterator[None]:
    """Take away what keeps the driver, and put it back."""
    held = must(lab, HOST, "apt-mark showhold").split()
    away = {"pin": f"mv {PIN} /root/pin", "fence": f"mv {FENCE} /root/fence", "hold": f"apt-mark unhold {' '.join(held)}"}
    back = {"pin": f"mv /root/pin {PIN}", "fence": f"mv /root/fence {FENCE}", "hold": f"apt-mark hold {' '.join(held)}"}
    for layer in layers:
        must(lab, HOST, away[layer])
    try:
        yield
    finally:
        for layer in layers:
            must(lab, HOST, back[layer])


@contextmanager
def poisoned(lab: Lab) -> Iterator[None]:
    """Let the host know the source that would push the driver out, and the vendor's newer release."""
    lab.fault("site", "newer")
    poison.offer(lab, HOST)
    try:
        yield
    finally:
        lab.fault("site", "ok")
        poison.offer(lab, HOST, on=False)


def test_failure_07_one_entry_and_one_key_are_left(managed: Lab, before: dict[str, str]) -> None:
    """Two entries with different keys, or a stale one, made apt of every GPU host refuse everything."""
    naming = must(managed, HOST, "grep -rl vendor.lab/compute /etc/apt/sources.list /etc/apt/sources.list.d")
    assert naming.split() == ["/etc/apt/sources.list.d/gpu-fleet-nvidia.sources"]
    assert must(managed, HOST, "ls /etc/apt/trusted.gpg.d | grep -c cuda || true") == "0\n"
    assert must(managed, HOST, f"cat {MAIN}") == "# The site.\ndeb [trusted=yes] file:/srv/local ./\n", "what is not the repository's stays"
    assert "vendor.lab" in must(managed, HOST, "apt-get -q update")
    # Without that, this is what apt says.
    conflict = managed.run(HOST, ["sh", "-c", f"echo '{before[LEGACY]}' >{LEGACY}; apt-get -q update; code=$?; rm {LEGACY}; exit $code"])
    assert conflict.returncode != 0 and "Conflicting values set for option Signed-By" in conflict.stderr


def test_failure_07_a_key_that_comes_again_is_seen(managed: Lab) -> None:
    """A key that is trusted for every source would let this repository's owner answer for all of them."""
    must(managed, HOST, "cp /etc/apt/keyrings/gpu-fleet-nvidia.asc /etc/apt/trusted.gpg.d/again.asc")
    outcome = site(managed)
    assert outcome.rc == 0 and "trusted_key:" in str(plan(outcome, HOST)["differs"]), outcome.tail()
    assert must(managed, HOST, "ls /etc/apt/trusted.gpg.d | grep -c again || true") == "0\n"


# A source of the same owner elsewhere, without a keyring of its own: apt checks it by what it trusts for everything.
TOOLS = f"""
mkdir -p /srv/tools && cd /srv/tools
for name in InRelease Packages Packages.gz; do
    python3 -c "import urllib.request as u; open('$name', 'wb').write(u.urlopen('{SITE}/$name').read())"
done
echo 'deb file:/srv/tools ./' >/etc/apt/sources.list.d/tools.list
"""


def test_a_key_that_another_source_needs_stays(managed: Lab) -> None:
    """Without it apt would take nothing from any source any more."""
    key = "/etc/apt/trusted.gpg.d/tools.asc"
    assert managed.run(HOST, ["sh", "-ec", TOOLS + "apt-get -q update -o APT::Update::Error-Mode=any"]).returncode, "it is not checked by any key"
    must(managed, HOST, f"cp /etc/apt/keyrings/gpu-fleet-nvidia.asc {key} && apt-get -q update -o APT::Update::Error-Mode=any")
    outcome = site(managed)
    assert outcome.rc == 0 and outcome.changed_tasks() == [], outcome.tail()
    must(managed, HOST, f"ls {key} && apt-get -q update -o APT::Update::Error-Mode=any")
    must(managed, HOST, "rm /etc/apt/sources.list.d/tools.list && apt-get -q update")
    outcome = site(managed)
    assert outcome.rc == 0 and must(managed, HOST, f"ls {key} || true") == "", outcome.tail()


def test_failure_01_a_full_upgrade_leaves_the_driver(managed: Lab) -> None:
    """User space that moves under a loaded module is what takes nodes down."""
    with poisoned(managed):
        assert upgrade(managed) == ""
        assert unattended(managed) == []
        assert proof(managed) == ""
        with without(managed, "pin", "hold", "fence"):
            assert "999.1-1" in upgrade(managed), "the repositories are not poisonous: this test could not fail"
            assert "nvidia-modprobe" in unattended(managed)


def test_failure_02_unattended_upgrades_are_fenced_off(managed: Lab) -> None:
    """The fence keeps them off by itself, and only the fence does, where pins and holds are gone."""
    with poisoned(managed), without(managed, "pin", "hold"):
        assert not [name for name in unattended(managed) if "nvidia" in name or "cuda" in name]
        with without(managed, "fence"):
            assert "nvidia-modprobe" in unattended(managed)


def test_failure_03_the_whole_closure_is_kept(managed: Lab) -> None:
    """A pin on the metapackage is none on what it depends on."""
    installed = must(managed, HOST, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\\n'").splitlines()
    driver = {row.split()[0]: row.split()[2] for row in installed if row.endswith(" installed") and row.split()[1].startswith(WANTED)}
    assert set(NAMES) <= set(driver)
    assert set(driver.values()) == {"hold"}
    with poisoned(managed):
        policy = must(managed, HOST, f"LC_ALL=C apt-cache policy {' '.join(driver)}")
        assert set(re.findall(r"Candidate: (\S+)", policy)) == {f"{WANTED}-1"}
        with without(managed, "pin", "hold"):
            must(managed, HOST, f"printf 'Package: nvidia-driver-cuda\\nPin: version {WANTED}-1\\nPin-Priority: 1001\\n' >{PIN}")
            assert re.search("(Inst|Remv) libcuda1", upgrade(managed))
            must(managed, HOST, f"rm {PIN}")


def test_failure_09_nothing_pushes_the_driver_out(managed: Lab) -> None:
    """A package of another source that conflicts with the driver: pins do not keep it from being removed, holds do."""
    with poisoned(managed):
        assert upgrade(managed) == ""
        with without(managed, "hold"):
            assert "Remv libcuda1" in upgrade(managed), "the agent is not poisonous: this test could not fail"
            assert "remove libcuda1" in proof(managed)


@pytest.mark.parametrize(("layer", "said"), [("pin", "not pinned: "), ("hold", "not on hold: "), ("fence", "open to unattended-upgrades: ")])
def test_the_proof_fails_without(managed: Lab, layer: str, said: str) -> None:
    """Each of the three is missed although the other two would do."""
    with poisoned(managed), without(managed, layer):
        reason = proof(managed)
        assert said in reason and "nvidia-modprobe" in reason and "site.yml" in reason


def test_check_mode_proves_the_plan(managed: Lab) -> None:
    """What a run would put back counts as there: its check mode must not fail for what it is about to mend."""
    with poisoned(managed), without(managed, "pin", "hold", "fence"):
        assert proof(managed, "--check") == ""


def test_the_same_lock_gives_the_same_plan(managed: Lab) -> None:
    """Newer builds in the catalog and in the repository move nothing while the lock stays."""
    asked = {"gpu_stack_driver": "580", "gpu_stack_lock": {"driver": {"580": WANTED}}}
    first = site(managed, **asked)
    assert first.rc == 0 and first.changed_tasks() == [], first.tail()
    with poisoned(managed):
        newer = catalog_with("580.195.03")
        second = site(managed, **asked, **newer)
        assert second.rc == 0 and second.changed_tasks() == [], second.tail()
        assert plan(second, HOST) == plan(first, HOST)
        moved = site(managed, gpu_stack_driver="580", gpu_stack_disruption="never", gpu_stack_pending_ok=True, **newer)
        assert plan(moved, HOST)["components"]["driver"]["wanted"]["version"] == "580.195.03", "without the lock it would move"


def catalog_with(version: str) -> dict[str, Any]:
    """Return the catalog's branches with a newer release of 580, as a variable that stands above the role's."""
    branches = yaml.safe_load((CHECKOUT / "roles/gpu_stack/vars/main/driver.yml").read_text())["__gpu_stack_driver_branches"]
    newer = [{**entry, "versions": [version, *entry["versions"]]} if entry["branch"] == 580 else entry for entry in branches]
    return {"__gpu_stack_driver_branches": newer}


def test_a_full_upgrade_right_after_the_way_back_moves_nothing(managed: Lab) -> None:
    """The former driver was there before this collection, and nobody had kept it."""
    back = play("playbooks/rollback_driver.yml", managed.name, extra={"gpu_stack_disruption": "idle"})
    assert back.rc == 0, back.tail()
    assert must(managed, HOST, "cat /sys/module/nvidia/version").strip() == EARLIER
    with poisoned(managed):
        assert upgrade(managed) == "" and unattended(managed) == []
        with without(managed, "pin"):
            assert upgrade(managed) == "", "holds"
        with without(managed, "hold"):
            assert set(re.findall(r"Candidate: (\S+)", must(managed, HOST, f"LC_ALL=C apt-cache policy {' '.join(NAMES)}"))) == {f"{EARLIER}-1"}
    again = site(managed)
    assert again.rc == 0 and must(managed, HOST, "cat /sys/module/nvidia/version").strip() == WANTED, again.tail()


def test_unmanage_makes_the_host_what_it_was(managed: Lab, before: dict[str, str]) -> None:
    """Pins, holds, fences and repository go, what was put aside comes back, packages stay; a full upgrade then moves the driver as before."""
    packages = must(managed, HOST, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'")
    predicted = play("playbooks/unmanage.yml", managed.name, options="--check")
    assert predicted.rc == 0 and "gpu-fleet" in must(managed, HOST, "ls /etc/apt/sources.list.d"), predicted.tail()
    outcome = play("playbooks/unmanage.yml", managed.name)
    assert outcome.rc == 0, outcome.tail()
    assert outcome.results("managed_release")[-1][1]["changes"] == predicted.results("managed_release")[-1][1]["changes"]

    assert must(managed, HOST, "find /etc -name '*gpu[-_]fleet*'; ls /var/lib/gpu_fleet | grep -c managed.json || true") == "0\n"
    assert (must(managed, HOST, f"cat {LEGACY}"), must(managed, HOST, f"cat {MAIN}")) == (before[LEGACY], before[MAIN])
    assert must(managed, HOST, "sha256sum </etc/apt/trusted.gpg.d/cuda.asc") == before["key"]
    assert must(managed, HOST, "apt-mark showhold") == "libcuda1\n", "the hold that somebody else had set is theirs"
    assert must(managed, HOST, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'") == packages
    with poisoned(managed):
        must(managed, HOST, "apt-mark unhold libcuda1")
        assert "999.1-1" in upgrade(managed) and "nvidia-modprobe" in unattended(managed)

    # Nothing would keep what came back, so nothing comes back.
    assert must(managed, HOST, "ls -d /var/lib/gpu_fleet/driver || true") == ""
    refused = play("playbooks/rollback_driver.yml", managed.name, extra={"gpu_stack_disruption": "idle"})
    assert refused.rc != 0 and "no record of a change of driver" in " ".join(refused.stdout.split())
    assert must(managed, HOST, "find /etc -name '*gpu[-_]fleet*'") == ""
    again = play("playbooks/unmanage.yml", managed.name)
    assert again.rc == 0 and again.changed_tasks() == [], again.tail()
