# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole observation of made-up hosts, and the page that documents its shape."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils import _boot, _observe, _observe_driver, _record, _runner, _transaction
from ansible_collections.gpu.fleet.plugins.modules import gpu_facts
from ansible_collections.gpu.fleet.plugins.plugin_utils import _facts_schema
from fixtures import smi, software_host
from fixtures.sysfs_host import KERNEL, Host, report

DIVIDED = [(1, 0, "40448 MiB"), (2, 0, "40448 MiB")]
# What it has on the bus for RDMA.
HCAS = ("14", "24", "34", "44", "54", "64", "74", "84", "a1")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(_runner, "SEARCH", str(made.bin))
    for name in ("sleep", "cat", "sh", "head"):
        (made.bin / name).symlink_to(f"/bin/{name}")
    return made


def divide(host: Host) -> None:
    """Let the first GPU be in MIG mode, the second one's memory have retired pages, and every section of the report have something to say."""
    gpus = [smi.gpu(address, number, DIVIDED if number == 0 else ()) for number, address in enumerate(host.addresses)]
    whole = (text.replace("<current_mig>Enabled", "<current_mig>Disabled") for text in gpus[1:])
    gpus[1:] = [text.replace(">N/A</retired_count>", ">0</retired_count>") for text in whole]
    host.says("xml", smi.report(gpus))
    host.says("list", smi.listing(host.addresses, ["3g.40gb", "1c.3g.40gb"]))
    host.says("gpu_instances", smi.GPU_INSTANCES)
    host.says("compute_instances", smi.COMPUTE_INSTANCES)


def test_the_schema_describes_what_is_observed(host: Host) -> None:
    found = [host.observe()]
    divide(host)
    found.append(host.observe())
    (host.bin / "nvidia-smi").unlink()
    host.tree.file("/etc/cdi/old.yaml", software_host.specification(7, "535.309.01"))
    host.tree.file(_observe_driver.RECORD, json.dumps(change_of_driver(status="rolled_back", reason="build failed: x", waits_for="a boot")))
    found.append(host.observe())
    assert [violation for facts in found for violation in _facts_schema.violations(facts)] == []
    observed = {path for facts in found for path, _ in _facts_schema.seen(facts)}
    missing = {path for path, types, _ in _facts_schema.FIELDS if types != "null"} - observed
    assert missing == set(), f"plugins/plugin_utils/_facts_*.py has fields that are not observed: {sorted(missing)}"


def test_the_schema_names_each_field_once() -> None:
    paths = [path for path, _, _ in _facts_schema.FIELDS]
    assert sorted(set(paths)) == sorted(paths)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"gpus": [{"colour": "green"}]}, ["gpus[].colour: str"]),
        ({"gpus": [{"index": "0"}]}, ["gpus[].index: str"]),
        ({"gpus": {"0": 1}}, ["gpus.0: int"]),
        ({"host": {"name": None}}, ["host.name: null"]),
        ({"topology": {"gpu_gpu": {"a": {"b": {"path": 3}}}}}, ["topology.gpu_gpu.<address>.<address>.path: int"]),
        ({"more": 1}, ["more: int"]),
    ],
)
def test_an_unannounced_shape_is_noticed(change: dict[str, Any], found: list[str]) -> None:
    assert _facts_schema.violations(change) == found


def test_a_healthy_host_has_no_problems(host: Host) -> None:
    facts = host.observe()
    assert facts["problems"] == []
    assert facts["schema"] == 1
    assert len(facts["gpus"]) == 8
    assert {gpu["model"] for gpu in facts["gpus"]} == {"NVIDIA H100 80GB HBM3"}
    assert facts["topology"]["gpu_gpu"][host.addresses[0]][host.addresses[7]] == {"path": "SYS", "nvlinks": 18, "source": "sysfs, nvidia-smi"}
    driver = facts["driver"]
    path = f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
    assert driver["on_disk"] == {KERNEL: {"version": "580.178.04", "flavour": "open", "path": path, "signer": "DKMS module signing key"}}
    assert (driver["loaded"], driver["user_space"]) == ({"version": "580.178.04", "flavour": "open"}, "580.178.04")
    assert (driver["owner"], driver["flavour"]) == ("nvidia", "open")
    assert driver["fabric_manager"] == {"version": "580.178.04", "active": True}
    assert {reason["id"]: reason["seen"] for reason in driver["reboot_reasons"]} == {
        "asked_by_packages": "no package named",
        "pending_module_options": "nvidia NVreg_CreateImexChannel0 is 0, /etc/modprobe.d/nvidia.conf says 1",
        "pending_kernel_options": "not in force: iommu=pt",
        "pending_nic_settings": "; ".join(f"0000:{bus}:00.0 SRIOV_EN is False(0), next True(1)" for bus in HCAS),
        "nova_core_loaded": "nova_core is bound to 1 devices, nvidia 580.178.04 is on disk",
    }
    assert driver["next_boot"] == {"kernel": KERNEL, "source": "/boot/grub/grub.cfg", "once": False, "module": "580.178.04"}
    newer = ["/etc/modprobe.d", "/etc/modprobe.d/nvidia.conf"]
    initramfs = {"path": f"/boot/initrd.img-{KERNEL}", "older_than": newer}
    assert driver["kernels"] == {KERNEL: {"installed": True, "headers": False, "initramfs": initramfs}}
    built = {"module": "nvidia", "version": "580.178.04", "kernel": KERNEL, "architecture": "x86_64"}
    assert driver["dkms"] == [{**built, "state": "installed", "notes": ["original_module exists"]}]
    assert (driver["libcuda"], driver["gsp_firmware"], driver["kept_out"]) == ("580.178.04", ["580.178.04"], ["nouveau"])
    owners = {"driver": "nvidia", "rdma": "inbox", "fabric_manager": "nvidia"}
    assert {name: facts["owners"][name] for name in owners} == owners
    (automatic,) = facts["updates"]["automatic"]
    exposed = automatic.pop("exposed")
    assert automatic == {"tool": "unattended-upgrades", "enabled": False, "excludes": ["linux-"], "origins": ["origin=Debian"]}
    assert "nvidia-fabricmanager" in exposed
    assert "nvidia-driver-cuda" not in exposed
    assert facts["busy"] == {"jobs": driver["holders"], "holders": 1}
    volatile = facts["volatile"][host.addresses[0]]
    assert (volatile["power_limit_w"], volatile["mig"], volatile["compute_mode"], volatile["mig_geometry"]) == (700.0, "disabled", "Default", [])
    assert facts["limits"]["memlock"]["service"] == "unlimited"
    assert facts["managed"] == {
        "package:nvidia-driver-cuda": {"version": "580.178.04-1"},
        "unit:nvidia-persistenced.service": {"enabled": True, "active": True},
        "python_environment:/opt/env": {"state": "present", "packages": {"torch": "2.13.0+cpu"}},
        "unit:-x": None,
    }
    assert json.loads(json.dumps(facts)) == facts


def test_services_of_the_driver_are_nobodys_job(host: Host) -> None:
    host.tree.file("/proc/77/cgroup", "0::/system.slice/nvidia-persistenced.service")
    assert host.observe()["busy"] == {"jobs": [], "holders": 1}


def test_who_may_not_look_does_not_call_the_host_idle(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.listdir

    def listdir(path: str) -> list[str]:
        if path.endswith("/77/fd"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    facts = host.observe()
    assert (facts["busy"], facts["driver"]["holders"]) == (None, None)
    assert problems(facts) == {"holders": "1 processes of other users could not be looked into"}


def problems(facts: dict[str, Any]) -> dict[str, str]:
    return {entry["probe"]: entry["reason"] for entry in facts["problems"]}


def test_a_hanging_driver_costs_its_own_facts_only(host: Host) -> None:
    host.program("nvidia-smi", "sleep 60")
    begin = time.monotonic()
    facts = host.observe(probe_timeout=0.5)
    assert time.monotonic() - begin < 3
    assert problems(facts) == {"nvidia-smi": "no answer within 0.5 s", "nvidia-smi nvlink": "no answer within 0.5 s"}
    assert len(facts["gpus"]) == 8
    assert facts["gpus"][0]["uuid"] is None
    assert facts["driver"]["loaded"]["version"] == "580.178.04"
    assert facts["volatile"] is None


def test_everything_hangs(host: Host) -> None:
    for name in ("nvidia-smi", "modinfo", "dpkg-query", "systemctl", "mlxconfig"):
        host.program(name, "sleep 60")
    begin = time.monotonic()
    facts = host.observe(timeout=1, probe_timeout=3)
    assert time.monotonic() - begin < 3
    adapters = {f"mlxconfig 0000:{bus}:00.0" for bus in HCAS}
    assert set(problems(facts)) == {"nvidia-smi", "nvidia-smi nvlink", "modinfo", "packages", "systemd", *adapters}
    assert (facts["driver"]["nic_settings"], facts["updates"]["holds"]) == ({}, None)
    assert len(facts["gpus"]) == 8
    assert facts["driver"]["packages"] is None
    assert facts["driver"]["owner"] is None
    assert facts["driver"]["loaded"]["version"] == facts["driver"]["user_space"] == "580.178.04"
    assert facts["managed"] == {
        "package:nvidia-driver-cuda": None,
        "unit:nvidia-persistenced.service": None,
        "python_environment:/opt/env": {"state": "present", "packages": {"torch": "2.13.0+cpu"}},
        "unit:-x": None,
    }


def test_version_mismatch_is_an_answer(host: Host) -> None:
    host.program("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    facts = host.observe()
    assert problems(facts)["nvidia-smi"] == "exit status 18: Failed to initialize NVML: Driver/library version mismatch"
    assert facts["gpus"][0]["model"] is None


def test_garbage_from_the_driver(host: Host) -> None:
    host.program("nvidia-smi", "head -c 1000000 /dev/zero")
    facts = host.observe()
    assert "damaged" in problems(facts)["nvidia-smi"]
    assert len(facts["gpus"]) == 8


def test_gpus_that_only_one_side_knows(host: Host) -> None:
    host.says("xml", report([*host.addresses[:7], "0000:ff:00.0"]))
    facts = host.observe()
    reasons = [entry["reason"] for entry in facts["problems"]]
    assert reasons == [
        "the driver names 0000:ff:00.0, which is not on the PCI bus",
        f"{host.addresses[7]} is on the PCI bus but the driver does not name it",
    ]
    assert [gpu["address"] for gpu in facts["gpus"]] == host.addresses
    assert facts["gpus"][7]["uuid"] is None


def test_missing_tools_are_problems(host: Host) -> None:
    for name in ("nvidia-smi", "modinfo", "dpkg-query", "systemctl"):
        (host.bin / name).unlink()
    found = problems(host.observe())
    assert found["nvidia-smi"] == "nvidia-smi is not installed"
    assert found["modinfo"] == "modinfo is not installed"
    assert found["packages"] == "rpm is not installed"
    assert found["systemd"] == "systemctl is not installed"


def test_an_unloaded_driver_is_not_asked(host: Host) -> None:
    (host.tree.root / "sys/module/nvidia/version").unlink()
    (host.tree.root / "sys/module/nvidia").rmdir()
    host.program("nvidia-smi", f"touch {host.bin.parent}/asked")
    facts = host.observe()
    assert not (host.bin.parent / "asked").exists()
    assert facts["driver"]["loaded"] is None
    assert facts["problems"] == []


def test_without_switches_links_are_not_spread_over_pairs(host: Host) -> None:
    for number in range(0x93, 0x97):
        (host.tree.root / f"sys/bus/pci/devices/0000:{number:02x}:00.0").unlink()
    host.says("xml", report(host.addresses).replace("<state>Completed</state>", "<state>N/A</state>"))
    facts = host.observe()
    assert facts["topology"]["gpu_gpu"][host.addresses[0]][host.addresses[1]]["nvlinks"] is None
    assert "not known" in problems(facts)["nvidia-smi nvlink"]


def test_links_from_gpu_to_gpu_are_counted_for_each_pair(host: Host) -> None:
    for number in range(0x93, 0x97):
        (host.tree.root / f"sys/bus/pci/devices/0000:{number:02x}:00.0").unlink()
    host.says("xml", report(host.addresses).replace("<state>Completed</state>", "<state>N/A</state>"))
    ring = {n: [(n + 1) % 8, (n + 1) % 8, (n - 1) % 8, (n - 1) % 8] for n in range(8)}
    # The second link between the first two GPUs is dead, at both its ends.
    dead = {(0, 1), (1, 3)}
    status = peers = ""
    for n, ends in ring.items():
        status += f"GPU {n}: NVIDIA V100 (UUID: GPU-{n})\n"
        status += "".join(f"\t Link {link}: {'<inactive>' if (n, link) in dead else '25.781 GB/s'}\n" for link in range(4))
        peers += f"GPU {n}: NVIDIA V100 (UUID: GPU-{n})\n"
        peers += "".join(f"\t Link {link}: Remote Device 0000{host.addresses[m].upper()}: Link 0\n" for link, m in enumerate(ends))
    host.says("links", status)
    host.says("peers", peers)
    facts = host.observe()
    row = facts["topology"]["gpu_gpu"][host.addresses[0]]
    assert [row[address]["nvlinks"] for address in host.addresses[1:]] == [1, 0, 0, 0, 0, 0, 2]
    assert facts["topology"]["gpu_gpu"][host.addresses[1]][host.addresses[0]]["nvlinks"] == 1
    assert [link["peer"] for link in facts["gpus"][0]["nvlinks"]] == [host.addresses[n] for n in (1, 1, 7, 7)]
    assert problems(facts) == {}


def test_one_gpu_without_links_among_others_is_named(host: Host) -> None:
    text = (host.bin.parent / "links").read_text().replace("(UUID: GPU-0)\n", "(UUID: GPU-0)\nNVML: all links are inActive\nGPU 9: X (UUID: x)\n")
    host.says("links", text)
    facts = host.observe()
    assert facts["gpus"][0]["nvlinks"] == []
    assert facts["topology"]["gpu_gpu"][host.addresses[0]][host.addresses[1]]["nvlinks"] == 0
    assert problems(facts) == {"nvidia-smi nvlink": f"{host.addresses[0]} has no active NVLink: NVML: all links are inActive"}


def test_dnf_is_asked_on_its_own_hosts_alone(host: Host) -> None:
    answer = "Core libraries have been updated:\\n  * kernel\\n\\nReboot is required to fully utilize these updates."
    host.program("dnf", f"printf '{answer}'; exit 1")
    assert "asked_by_dnf" not in {reason["id"] for reason in host.observe()["driver"]["reboot_reasons"]}
    host.tree.file("/usr/bin/dnf", "")
    (host.tree.root / "usr/bin/apt-get").unlink()
    facts = host.observe()
    assert {"id": "asked_by_dnf", "seen": "kernel"} in facts["driver"]["reboot_reasons"]
    assert facts["problems"] == []
    host.program("dnf", "echo 'No such command: needs-restarting.' >&2; exit 1")
    facts = host.observe()
    assert "asked_by_dnf" not in {reason["id"] for reason in facts["driver"]["reboot_reasons"]}
    assert problems(facts) == {"dnf needs-restarting": "exit status 1: No such command: needs-restarting."}


def test_an_adapter_that_does_not_answer_is_a_problem_of_its_own(host: Host) -> None:
    fails = 'if [ "$2" = 0000:14:00.0 ]; then echo "-E- Failed to open the device" >&2; exit 3; fi'
    host.program("mlxconfig", fails + '; echo "Configurations: Default Current Next Boot"')
    facts = host.observe()
    assert problems(facts) == {"mlxconfig 0000:14:00.0": "exit status 3: -E- Failed to open the device"}
    assert len(facts["driver"]["nic_settings"]) == 8



def test_what_breaks_in_one_step_leaves_the_others_and_the_shape(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> Any:
        raise RuntimeError("bad disk")

    monkeypatch.setattr(_boot, "next_boot", broken)
    facts = host.observe()
    assert problems(facts) == {"boot": "RuntimeError: bad disk"}
    assert (facts["driver"]["reboot_reasons"], facts["driver"]["next_boot"], facts["driver"]["kernels"]) == (None, None, None)
    assert facts["driver"]["dkms"] and facts["updates"]["automatic"] and facts["owners"]["rdma"] == "inbox"
    assert _facts_schema.violations(facts) == []


@pytest.mark.parametrize("body", [":", "head -c 300000 /dev/urandom", "echo 'libcuda1	1'"])
def test_a_list_of_packages_that_is_none_is_not_an_empty_one(host: Host, body: str) -> None:
    host.program("dpkg-query", body)
    facts = host.observe()
    assert "list of packages" in problems(facts)["packages"]
    assert (facts["driver"]["packages"], facts["driver"]["owner"], facts["updates"]["holds"]) == (None, None, None)
    assert facts["managed"]["package:nvidia-driver-cuda"] is None
    shutil.rmtree(host.tree.root / "usr/local/cuda-13.0")
    assert host.observe()["owners"]["dcgm"] is None


@pytest.mark.parametrize("body", [":", "head -c 300000 /dev/urandom", "echo LoadState=loaded"])
def test_a_systemctl_that_says_something_else_is_a_problem(host: Host, body: str) -> None:
    host.program("systemctl", body)
    facts = host.observe()
    assert problems(facts)["systemd"] == "systemctl did not answer about the units that it was asked for"
    assert facts["managed"]["unit:nvidia-persistenced.service"] is None


def test_a_modinfo_that_says_something_else_is_a_problem(host: Host) -> None:
    host.program("modinfo", "head -c 300000 /dev/urandom")
    facts = host.observe()
    assert problems(facts)["modinfo"] == f"modinfo says nothing of /lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
    assert facts["driver"]["on_disk"][KERNEL]["version"] is None


@pytest.mark.parametrize("text", ["[1]", '"x"', "3"])
def test_a_record_that_is_no_mapping_is_none(host: Host, text: str) -> None:
    host.tree.file(_observe.RECORD, text)
    facts = host.observe()
    assert facts["record"] is None
    assert problems(facts) == {"record": f"{_observe.RECORD} holds no mapping"}


def test_one_thing_that_cannot_be_asked_for_costs_no_other(host: Host) -> None:
    asked = [("file", "/etc/os-release"), ("file", "/a\0b"), ("directory", "relative"), ("keyring", ""), ("python_environment", "~/env")]
    facts = _observe.observe(
        {"managed"}, [{"kind": kind, "id": name} for kind, name in asked], 10, 3, str(host.tree.root),
    )  # fmt: skip
    assert facts["managed"]["file:/etc/os-release"]["state"] == "file"
    assert [facts["managed"][f"{kind}:{name}"] for kind, name in asked[1:]] == [None] * 4
    reasons = [entry["reason"] for entry in facts["problems"] if entry["probe"] == "managed"]
    assert len(reasons) == 4
    assert "'directory:relative' cannot be looked at: its id is no absolute path" in reasons


def test_an_os_release_without_a_name_is_a_problem(host: Host) -> None:
    host.tree.file("/etc/os-release", "\x00\x01rubbish")
    facts = host.observe({"managed"})
    assert problems(facts)["host"] == "os-release names no distribution"
    assert (facts["host"]["distribution"], _facts_schema.violations(facts)) == (None, [])


def test_no_reason_acts_on_the_terminal(host: Host) -> None:
    host.program("nvidia-smi", "printf '\\033[31mEVIL\\007' >&2; exit 9")
    assert problems(host.observe())["nvidia-smi"] == "exit status 9: ?[31mEVIL?"


def change_of_driver(**changes: Any) -> dict[str, Any]:
    """Return the record of a change, as it is begun."""
    asked = {"mode": "reload", "may_reboot": False, "settings": []}
    return {**_transaction.new("one to two", asked, {"version": "580.178.04"}, {"version": "535.309.01"}, []), **changes}


def test_the_last_change_of_driver_is_told(host: Host) -> None:
    assert host.observe()["driver"]["transaction"] is None
    store = _record.Store(str(host.tree.root / "var/lib/gpu_fleet/driver"))
    assert str(host.tree.root) + _observe_driver.RECORD == store.path and _observe_driver.RECORD_SCHEMA == _record.SCHEMA
    store.write(change_of_driver(step="build"))
    facts = host.observe()
    assert facts["problems"] == []
    assert facts["driver"]["transaction"] == {
        "id": "one to two", "status": "running", "direction": "forward", "step": "build", "from": "535.309.01", "to": "580.178.04",
        "reason": None, "waits_for": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{half", "JSONDecodeError: "),
        ("[]", "TypeError: "),
        ("{}", "KeyError: 'schema'"),
        ('{"schema": 99}', f"{_observe_driver.RECORD} is of schema 99, and this release knows schema 1"),
    ],
)
def test_a_record_of_a_change_that_cannot_be_understood(host: Host, text: str, reason: str) -> None:
    host.tree.file(_observe_driver.RECORD, text)
    facts = host.observe()
    assert list(problems(facts)) == ["transaction"] and problems(facts)["transaction"].startswith(reason)
    assert (facts["driver"]["transaction"], facts["driver"]["loaded"]["version"]) == (None, "580.178.04")


def test_broken_record_and_toolkit_files(host: Host) -> None:
    host.tree.file(_observe.RECORD, "{half")
    host.tree.file("/usr/local/cuda-13.0/version.json", "{")
    facts = host.observe()
    assert set(problems(facts)) == {"record", "cuda"}
    assert facts["record"] is None
    host.tree.file(_observe.RECORD, '{"verdict": "pass"}')
    assert host.observe()["record"] == {"verdict": "pass"}


@pytest.mark.parametrize(
    ("subset", "present", "absent"),
    [
        ("hardware", {"gpus", "nics", "topology", "interfaces"}, {"driver", "busy", "volatile", "pytorch", "managed"}),
        ("driver", {"driver", "busy"}, {"gpus", "topology", "pytorch", "managed"}),
        ("software", {"pytorch", "cuda", "nccl", "limits"}, {"gpus", "driver", "managed"}),
        ("managed", {"managed"}, {"gpus", "driver", "pytorch"}),
    ],
)
def test_subsets(host: Host, subset: str, present: set[str], absent: set[str]) -> None:
    facts = host.observe({subset})
    assert facts["problems"] == []
    assert {key for key in present if facts[key] is None} == set()
    assert {key for key in absent if facts[key] is not None} == set()
    assert set(facts) == set(_observe.FIELDS) | {"schema", "problems"}
    assert facts["host"]["distribution"] == "debian"


def run_module(arguments: dict[str, Any]) -> dict[str, Any]:
    """The module as Ansible starts it, in an interpreter of its own."""
    script = (
        "import json, sys\n"
        "from ansible.module_utils import basic\n"
        "from ansible.module_utils.testing import patch_module_args\n"
        "from ansible_collections.gpu.fleet.plugins.modules import gpu_facts\n"
        "with patch_module_args(json.loads(sys.argv[1])):\n"
        "    gpu_facts.main()\n"
    )
    root = Path(__file__).parents[4]
    env = {**os.environ, "PYTHONPATH": str(root / "collections")}
    done = subprocess.run([sys.executable, "-c", script, json.dumps(arguments)], env=env, capture_output=True, text=True, check=False)
    return dict(json.loads(done.stdout))


def test_the_module_observes_this_machine_also_in_check_mode() -> None:
    result = run_module({"_ansible_check_mode": True, "gather_subset": ["!driver", "!managed"]})
    assert result["changed"] is False
    facts = result["ansible_facts"]["gpu_fleet"]
    assert facts["host"]["kernel"] == os.uname().release
    assert isinstance(facts["gpus"], list)
    assert facts["driver"] is None


ALL = {"hardware", "driver", "software", "managed"}


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        ([], ALL),
        (["all"], ALL),
        (["min"], set()),
        (["!all"], set()),
        (["min", "hardware"], {"hardware"}),
        (["all", "min"], ALL),
        (["!driver"], ALL - {"driver"}),
        (["!driver", "!managed"], {"hardware", "software"}),
        (["all", "!driver"], ALL - {"driver"}),
        (["driver", "software", "!driver"], {"software"}),
        (["!driver", "driver"], set()),
        (["hardware", "!all"], set()),
        (["hardware", "driver"], {"hardware", "driver"}),
    ],
)
def test_groups_that_are_asked_for(names: list[str], groups: set[str]) -> None:
    assert _observe.chosen(names) == groups


@pytest.mark.parametrize("name", ["gpus", "!gpus", "!!driver", "!min", "!", "", "xall", "Driver", "!Driver"])
def test_an_unknown_group_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="gather_subset has no group") as refusal:
        _observe.chosen(["all", name])
    assert repr(name) in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gather_subset": ["gpus"]}, "gather_subset has no group 'gpus'; there are all, min, hardware, driver, software, managed"),
        ({"timeout": 0}, "timeout is 0.0; it must be more than 0 and at most 3600 seconds"),
        ({"probe_timeout": -1}, "probe_timeout is -1.0; it must be more than 0 and at most 3600 seconds"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    result = run_module(arguments)
    assert result["failed"] is True
    assert words in result["msg"]


@pytest.mark.parametrize("names", [["min"], ["!all"]])
def test_the_least_that_is_always_there(names: list[str]) -> None:
    facts = run_module({"gather_subset": names})["ansible_facts"]["gpu_fleet"]
    assert {key for key, value in facts.items() if value is not None} - {"record"} == {"schema", "boot_id", "host", "problems"}
    assert facts["problems"] == []


@pytest.mark.parametrize("block", ["DOCUMENTATION", "EXAMPLES", "RETURN"])
def test_documentation_is_yaml(block: str) -> None:
    assert yaml.safe_load(getattr(gpu_facts, block))
