# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Readers for what nvidia-smi says. They take what is there, however damaged, and never raise or invent a device."""

from __future__ import annotations

import re
import typing as t
from xml.parsers import expat

from ansible_collections.gpu.fleet.plugins.module_utils._pci import address_of

# What a driver says when it has nothing to say.
NOTHING = ("", "n/a", "[n/a]", "none", "unknown error", "requested functionality has been deprecated")
# No element can have this name.
MIG_COUNT = "#mig_devices"
BUS_ID = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")
GPU_HEADER = re.compile(r"\s*GPU (\d+): (.+?) \(UUID: (\S+?)\)")
LINK = re.compile(r"\s*Link (\d+): (?:(\d+(?:\.\d+)?) GB/s|<?inactive>?)", re.I)
PEER = re.compile(r"\s*Link (\d+): Remote Device ([0-9A-Fa-f:]+\.[0-7]): Link \d+")


class Report(t.NamedTuple):
    """C(gpus) holds one flat mapping a GPU: C(id) and the text of each leaf by its path, such as C(mig_mode/current_mig)."""

    driver: t.Optional[str]
    cuda: t.Optional[str]
    attached: t.Optional[int]
    gpus: t.List[t.Dict[str, str]]
    damage: t.Optional[str]


def read_xml(text: str) -> Report:
    """Read C(nvidia-smi -q -x); a report that ends early keeps what came before."""
    top: dict[str, str] = {}
    gpus: list[dict[str, str]] = []
    path: list[str] = []
    words: list[str] = []
    now: dict[str, str] = top
    inside = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal now, inside
        path.append(name)
        words.clear()
        if name == "gpu" and not inside:
            now = {"id": attributes.get("id", "")}
            gpus.append(now)
            inside = len(path)
        elif name == "mig_device":
            now[MIG_COUNT] = str(int(now.get(MIG_COUNT, "0")) + 1)

    def end(_name: str) -> None:
        nonlocal now, inside
        value = "".join(words).strip()
        words.clear()
        if value and "mig_device" not in path:
            now.setdefault("/".join(path[inside or 1:]), value)
        if len(path) == inside:
            now, inside = top, 0
        path.pop()

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = words.append
    damage = None
    # Warnings come before the document when the driver is not well.
    begin = text.find("<?xml")
    begin = begin if begin >= 0 else text.find("<nvidia_smi_log")
    try:
        parser.Parse(text[begin:].encode("utf-8", "replace") if begin >= 0 else b"", True)
    except expat.ExpatError as error:
        damage = str(error)
    attached = whole(top.get("attached_gpus"))
    if damage is None and attached is not None and attached != len(gpus):
        damage = "%d GPUs announced, %d described" % (attached, len(gpus))
    return Report(said(top.get("driver_version")), said(top.get("cuda_version")), attached,
                  [gpu for gpu in gpus if BUS_ID.match(gpu["id"])], damage)


def said(text: str | None) -> str | None:
    """The text, or None for the many ways of saying nothing."""
    return None if text is None or text.strip().lower() in NOTHING else text.strip()


def number(text: str | None) -> float | None:
    """C("700.00 W") is 700.0."""
    found = re.match(r"\s*(-?\d+(?:\.\d+)?)\b", text or "")
    return float(found.group(1)) if found else None


def whole(text: str | None) -> int | None:
    value = number(text)
    return None if value is None else int(value)


def yes(text: str | None) -> bool | None:
    return {"yes": True, "no": False, "enabled": True, "disabled": False}.get((text or "").strip().lower())


def gpu_facts(gpu: dict[str, str]) -> dict[str, t.Any]:
    """What only the driver knows about one GPU, from its entry in a report of any driver generation."""
    ecc = None
    if yes(gpu.get("ecc_mode/current_ecc")) is not None:
        kinds = ("dram_uncorrectable", "sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded",
                 "double_bit/total")
        counts = {
            span: [whole(gpu.get("ecc_errors/%s/%s" % (span, kind))) for kind in kinds] for span in ("volatile", "aggregate")
        }
        ecc = {
            "mode": gpu["ecc_mode/current_ecc"].lower(),
            "pending": (said(gpu.get("ecc_mode/pending_ecc")) or "").lower() or None,
        }
        for span, values in counts.items():
            known = [value for value in values if value is not None]
            ecc[span + "_uncorrected"] = sum(known) if known else None  # type: ignore[assignment]
    remap = None
    if yes(gpu.get("remapped_rows/remapped_row_pending")) is not None:
        remap = {
            "pending": yes(gpu.get("remapped_rows/remapped_row_pending")),
            "failure": yes(gpu.get("remapped_rows/remapped_row_failure")),
            "uncorrected": whole(gpu.get("remapped_rows/remapped_row_unc")),
        }
    fabric = None
    if said(gpu.get("fabric/state")):
        fabric = {
            "state": gpu["fabric/state"],
            "status": said(gpu.get("fabric/status")),
            "clique": said(gpu.get("fabric/cliqueId")),
            "cluster": said(gpu.get("fabric/clusterUuid")),
        }
    reasons = [
        re.sub(r"^clocks_(event|throttle)_reasons?_", "", key.split("/")[1])
        for key, value in gpu.items()
        if re.match(r"clocks_(event|throttle)_reasons/", key) and value.lower() == "active"
    ]
    has_reasons = any(key.startswith(("clocks_event_reasons/", "clocks_throttle_reasons/")) for key in gpu)
    power = None
    for key in ("gpu_power_readings/current_power_limit", "gpu_power_readings/power_limit", "power_readings/enforced_power_limit",
                "power_readings/power_limit"):
        power = number(gpu.get(key)) if power is None else power
    return {
        "model": said(gpu.get("product_name")),
        "uuid": said(gpu.get("uuid")),
        "memory_mib": whole(gpu.get("fb_memory_usage/total")),
        "minor": whole(gpu.get("minor_number")),
        "ecc": ecc,
        "row_remap": remap,
        "mig_mode": (said(gpu.get("mig_mode/current_mig")) or "").lower() or None,
        "mig_devices": int(gpu.get(MIG_COUNT, "0")),
        "persistence_mode": yes(gpu.get("persistence_mode")),
        "compute_mode": said(gpu.get("compute_mode")),
        "clocks_event_reasons": reasons if has_reasons else None,
        "power_limit_w": power,
        "fabric": fabric,
        "recovery_action": said(gpu.get("gpu_recovery_action")),
    }


def by_address(report: Report) -> dict[str, dict[str, str]]:
    return {address_of(gpu["id"]): gpu for gpu in report.gpus}


def read_nvlink(text: str) -> dict[int, dict[str, t.Any]]:
    """Read C(nvidia-smi nvlink -s): C({index: {name, uuid, links: [{link, active, rate_gbs}], message}})."""
    found: dict[int, dict[str, t.Any]] = {}
    now: dict[str, t.Any] | None = None
    for line in text.splitlines():
        header = GPU_HEADER.match(line)
        if header:
            now = {"name": header.group(2), "uuid": header.group(3), "links": [], "message": None}
            found[int(header.group(1))] = now
            continue
        if now is None:
            continue
        link = LINK.match(line)
        if link:
            rate = float(link.group(2)) if link.group(2) else None
            now["links"].append({"link": int(link.group(1)), "active": rate is not None, "rate_gbs": rate, "peer": None})
        elif line.strip() and now["message"] is None:
            now["message"] = line.strip()
    return found


def read_peers(text: str) -> dict[str, dict[int, str]]:
    """Read C(nvidia-smi nvlink -R): the PCI address at the far end of each link, C({uuid: {link: address}})."""
    found: dict[str, dict[int, str]] = {}
    now: dict[int, str] = {}
    for line in text.splitlines():
        header, peer = GPU_HEADER.match(line), PEER.match(line)
        if header:
            now = found.setdefault(header.group(3), {})
        elif peer:
            now[int(peer.group(1))] = address_of(peer.group(2))
    return found
