# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""CDI specifications: what they give to containers, and whether that is what the host has now."""

from __future__ import annotations

import json
import os
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

GPU_KIND = "nvidia.com/gpu"
MOST_FILES = 64
MOST_BYTES = 4 << 20
LIBRARY = later(r"/lib(?:cuda|nvidia-[a-z0-9-]+)\.so\.(\d{3}\.\d+(?:\.\d+)?)(?![\w.])")
TOP = later(r"([A-Za-z]\w*):(?:\s+(.*?))?\s*$")
ITEM = later(r"(\s*)-(\s+)(.*)$")
QUOTED = later(r"""(?:"([^"]*)"|'([^']*)')\s*(?:#.*)?$""")
# What CDI allows in the name of a device.
DEVICE = later(r"[A-Za-z0-9](?:[\w.:-]*[A-Za-z0-9])?$")


def _plain(text: str | None) -> str:
    """A scalar of YAML without quotes and comment; quotes that do not close stay."""
    text = (text or "").strip()
    quoted = QUOTED.match(text)
    return quoted.group(1) or quoted.group(2) or "" if quoted else text.split(" #")[0].strip()


def read_yaml(text: str) -> tuple[dict[str, t.Any], list[str]]:
    """C({kind, version, devices}) and what could not be read, from a specification in YAML's block style as generators write it.

    Only top-level scalars and the names in the list C(devices) are looked at; whatever else there is may be any YAML.
    """
    found: dict[str, t.Any] = {"kind": None, "version": None, "devices": []}
    strange: list[str] = []
    section = ""
    column: int | None = None
    named = True
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() in ("---", "..."):
            continue
        top = TOP.match(line)
        if top:
            if not named:
                strange.append("a device before line %d has no name" % number)
            section, column, named = top.group(1), None, True
            value = _plain(top.group(2))
            if section in ("kind", "cdiVersion"):
                found["kind" if section == "kind" else "version"] = value or None
            elif section == "devices" and value not in ("", "[]", "null", "~"):
                strange.append("line %d: devices are not a list in block style" % number)
            continue
        if section != "devices":
            if not line[:1].isspace() and not line.startswith("-"):
                strange.append("line %d is not understood" % number)
            continue
        item = ITEM.match(line)
        body = line
        if item and (column is None or len(item.group(1)) == column - 2):
            if not named:
                strange.append("a device before line %d has no name" % number)
            named = False
            column = len(item.group(1)) + 2
            body = " " * column + item.group(3)
            if item.group(3)[:1] in "{[&*|>" or len(item.group(2)) != 1:
                strange.append("line %d: a device is not in block style" % number)
                named = True
                continue
        if column is not None and len(body) - len(body.lstrip()) == column and not named:
            key, colon, rest = body.strip().partition(": ")
            if key == "name" and colon:
                named = True
                if DEVICE.match(_plain(rest)):
                    found["devices"].append(_plain(rest))
                else:
                    strange.append("line %d: %s is no name of a device" % (number, rest.strip()[:40]))
    if not named:
        strange.append("the last device has no name")
    return found, strange


def read_json(text: str) -> tuple[dict[str, t.Any], list[str]]:
    """The same from a specification in JSON."""
    try:
        spec = json.loads(text)
    except ValueError as error:
        return {"kind": None, "version": None, "devices": []}, ["it is no JSON: %s" % error]
    if not isinstance(spec, dict):
        return {"kind": None, "version": None, "devices": []}, ["it is no object"]
    devices = spec.get("devices")
    names = [entry.get("name") for entry in (devices if isinstance(devices, list) else []) if isinstance(entry, dict)]
    return {
        "kind": spec.get("kind") if isinstance(spec.get("kind"), str) else None,
        "version": spec.get("cdiVersion") if isinstance(spec.get("cdiVersion"), str) else None,
        "devices": [str(name) for name in names if name is not None],
    }, ["a device has no name"] if None in names or not isinstance(devices, list) else []


def scan(system: System, folders: t.Sequence[str]) -> list[dict[str, t.Any]]:
    """Specifications by path: C({path, kind, version, devices, drivers, mtime, differs}); C(differs) is filled in by C(compare)."""
    found = []
    paths = [folder + "/" + name for folder in folders for name in system.names(folder) if name.endswith((".yaml", ".yml", ".json"))]
    if len(paths) > MOST_FILES:
        system.problem("there are %d CDI specifications; only %d were read" % (len(paths), MOST_FILES))
    for path in paths[:MOST_FILES]:
        text = system.read(path, MOST_BYTES)
        if text is None:
            continue
        spec, strange = read_json(text) if text.startswith("{") else read_yaml(text)
        if spec["kind"] is None:
            strange.append("it names no kind")
        if strange:
            system.problem("%s: %s" % (path, "; ".join(strange[:3])))
        # A damaged one still names the files that it would mount.
        drivers = sorted(set(LIBRARY.findall(text)))
        try:
            mtime: int | None = int(os.stat(system.path(path)).st_mtime)
        except OSError:
            mtime = None
        found.append(dict(spec, path=path, drivers=drivers, mtime=mtime, readable=not strange, differs=None))
    return found


def differences(spec: dict[str, t.Any], library: str | None, gpus: list[dict[str, t.Any]] | None) -> list[dict[str, str]]:
    """In what a specification of NVIDIA's GPUs is not of this host: C([{id, seen}]) with the ids driver, gpus, and mig."""
    found = []
    if library and spec["drivers"] and spec["drivers"] != [library]:
        found.append({"id": "driver", "seen": "mounts %s, user space %s" % (" and ".join(spec["drivers"]), library)})
    whole = {name for name in spec["devices"] if re.match(r"\d+$", name)}
    parts = {name for name in spec["devices"] if re.match(r"\d+:\d+$", name)}
    uuids = {name for name in spec["devices"] if name.startswith("GPU-")}
    if gpus is None or not spec["readable"] or not (whole or parts or uuids):
        return found
    # Without the driver's answer it is not known which GPUs are divided; those that are stand in a specification by their parts only.
    told = any(gpu.get("uuid") for gpu in gpus)
    undivided = [gpu for gpu in gpus if gpu.get("mig_mode") != "enabled"]
    if whole or parts:
        named, present = (len(whole), len(undivided)) if told else (len(whole | {name.split(":")[0] for name in parts}), len(gpus))
        if named != present:
            found.append({"id": "gpus", "seen": "names %d, present %d" % (named, present)})
        divided = sum(gpu.get("mig_devices") or 0 for gpu in gpus)
        if told and len(parts) != divided:
            found.append({"id": "mig", "seen": "names %d, present %d" % (len(parts), divided)})
    if told and uuids:
        now = {gpu["uuid"] for gpu in undivided}
        if uuids != now:
            # The same number of other GPUs: one was replaced.
            lost, new = sorted(uuids - now), sorted(str(name) for name in now - uuids)
            found.append({"id": "uuids", "seen": "names %s, present %s" % (", ".join(lost[:2]) or "all", ", ".join(new[:2]) or "no other")})
    return found
