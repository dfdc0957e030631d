# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Breaks and mends hardware of the running host, in every face at once."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from . import machine as machines
from . import secureboot
from .faces import show
from .machine import Machine, load_faults, save_faults
from .state import log, read

USAGE = """lab-fault KIND [ARGS]
  link-down GPU [LINK ...|all]      NVLinks of a GPU are inactive (default: link 0)
  ib-down DEVICE [polling|disabled|no-subnet-manager]
  nic-half-rate DEVICE              an RDMA port runs at half its rate
  pcie-x8 GPU|DEVICE                a PCIe link has eight lanes
  gpu-off-bus GPU                   a GPU is dead, and not found any more after a reboot
  ecc-pending GPU                   a row or page of memory waits for a reset to be taken out of use
  smi-hang                          nvidia-smi does not answer
  heal [KIND [GPU|DEVICE]]          takes faults back (default: all)
  secure-boot on|off                the switch in the firmware's setup, from the next start on
  confirm-keys                      somebody at the console enrols the keys that mokutil asked for, at the next start
  hold-gpu [GPU ...]                a process opens the GPUs (default: GPU 0), as a job does
  release-gpu                       those processes end
GPU is a number as nvidia-smi gives it on the healthy machine, or a PCI address."""
JOB_UNIT = "lab-job"
HOLDER = "/usr/local/lib/lab/hold-gpu"


class Refused(Exception):
    """A request that makes no sense on this machine."""


def main(words: list[str]) -> int:
    """Carry out one request."""
    try:
        act(words)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 2
    return 0


def act(words: list[str]) -> None:
    """Change the faults or the holders, and show the result."""
    if not words:
        raise Refused(USAGE)
    kind, args = words[0], words[1:]
    machine = machines.load()
    if kind == "hold-gpu":
        hold(machine, args or ["0"])
        return
    if kind == "release-gpu":
        subprocess.run(["systemctl", "stop", JOB_UNIT], check=True)
        return
    if kind == "secure-boot" and args in (["on"], ["off"]):
        secureboot.turn(args[0])
        return
    if kind == "confirm-keys":
        if not secureboot.confirm():
            raise Refused("mokutil asked for no key")
        return
    faults = load_faults()
    if kind == "heal":
        target = target_of(machine, args[0], args[1]) if args[1:] else None
        kept = [fault for fault in faults if (args and fault["kind"] != args[0]) or (target and fault["target"] != target)]
    else:
        fault = make(machine, kind, args)
        kept = [other for other in faults if (other["kind"], other["target"]) != (kind, fault["target"])] + [fault]
        report(machine, fault)
    save_faults(kept)
    show(machines.load(), read())


def gpu_address(machine: Machine, word: str) -> str:
    """Return the address of a GPU that is given by number or address."""
    addresses = [gpu["address"] for gpu in machine.description["gpus"]]
    if word in addresses:
        return word
    if not word.isdigit() or int(word) >= len(addresses):
        raise Refused(f"no GPU {word!r} in this machine; it has {len(addresses)}")
    return str(addresses[int(word)])


def model_of(machine: Machine, address: str) -> dict[str, Any]:
    """Return what the profile says of a GPU's model."""
    name = next(gpu["model"] for gpu in machine.description["gpus"] if gpu["address"] == address)
    model: dict[str, Any] = machine.description["gpu_models"][name]
    return model


def corrects(machine: Machine, address: str) -> bool:
    """Tell whether a GPU's memory is checked for errors."""
    model = model_of(machine, address)
    return bool(model["ecc"] and model.get("ecc_on", True))


def device_name(machine: Machine, word: str) -> str:
    """Return the name of an RDMA device."""
    names = [device["name"] for device in machine.rdma]
    if word not in names:
        raise Refused(f"no RDMA device {word!r} in this machine; it has {', '.join(names) or 'none'}")
    return word


def target_of(machine: Machine, kind: str, word: str) -> str:
    """Return what a fault's argument stands for."""
    if kind in ("ib-down", "nic-half-rate"):
        return device_name(machine, word)
    if kind == "pcie-x8" and word in [device["name"] for device in machine.rdma]:
        return next(str(device["at"]) for device in machine.rdma if device["name"] == word)
    return gpu_address(machine, word)


def make(machine: Machine, kind: str, args: list[str]) -> dict[str, Any]:
    """Return the fault that a request asks for."""
    fault: dict[str, Any] = {"kind": kind, "target": None, "more": None, "boot": machine.boot}
    if kind == "smi-hang":
        return fault
    if kind not in ("link-down", "ib-down", "nic-half-rate", "pcie-x8", "gpu-off-bus", "ecc-pending") or not args:
        raise Refused(USAGE)
    fault["target"] = target_of(machine, kind, args[0])
    if kind == "ecc-pending" and not corrects(machine, fault["target"]):
        raise Refused(f"GPU {args[0]} does not check its memory for errors")
    if kind == "link-down":
        links = len(machine.links(fault["target"]))
        chosen = list(range(links)) if args[1:] == ["all"] else [int(word) for word in args[1:] or ["0"]]
        if not links or max(chosen) >= links:
            raise Refused(f"GPU {args[0]} has {links} NVLinks")
        fault["more"] = chosen
    elif kind == "ib-down":
        fault["more"] = args[1] if args[1:] else "polling"
        if fault["more"] not in ("polling", "disabled", "no-subnet-manager"):
            raise Refused(USAGE)
    return fault


def report(machine: Machine, fault: dict[str, Any]) -> None:
    """Write what the kernel's log has to say of a fault."""
    place = str(fault["target"] or "").rsplit(".", 1)[0]
    if fault["kind"] == "gpu-off-bus":
        log(f"NVRM: Xid (PCI:{place}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 3)
    elif fault["kind"] == "ecc-pending":
        rows = model_of(machine, fault["target"]).get("remap_banks")
        what = "Row Remapper: New row marked for remapping, reset gpu to activate." if rows else (
            "Dynamic Page Retirement: New page retired, reboot to activate (0x000000000002e42a)."
        )  # fmt: skip
        log(f"NVRM: Xid (PCI:{place}): 63, pid='<unknown>', name=<unknown>, {what}", 3)
    elif fault["kind"] == "link-down":
        for link in fault["more"]:
            log(f"NVRM: Xid (PCI:{place}): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link {link}", 3)
    elif fault["kind"] == "ib-down":
        device = next(device for device in machine.rdma if device["name"] == fault["target"])
        log(f"mlx5_core {device['at']} {device.get('interface', fault['target'])}: Link down")


def hold(machine: Machine, words: list[str]) -> None:
    """Start a process that keeps GPUs open, as a service of its own."""
    numbers = []
    for word in words:
        address = gpu_address(machine, word)
        numbers += [gpu["index"] for gpu in machine.gpus if gpu["address"] == address]
    files = [f"/dev/nvidia{number}" for number in numbers]
    service = ["systemd-run", "--quiet", f"--unit={JOB_UNIT}", "--collect", "--property=Type=notify", "--property=NotifyAccess=all"]
    done = subprocess.run([*service, HOLDER, *files], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"no process could open {' '.join(files)}: {done.stderr.strip()}")
