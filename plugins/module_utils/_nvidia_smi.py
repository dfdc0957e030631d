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

from ansible_collections.gpu.fleet.plugins.module_utils._later import later
from ansible_collections.gpu.fleet.plugins.module_utils._pci import address_of

# What a driver says when it has nothing to say, mostly between brackets in tables.
NOTHING = (
    "", "n/a", "none", "err!", "not supported", "not found", "unknown error", "insufficient permissions", "gpu is lost", "gpu requires reset",
    "requested functionality has been deprecated",
)
BUS_ID = later(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")
GPU_LINE = later(r"\s*GPU (\d{1,4}): (\S.*?)\s*(?:\(UUID: ([^)\s]*)\)?|$)")
MIG_LINE = later(r"\s*MIG (\S+)\s+Device\s+(\d{1,4}):(?:\s*\(UUID: (MIG-[^)\s]+)\))?")
LINK = later(r"\s*Link (\d{1,4}): (?:(\d{1,9}(?:\.\d{1,9})?) GB/s|<?inactive>?)\s*$", re.I)
# What was one of these before it was damaged.
LIKE_ROW = later(r"\bMIG \d|^\|\s*\d")
LIKE_LINK = later(r"\bLink \d|GB/s", re.I)
PEER = later(r"\s*Link (\d{1,4}): Remote Device ([0-9A-Fa-f:]{7,16}\.[0-7]): Link \d{1,4}\s*$")
# Rows of "mig -lgi" and "mig -lci", whose titles differ by generation: GPU, (GPU instance,) profile, its id, the instance's id, placement.
GPU_INSTANCE = later(r"\|\s*(\d{1,4})\s+MIG (\S+)\s+(\d{1,4})\s+(\d{1,4})\s+(\d{1,4}):(\d{1,4})\s*\|\s*$")
COMPUTE_INSTANCE = later(r"\|\s*(\d{1,4})\s+(\d{1,4})\s+MIG (\S+)\s+(\d{1,4})\s+(\d{1,4})(?:\s+(\d{1,4}):(\d{1,4}))?\s*\|\s*$")


class Report(t.NamedTuple):
    """C(gpus) holds one flat mapping a GPU: C(id) and the text of each leaf by its path, such as C(mig_mode/current_mig).

    The leaves of MIG devices, which are many, are in C(mig) at the same place: a list of such mappings a GPU, with paths below C(mig_device).
    """

    driver: t.Optional[str]
    cuda: t.Optional[str]
    attached: t.Optional[int]
    gpus: t.List[t.Dict[str, str]]
    mig: t.List[t.List[t.Dict[str, str]]]
    damage: t.Optional[str]


def read_xml(text: str) -> Report:
    """Read C(nvidia-smi -q -x); a report that ends early keeps what came before."""
    top: dict[str, str] = {}
    gpus: list[dict[str, str]] = []
    mig: list[list[dict[str, str]]] = []
    path: list[str] = []
    words: list[str] = []
    # Where leaves go now, and the depth below which they belong there.
    places: list[tuple[dict[str, str], int]] = [(top, 1)]

    def start(name: str, attributes: dict[str, str]) -> None:
        path.append(name)
        words.clear()
        if name == "gpu" and len(places) == 1:
            gpus.append({"id": attributes.get("id", "")})
            mig.append([])
            places.append((gpus[-1], len(path)))
        elif name == "mig_device" and len(places) == 2:
            mig[-1].append({})
            places.append((mig[-1][-1], len(path)))

    def end(_name: str) -> None:
        value = "".join(words).strip()
        words.clear()
        now, depth = places[-1]
        if value:
            now.setdefault("/".join(path[depth:]), value)
        if len(places) > 1 and len(path) == depth:
            places.pop()
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
        parser.Parse(without_clocks(text[begin:]).encode("utf-8", "replace") if begin >= 0 else b"", True)
    except expat.ExpatError as error:
        damage = str(error)
    attached = whole(top.get("attached_gpus"))
    found = [place for place, gpu in enumerate(gpus) if BUS_ID.match(gpu["id"])]
    known = {address_of(gpus[place]["id"]) for place in found}
    if damage is None and attached is not None and attached != len(gpus):
        damage = "%d GPUs announced, %d described" % (attached, len(gpus))
    elif damage is None and len(known) != len(gpus):
        damage = "%d GPUs described, %d of them with an address of their own" % (len(gpus), len(known))
    return Report(said(top.get("driver_version")), said(top.get("cuda_version")), attached,
                  [gpus[place] for place in found], [mig[place] for place in found], damage)


def without_clocks(text: str) -> str:
    """A report without its lists of hundreds of supported clocks: nobody asks for them, and they take most of the time to read."""
    before, *parts = text.split("<supported_clocks>")
    end = "</supported_clocks>"
    return before + "".join(part.partition(end)[2] if end in part else "<supported_clocks>" + part for part in parts)


def said(text: str | None) -> str | None:
    """The text, or None for the many ways of saying nothing."""
    text = (text or "").strip()
    return None if text.lower().strip("[]") in NOTHING else text


def number(text: str | None) -> float | None:
    """C("700.00 W") is 700.0."""
    found = re.match(r"\s*(-?\d{1,18}(?:\.\d{1,18})?)\b", text or "")
    return float(found.group(1)) if found else None


def whole(text: str | None) -> int | None:
    value = number(text)
    return None if value is None else int(value)


def yes(text: str | None) -> bool | None:
    return {"yes": True, "no": False, "enabled": True, "disabled": False, "true": True, "false": False,
            "on": True, "off": False}.get((text or "").strip().lower())


def read_list(text: str) -> tuple[list[dict[str, t.Any]], list[str]]:
    """Read C(nvidia-smi -L): GPUs as C({index, name, uuid, mig: [{index, profile, uuid}]}), and what is wrong with the text."""
    gpus: list[dict[str, t.Any]] = []
    problems: list[str] = []
    for line in text.splitlines():
        gpu, mig = GPU_LINE.match(line), MIG_LINE.match(line)
        if gpu and (not gpu.group(3) or gpu.group(3).startswith("MIG-")):
            problems.append("GPU %s has no UUID of its own: its line is damaged" % gpu.group(1))
        elif gpu and any(known["uuid"] == gpu.group(3) and known["index"] == int(gpu.group(1)) for known in gpus):
            problems.append("GPU %s is listed twice" % gpu.group(1))
        elif gpu:
            gpus.append({"index": int(gpu.group(1)), "name": gpu.group(2), "uuid": gpu.group(3), "mig": []})
        elif mig and gpus:
            if any(known["index"] == int(mig.group(2)) for known in gpus[-1]["mig"]):
                problems.append("GPU %d has MIG device %s twice: a line is lost" % (gpus[-1]["index"], mig.group(2)))
            gpus[-1]["mig"].append({"index": int(mig.group(2)), "profile": mig.group(1), "uuid": mig.group(3)})
        elif mig:
            problems.append("a MIG device stands before any GPU")
    return gpus, problems or ([] if gpus else ["no GPU in the text"])


def read_geometry(gpu_instances: str, compute_instances: str) -> dict[int, list[dict[str, t.Any]]] | None:
    """Read C(nvidia-smi mig -lgi) and C(-lci): how each GPU is divided, by its number; None when a row cannot be read.

    C({0: [{id, profile, profile_id, start, size, compute_instances: [the same, start and size None where not told]}]})
    """
    found: dict[int, list[dict[str, t.Any]]] = {}
    for line in gpu_instances.splitlines():
        row = GPU_INSTANCE.match(line)
        if not row and LIKE_ROW.search(line):
            return None
        if row:
            gpu, profile_id, number, first, size = (int(row.group(place)) for place in (1, 3, 4, 5, 6))
            found.setdefault(gpu, []).append({
                "id": number, "profile": row.group(2), "profile_id": profile_id, "start": first, "size": size, "compute_instances": [],
            })
    for line in compute_instances.splitlines():
        row = COMPUTE_INSTANCE.match(line)
        parent = row and next((entry for entry in found.get(int(row.group(1)), []) if entry["id"] == int(row.group(2))), None)
        if LIKE_ROW.search(line) and not parent:
            return None
        if row and parent:
            parent["compute_instances"].append({
                "id": int(row.group(5)), "profile": row.group(3), "profile_id": int(row.group(4)),
                "start": whole(row.group(6)), "size": whole(row.group(7)),
            })
    return found


def read_nvlink(text: str) -> dict[int, dict[str, t.Any]]:
    """Read C(nvidia-smi nvlink -s): C({index: {name, uuid, links: [{link, active, rate_gbs}], message, whole}}).

    C(whole) is false where lines are damaged or those of another GPU, whose title is lost, follow.
    """
    found: dict[int, dict[str, t.Any]] = {}
    now: dict[str, t.Any] | None = None
    for line in text.splitlines():
        header = GPU_LINE.match(line)
        if header:
            now = None
            if header.group(3):
                now = {"name": header.group(2), "uuid": header.group(3), "links": [], "message": None, "whole": True}
                found[int(header.group(1))] = now
            continue
        if now is None:
            continue
        link = LINK.match(line)
        if (link and (now["message"] or int(link.group(1)) in (other["link"] for other in now["links"]))) or (not link and LIKE_LINK.search(line)):
            now["whole"] = False
        elif link:
            rate = float(link.group(2)) if link.group(2) else None
            now["links"].append({"link": int(link.group(1)), "active": rate is not None, "rate_gbs": rate})
        elif line.strip() and now["message"] is None:
            now["message"] = line.strip()
    return found


def read_peers(text: str) -> dict[str, dict[int, str]]:
    """Read C(nvidia-smi nvlink -R): the PCI address at the far end of each link, C({uuid: {link: address}})."""
    found: dict[str, dict[int, str]] = {}
    now: dict[int, str] = {}
    for line in text.splitlines():
        header, peer = GPU_LINE.match(line), PEER.match(line)
        if header:
            now = found.setdefault(header.group(3), {}) if header.group(3) else {}
        elif peer and int(peer.group(1)) in now:
            # The title of another GPU is lost.
            now = {}
        elif peer:
            now[int(peer.group(1))] = address_of(peer.group(2))
        elif "GPU " in line:
            now = {}
    return found
