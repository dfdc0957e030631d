# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.

"""Judging one node: what was observed and what its framework said, against what its plan expects.

A check is C({id, verdict, seen, wanted, evidence}); C(verdict) is pass, fail or skip (nothing to judge, and why).
C(seen), C(wanted) and C(evidence) are short texts for people; C(wanted) of a skipped check is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Check: TypeAlias = dict[str, Any]
Facts: TypeAlias = Mapping[str, Any]


def check(name: str, good: bool | None, seen: object, wanted: object = None, evidence: object = "") -> Check:
    """One check; C(good) None means that it was skipped."""
    verdict = "skip" if good is None else "pass" if good else "fail"
    return {
        "id": name,
        "verdict": verdict,
        "seen": text(seen),
        "wanted": None if wanted is None else text(wanted),
        "evidence": text(evidence),
    }


def text(value: object) -> str:
    """Short words for a value."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {text(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple, set)):
        return ", ".join(text(item) for item in value)
    return str(value)


def verdict(checks: Sequence[Check]) -> str:
    """A node passes when something was judged and nothing failed."""
    judged = [found["verdict"] for found in checks if found["verdict"] != "skip"]
    return "pass" if judged and "fail" not in judged else "fail"


def few(items: Sequence[str], most: int = 6) -> str:
    """The first items, and how many more there are."""
    more = len(items) - most
    return "; ".join(items[:most]) + (f"; and {more} more" if more > 0 else "")


def agrees(version: str | None, wanted: str) -> bool:
    """Whether a version is the wanted one, which may be given by its first fields only."""
    if version is None:
        return False
    public, _plus, local = wanted.partition("+")
    seen_public, _plus, seen_local = version.partition("+")
    fields = public.split(".")
    return seen_public.split(".")[: len(fields)] == fields and (not local or local == seen_local)


def gpu_count(observed: Facts, expected: Facts) -> Check:
    gpus = observed.get("gpus")
    wanted = expected.get("gpus")
    if gpus is None:
        return check("inventory.gpus", False if wanted else None, None, wanted, problems(observed, "pci"))
    if wanted is None:
        return check("inventory.gpus", None, len(gpus), None, "the plan expects no particular number")
    models = sorted({gpu.get("model") or gpu.get("device_id") or "unknown" for gpu in gpus})
    return check("inventory.gpus", len(gpus) == wanted, len(gpus), wanted, few(models))


def driver_count(observed: Facts, expected: Facts) -> Check:
    gpus = observed.get("gpus") or []
    if not gpus or not expected.get("driver"):
        return check("inventory.driver_sees_gpus", None, "no driver is part of the plan" if gpus else "no GPU")
    lost = [gpu["address"] for gpu in gpus if not gpu.get("uuid")]
    evidence = f"not reported by the driver: {few(lost)}. {problems(observed, 'nvidia')}" if lost else ""
    return check("inventory.driver_sees_gpus", not lost, len(gpus) - len(lost), len(gpus), evidence.strip())


def lockstep(observed: Facts, expected: Facts) -> Check:
    name = "inventory.lockstep"
    if not observed.get("gpus") or not expected.get("driver"):
        return check(name, None, "no driver is part of the plan" if observed.get("gpus") else "no GPU")
    driver = observed.get("driver") or {}
    kernel = (observed.get("host") or {}).get("kernel")
    parts = {
        "loaded": (driver.get("loaded") or {}).get("version"),
        "on disk": ((driver.get("on_disk") or {}).get(kernel) or {}).get("version"),
        "user space": driver.get("user_space"),
    }
    if observed.get("nvswitches"):
        parts["fabric manager"] = (driver.get("fabric_manager") or {}).get("version")
    good = len(set(parts.values())) == 1 and agrees(parts["loaded"], expected["driver"])
    return check(name, good, parts, f"all {expected['driver']}")


def fabric_manager(observed: Facts, expected: Facts) -> Check:
    name = "inventory.fabric_manager"
    if not observed.get("nvswitches"):
        return check(name, None, "no NVSwitch")
    if not expected.get("driver"):
        return check(name, None, "no driver is part of the plan")
    manager = (observed.get("driver") or {}).get("fabric_manager") or {}
    return check(name, manager.get("active") is True, "active" if manager.get("active") else "not active", "active")


def fabric(observed: Facts, _expected: Facts) -> Check:
    """Whether the switches let the GPUs in: where they do not, nvidia-smi works and every program of CUDA fails with error 802."""
    name = "inventory.fabric"
    states = {gpu["address"]: gpu["fabric"] for gpu in observed.get("gpus") or [] if gpu.get("fabric")}
    if not states:
        return check(name, None, "no fabric reported")
    out = [f"{address} {found.get('state')} {found.get('status') or ''}".strip() for address, found in states.items() if not _let_in(found)]
    return check(name, not out, f"{len(states) - len(out)} of {len(states)} GPUs completed", "all completed", few(out))


def _let_in(found: Facts) -> bool:
    return found.get("state") == "Completed" and found.get("status") in (None, "Success")


def nvlink(observed: Facts, _expected: Facts) -> Check:
    links = {gpu["address"]: gpu["nvlinks"] for gpu in observed.get("gpus") or [] if gpu.get("nvlinks")}
    if not links:
        return check("inventory.nvlink", None, "no NVLink reported")
    down = [f"{address} link {link['link']}" for address, all_of in links.items() for link in all_of if not link.get("active")]
    total = sum(len(all_of) for all_of in links.values())
    most = max(len(all_of) for all_of in links.values())
    fewer = [f"{address} has {len(all_of)} of {most} links" for address, all_of in links.items() if len(all_of) < most]
    wanted = f"{most} on each of {len(links)} GPUs"
    return check("inventory.nvlink", not down and not fewer, f"{total - len(down)} of {total} links active", wanted, few([*down, *fewer]))


def ports(observed: Facts, expected: Facts) -> Check:
    """RDMA ports: those of a kind (device and link layer) that is in use are all active and equally fast."""
    name = "inventory.fabric_ports"
    kinds: dict[Any, list[Facts]] = {}
    for nic in observed.get("nics") or []:
        if not nic.get("virtual_function"):
            kinds.setdefault((nic.get("device_id"), nic.get("link_layer")), []).append(nic)
    used = [nics for nics in kinds.values() if sum(nic.get("state") == "ACTIVE" for nic in nics) * 2 > len(nics)]
    wanted = expected.get("nics")
    if not used and not wanted:
        return check(name, None, "no RDMA port in use" if kinds else "no RDMA device")
    found = []
    for nics in used:
        best = max(nic.get("rate_gbps") or 0 for nic in nics)
        for nic in nics:
            if nic.get("state") != "ACTIVE":
                found.append(f"{nic['name']} is {nic.get('state') or 'in an unknown state'}")
            elif nic.get("rate_gbps") and nic["rate_gbps"] < best:
                found.append(f"{nic['name']} runs at {nic['rate_gbps']:g} Gb/s, its siblings at {best:g}")
    total = sum(len(nics) for nics in used)
    active = sum(nic.get("state") == "ACTIVE" for nics in used for nic in nics)
    return check(
        name, not found and total >= (wanted or 0), f"{active} of {total} active", f"{max(total, wanted or 0)} active, equally fast", few(found)
    )


def pcie(observed: Facts, _expected: Facts) -> Check:
    """Width only: the generation of an idle device drops to save power."""
    devices = [*(observed.get("gpus") or []), *(observed.get("nics") or [])]
    links = [(device["address"], device["pcie"]) for device in devices if device.get("pcie")]
    known = [(address, link["width"], link["max_width"]) for address, link in links if link.get("width") and link.get("max_width")]
    if not known:
        return check("inventory.pcie_width", None, "no PCIe link reported")
    narrow = [f"{address} x{width} of x{most}" for address, width, most in known if width < most]
    return check("inventory.pcie_width", not narrow, f"{len(known) - len(narrow)} links at full width", f"all {len(known)}", few(narrow))


def memory(observed: Facts, _expected: Facts) -> Check:
    """ECC errors since the last reset, and rows that wait to be, or could not be, replaced."""
    gpus = observed.get("gpus") or []
    known = [gpu for gpu in gpus if gpu.get("ecc") or gpu.get("row_remap")]
    if not known:
        return check("inventory.gpu_memory", None, "no ECC report" if gpus else "no GPU")
    bad = []
    for gpu in known:
        ecc, rows = gpu.get("ecc") or {}, gpu.get("row_remap") or {}
        if ecc.get("volatile_uncorrected"):
            bad.append(f"{gpu['address']}: {ecc['volatile_uncorrected']} uncorrected errors")
        if rows.get("pending"):
            bad.append(f"{gpu['address']}: row replacement pending, reset the GPU")
        if rows.get("failure"):
            bad.append(f"{gpu['address']}: row replacement failed, replace the GPU")
    seen = "no error" if not bad else f"{len(bad)} GPU errors" if len(bad) > 1 else "1 GPU error"
    return check("inventory.gpu_memory", not bad, seen, "no uncorrected error, no pending row", few(bad))


def memlock(observed: Facts, expected: Facts) -> Check:
    """What a service may lock; observed in bytes, wanted in KiB."""
    wanted = expected.get("memlock")
    limits = (observed.get("limits") or {}).get("memlock") or {}
    if wanted is None:
        return check("inventory.memlock", None, limits or "unknown", None, "the plan sets no limit")
    goal = str(wanted) if str(wanted) == "unlimited" else str(int(wanted) * 1024)
    seen = limits.get("service")
    return check("inventory.memlock", None if seen is None else str(seen) == goal, limits or None, goal)


INVENTORY: tuple[Callable[[Facts, Facts], Check], ...] = (
    gpu_count,
    driver_count,
    lockstep,
    fabric_manager,
    fabric,
    nvlink,
    ports,
    pcie,
    memory,
    memlock,
)


def problems(observed: Facts, probe: str) -> str:
    """What the observation says about the probes whose name begins so."""
    entries = observed.get("problems") or []
    return few([f"{entry['probe']}: {entry['reason']}" for entry in entries if str(entry["probe"]).startswith(probe)], 2)


def framework(found: Facts, expected: Facts, trouble: str = "") -> list[Check]:
    """Checks of the framework stage. C(found) is what the node's framework said, or empty with C(trouble) saying why."""
    wanted = expected.get("torch")
    if not wanted:
        return [check("framework.torch", None, "no PyTorch is part of the plan")]
    if not found:
        return [check("framework.torch", False, "no answer", wanted, trouble)]
    checks = [check("framework.torch", agrees(found.get("torch"), wanted), found.get("torch"), wanted, found.get("python", ""))]
    if expected.get("cuda"):
        good = agrees(found.get("cuda"), str(expected["cuda"]))
        checks.append(check("framework.cuda", good, found.get("cuda"), expected["cuda"]))
    devices = found.get("devices") or []
    gpus = [device for device in devices if device["device"] != "cpu"]
    if found.get("cuda") and expected.get("gpus"):
        checks.append(check("framework.devices", len(gpus) == expected["gpus"], f"{len(gpus)} GPUs", expected["gpus"]))
    wrong = [f"{device['device']}: {device['error']}" for device in devices if device.get("error")]
    right = f"{len(devices) - len(wrong)} of {len(devices)} devices right"
    names = few([f"{device['device']} {device.get('name', '')}".strip() for device in devices])
    checks.append(check("framework.product", bool(devices) and not wrong, right, "all right", few(wrong) or names))
    return checks


def node_checks(observed: Facts | None, expected: Facts, found: Facts, trouble: str = "") -> list[Check]:
    """All checks of the inventory and framework stages of one node."""
    if not observed:
        return [check("inventory.observed", False, "no observation", "an observation", trouble)]
    return [*(judge(observed, expected) for judge in INVENTORY), *framework(found, expected, trouble)]


def shape(observed: Facts) -> dict[str, int]:
    """What siblings in a fabric should have in common."""
    nics = [nic for nic in observed.get("nics") or [] if nic.get("state") == "ACTIVE" and not nic.get("virtual_function")]
    return {
        "GPUs": len(observed.get("gpus") or []),
        "active RDMA ports": len(nics),
        "active NVLinks": sum(bool(link.get("active")) for gpu in observed.get("gpus") or [] for link in gpu.get("nvlinks") or []),
    }


def siblings(shapes: Mapping[str, Mapping[str, int]]) -> dict[str, Check]:
    """Check of each host of a fabric against the best equipped of its siblings: a device that has vanished leaves no other trace."""
    best = {name: max(mine[name] for mine in shapes.values()) for name in next(iter(shapes.values()), {})}
    donors = {name: next(host for host, mine in shapes.items() if mine[name] == most) for name, most in best.items()}
    found = {}
    for host, mine in shapes.items():
        less = [f"{mine[name]} {name}, {donors[name]} has {most}" for name, most in best.items() if mine[name] < most]
        found[host] = check("inventory.siblings", not less if len(shapes) > 1 else None, mine, best, few(less))
    return found
