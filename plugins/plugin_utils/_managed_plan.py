# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The things on a host that a plan answers for: {role, kind, id, desired}, with the contents of files made here."""

from __future__ import annotations

import hashlib
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _apt_plan, _dnf_plan, _driver_packages

Item = dict[str, Any]

STATE_FOLDER = "/var/lib/gpu_fleet"
LIMITS = "/etc/security/limits.d/90-gpu-fleet.conf"
MANAGER_LIMITS = "/etc/systemd/system.conf.d/90-gpu-fleet.conf"
USER_LIMITS = "/etc/systemd/user.conf.d/90-gpu-fleet.conf"
LOGIND = "/etc/systemd/logind.conf.d/90-gpu-fleet.conf"
NOUVEAU = "/etc/modprobe.d/gpu-fleet-nouveau.conf"
NCCL = "/etc/nccl.conf"
PIN = _apt_plan.PIN
PERSISTENCE_UNIT = "nvidia-persistenced.service"
FABRIC_UNIT = "nvidia-fabricmanager.service"
MODULE = "nvidia"
HEADER = "# Managed by gpu.fleet: changes made here are undone.\n"


def identity(item: Item) -> str:
    """Return the name under which gpu_facts reports an item's state."""
    return f"{item['kind']}:{item['id']}"


def file(role: str, path: str, content: str) -> Item:
    """Return a file of root's with this content."""
    digest = hashlib.sha256(content.encode()).hexdigest()
    desired = {"state": "file", "sha256": digest, "mode": "0644", "owner": "root", "group": "root", "content": content}
    return {"role": role, "kind": "file", "id": path, "desired": desired}


def no_file(role: str, path: str) -> Item:
    """Return that there is nothing at a path that only we write to."""
    return {"role": role, "kind": "file", "id": path, "desired": {"state": "absent"}}


def baseline(asked: dict[str, Any]) -> list[Item]:
    """Return what every node has: the service account, its folder, and limits that RDMA and shared memory need."""
    role, user = "node_baseline", asked["service_user"]
    memlock = "infinity" if asked["memlock"] == "unlimited" else f"{asked['memlock']}K"
    limits = "".join(f"*    {kind} memlock {asked['memlock']}\nroot {kind} memlock {asked['memlock']}\n" for kind in ("soft", "hard"))
    limits += "".join(f"*    {kind} nofile {asked['nofile']}\nroot {kind} nofile {asked['nofile']}\n" for kind in ("soft", "hard"))
    manager = f"[Manager]\nDefaultLimitMEMLOCK={memlock}\nDefaultLimitNOFILE={asked['nofile']}\n"
    return [
        {"role": role, "kind": "directory", "id": STATE_FOLDER, "desired": {"state": "directory", "mode": "0755", "owner": "root", "group": "root"}},
        {
            "role": role,
            "kind": "user",
            "id": user,
            "desired": {"state": "present", "system": True, "home": STATE_FOLDER, "shell": "/usr/sbin/nologin"},
        },
        file(role, LIMITS, HEADER + "# Limits of login sessions. PAM does not reach services; those get theirs from systemd.\n" + limits),
        file(role, MANAGER_LIMITS, HEADER + manager),
        file(role, USER_LIMITS, HEADER + manager),
        # Without this, logging out removes the shared memory of a running job of the same user.
        file(role, LOGIND, HEADER + "[Login]\nRemoveIPC=no\n"),
    ]


def repository(
    platform: dict[str, Any], mirror: str | None, fingerprint: str | None, proxy: str | None, wanted: dict[str, Any]
) -> dict[str, Any]:
    """Return where the vendor's packages come from."""
    if platform["package_manager"] == "dnf":
        return _dnf_plan.repository(HEADER, platform, mirror, fingerprint, proxy, _dnf_plan.stream(platform, wanted))
    return _apt_plan.repository(HEADER, platform, mirror, fingerprint, proxy)


def _for_apt(role: str, catalog: dict[str, Any], packages: dict[str, str], closure: list[str], source: dict[str, Any] | None) -> list[Item]:
    """Return what apt is told of the driver beside where its packages are."""
    items: list[Item] = []
    if source:
        items += _apt_plan.sources(role, catalog, source)
        through = _apt_plan.proxy(HEADER, source)
        items.append(file(role, _apt_plan.PROXY, through) if through else no_file(role, _apt_plan.PROXY))
    items += [file(role, PIN, _apt_plan.pin(HEADER, packages)), file(role, _apt_plan.FENCE, _apt_plan.fence(HEADER, closure))]
    return items + _apt_plan.holds(role, closure)


def _for_dnf(role: str, packages: dict[str, str], source: dict[str, Any] | None) -> list[Item]:
    """Return what dnf is told of the driver beside where its packages are; its locks bind automatic upgrades too."""
    stream = [_dnf_plan.stream_item(role, source["stream"])] if source and source.get("stream") else []
    return [*stream, *_dnf_plan.locks(role, packages)]


def driver(
    catalog: dict[str, Any],
    platform: dict[str, Any],
    wanted: dict[str, Any],
    packages: dict[str, str],
    closure: list[str],
    source: dict[str, Any] | None,
    fabric_manager: bool,
) -> list[Item]:
    """Return the driver: where it comes from, its packages and what keeps them, the loaded module, and its services."""
    role = "nvidia_driver"
    exact = {name: version for name, version in packages.items() if version}
    items: list[Item] = []
    if source:
        key = {"state": "file", "mode": "0644", "owner": "root", "group": "root", "fingerprints": [source["fingerprint"]]}
        items.append({"role": role, "kind": "keyring", "id": source["key_path"], "desired": key})
        items.append(file(role, source["path"], source["content"]))
    by_dnf = platform["package_manager"] == "dnf"
    items += _for_dnf(role, exact, source) if by_dnf else _for_apt(role, catalog, exact, closure, source)
    items.append(file(role, NOUVEAU, HEADER + "blacklist nouveau\noptions nouveau modeset=0\n"))
    items += [{"role": role, "kind": "package", "id": name, "desired": {"version": version}} for name, version in sorted(exact.items())]
    items.append({"role": role, "kind": "module", "id": MODULE, "desired": {"version": wanted["version"]}})
    units = [PERSISTENCE_UNIT, *([FABRIC_UNIT] if fabric_manager else [])]
    return items + [{"role": role, "kind": "unit", "id": unit, "desired": {"enabled": True, "active": True}} for unit in units]


def pytorch(wanted: dict[str, Any], prefix: str) -> list[Item]:
    """Return the environment that PyTorch lives in."""
    torch = f"{wanted['version']}+{wanted['tag']}"
    return [{"role": "conda_pytorch", "kind": "python_environment", "id": prefix, "desired": {"state": "present", "packages": {"torch": torch}}}]


def nccl(variables: dict[str, str]) -> list[Item]:
    """Return NCCL's system-wide settings, where there are any."""
    if not variables:
        return []
    return [file("nccl_tuning", NCCL, HEADER + "".join(f"{name}={value}\n" for name, value in sorted(variables.items())))]


def every_id(catalog: dict[str, Any], asked: dict[str, Any]) -> list[dict[str, str]]:
    """Return {kind, id} of everything that this request could manage on any platform."""
    ids = [("directory", STATE_FOLDER), ("user", asked["baseline"]["service_user"]), ("keyring", _apt_plan.KEYRING), ("module", MODULE)]
    ids += [("file", path) for path in (LIMITS, MANAGER_LIMITS, USER_LIMITS, LOGIND, NOUVEAU, NCCL)]
    ids += [("file", path) for path in (_apt_plan.SOURCES, _apt_plan.PROXY, PIN, _apt_plan.FENCE)]
    ids += [("keyring", _dnf_plan.KEYRING), ("file", _dnf_plan.REPOSITORY), ("stream", _dnf_plan.MODULE)]
    ids += [("source", name) for name in _apt_plan.places(asked["mirror"])]
    ids += [("trusted_key", key) for key in _apt_plan.keys(catalog, asked["mirror_key_fingerprint"])]
    ids += [("unit", unit) for unit in (PERSISTENCE_UNIT, FABRIC_UNIT)]
    ids += [("python_environment", asked["pytorch_prefix"])]
    names = sorted(_driver_packages.every_package(catalog, asked["driver"]))
    ids += [(kind, name) for kind in ("package", "hold", "lock") for name in names]
    return [{"kind": kind, "id": name} for kind, name in ids]


def differing(items: list[Item], states: dict[str, Any]) -> dict[str, list[str]]:
    """Return, per role, the items whose observed state is not the desired one; an unknown state differs."""
    found: dict[str, list[str]] = {}
    for item in items:
        name = identity(item)
        state = states.get(name) or {}
        if any(state.get(field) != value for field, value in item["desired"].items() if field != "content"):
            found.setdefault(item["role"], []).append(name)
    return found
