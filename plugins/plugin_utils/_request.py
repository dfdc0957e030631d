# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What the operator asks for, checked before anything is decided."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _settings
from ansible_collections.gpu.fleet.plugins.plugin_utils._gpus import FLAVOURS
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._values import flag, mapping, names, number, one_of, shown, text

DISRUPTIONS = ("never", "idle", "drain")
SOURCES = ("auto", "nvidia", "distro", "runfile", "preinstalled")
COMPONENTS = ("driver", "cuda", "cudnn", "container_toolkit", "pytorch", "nccl", "rdma", "dcgm")
MANAGED = ("driver", "pytorch", "nccl")

# What goes into files that root reads, or onto command lines, is plain: no blanks, quotes, or control characters.
# A URL with a password in it would end up in files and logs that everybody can read.
URL = re.compile(r"(https?|file)://[A-Za-z0-9._~:/%+\-\[\]{}]+")
PROXY = re.compile(r"https?://[A-Za-z0-9._\-\[\]:]+/?")
# A folder of its own, which may be emptied and filled: two steps deep at least, no way up, and none that the system lives in.
PREFIX = re.compile(r"(?!/(usr|var)/[^/]+$|/(bin|boot|dev|etc|lib[^/]*|proc|run|sbin|sys)/)(/(?!\.)[A-Za-z0-9._+\-]+){2,}")
FINGERPRINT = re.compile(r"[0-9A-Fa-f]{40}")
NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
INTERFACE = re.compile(r"[=^]?[A-Za-z0-9._,:-]{1,200}")
DRIVER = re.compile(r"auto|[0-9]{3}(\.[0-9]+){0,2}")
PYTORCH = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?(\+(cpu|cu[0-9]{3}))?")
LIMIT = re.compile(r"unlimited|[1-9][0-9]{0,11}")
INTERPRETER = re.compile(r"(/[A-Za-z0-9._+\-]+)*/?python[A-Za-z0-9._+\-]*")
LOCKED_DRIVER = re.compile(r"[0-9]{3}(\.[0-9]+){1,2}")
LOCKED_PYTORCH = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\+(cpu|cu[0-9]{3})")
SETTING_NAME = re.compile(r"NCCL_[A-Z0-9_]{1,60}")
SETTING_VALUE = re.compile(r"[A-Za-z0-9._,:=^/+\-]{1,900}")

DEFAULTS: dict[str, Any] = {
    "host": None,
    "driver": None,
    "cuda": [],
    "pytorch": None,
    "driver_source": "auto",
    "driver_flavour": "auto",
    "disruption": "never",
    "takeover": [],
    "mirror": None,
    "mirror_key_fingerprint": None,
    "proxy": None,
    "pytorch_prefix": "/opt/gpu_fleet/pytorch",
    "python": "/usr/bin/python3",
    "wheel_index": "https://download.pytorch.org/whl/{tag}",
    "nccl": {},
    "baseline": {},
    "fabric": {},
    "relock": False,
    "run_options": None,
    "settings": {},
    "verification_members": None,
}
BASELINE: dict[str, Any] = {"memlock": "unlimited", "nofile": 1048576, "service_user": "gpufleet"}
NCCL: dict[str, Any] = {"socket_interface": None, "traffic_class": None, "service_level": None, "extra": {}}

# Field -> (pattern, variable, what is allowed).
PATTERNS: dict[str, tuple[re.Pattern[str], str, str]] = {
    "driver": (DRIVER, "gpu_stack_driver", 'a branch ("580"), a version ("580.178.04"), or "auto"'),
    "pytorch": (PYTORCH, "gpu_stack_pytorch", 'a version, with the build after "+" if need be: "2.14", "2.14.1+cu130", "2.14+cpu"'),
    "mirror": (URL, "gpu_stack_mirror", "an http, https or file URL without blanks, quotes and passwords (those belong into apt_auth.conf)"),
    "mirror_key_fingerprint": (FINGERPRINT, "gpu_stack_mirror_key_fingerprint", "40 hexadecimal digits"),
    "proxy": (PROXY, "gpu_stack_proxy", "an http URL of host and port, such as http://proxy.example:3128, without blanks, quotes and passwords"),
    "pytorch_prefix": (PREFIX, "conda_pytorch_prefix", "the plain path of a folder of its own, such as /opt/gpu_fleet/pytorch"),
    "python": (INTERPRETER, "conda_pytorch_python", "the path of a Python interpreter, such as /usr/bin/python3.11"),
    "wheel_index": (URL, "conda_pytorch_wheel_index", "an http, https or file URL, with {tag} where the build's tag goes"),
}


def _matching(value: Any, field: str) -> str | None:
    pattern, variable, allowed = PATTERNS[field]
    given = text(value)
    if given is not None and not pattern.fullmatch(given):
        raise Refusal("request.form", f"{variable} is {given!r}; give {allowed}", seen=given, allowed=allowed, variable=variable)
    return given


def normalize(request: Any) -> dict[str, Any]:
    """Return the request with every field present and of one type; raises Refusal for what could not be meant."""
    if not isinstance(request, dict):
        raise Refusal("request.type", f"the request is {type(request).__name__}, not a mapping", seen=repr(request), allowed="a mapping")
    unknown = sorted(str(name) for name in request if name not in DEFAULTS)
    if unknown:
        raise Refusal("request.unknown", f"the request has {', '.join(unknown)}, which nothing reads", seen=unknown, allowed=sorted(DEFAULTS))
    asked = {**DEFAULTS, **{name: value for name, value in request.items() if value is not None}}
    for field in PATTERNS:
        asked[field] = _matching(asked[field], field)
    asked["pytorch_prefix"] = asked["pytorch_prefix"] or DEFAULTS["pytorch_prefix"]
    asked["python"] = asked["python"] or DEFAULTS["python"]
    asked["wheel_index"] = asked["wheel_index"] or DEFAULTS["wheel_index"]
    if asked["cuda"]:
        raise Refusal(
            "cuda.unmanaged",
            f"gpu_stack_cuda is {asked['cuda']!r}; this release of the collection installs no CUDA toolkit, and PyTorch brings its own CUDA",
            seen=shown(asked["cuda"]), allowed=[], variable="gpu_stack_cuda", nearest=[],
        )  # fmt: skip
    asked["driver_source"] = one_of(asked["driver_source"], SOURCES, "nvidia_driver_source")
    asked["driver_flavour"] = one_of(asked["driver_flavour"], ("auto", *FLAVOURS), "nvidia_driver_flavour")
    asked["disruption"] = one_of(asked["disruption"], DISRUPTIONS, "gpu_stack_disruption")
    asked["takeover"] = _takeover(asked["takeover"])
    if asked["mirror"]:
        asked["mirror"] = asked["mirror"].rstrip("/")
    if asked["mirror_key_fingerprint"]:
        asked["mirror_key_fingerprint"] = asked["mirror_key_fingerprint"].upper()
    asked["baseline"] = _baseline(asked["baseline"])
    asked["nccl"] = _nccl(asked["nccl"])
    asked["fabric"] = _fabric(asked["fabric"])
    asked["host"] = text(asked["host"])
    asked["run_options"] = text(asked["run_options"])
    asked["relock"] = flag(asked["relock"], "gpu_stack_relock")
    asked["settings"] = _settings.check(asked["settings"], asked["verification_members"])
    return asked


def _takeover(value: Any) -> list[str]:
    """Return the components that may be taken over; one that this release does not manage would stay with its owner after all."""
    named = names(value, "gpu_stack_takeover", COMPONENTS)
    unmanaged = [name for name in named if name not in MANAGED]
    if unmanaged:
        raise Refusal(
            "takeover.unmanaged",
            f"gpu_stack_takeover names {', '.join(unmanaged)}, which this release of the collection leaves to whoever installed it; "
            f"it manages {', '.join(MANAGED)}",
            seen=unmanaged, allowed=list(MANAGED), variable="gpu_stack_takeover", nearest=[name for name in named if name in MANAGED],
        )  # fmt: skip
    return named


def _fabric(value: Any) -> dict[str, Any]:
    fabric = mapping(value, "gpu_fabric_*", {"group": None, "membership": None})
    return {name: text(fabric[name]) for name in ("group", "membership")}


def normalize_lock(lock: Any, relock: bool) -> dict[str, dict[str, str]]:
    """Return the lock as {driver: {request: version}, pytorch: {request: version+tag}}; raises Refusal for what no run has written."""
    if relock or lock is None or lock == "":
        return {"driver": {}, "pytorch": {}}
    variable, allowed = "gpu_stack_lock", "{driver: {request: version}, pytorch: {request: version+build}}"
    if not isinstance(lock, dict):
        raise Refusal("lock.form", f"{variable} is {type(lock).__name__}, not a mapping", seen=shown(lock), allowed=allowed, variable=variable)
    found: dict[str, dict[str, str]] = {}
    for component, pattern in (("driver", LOCKED_DRIVER), ("pytorch", LOCKED_PYTORCH)):
        entries = lock.get(component) or {}
        if not isinstance(entries, dict):
            raise Refusal(
                "lock.form", f"{variable}.{component} is {entries!r}, not a mapping", seen=shown(entries), allowed=allowed, variable=variable
            )
        for request, exact in entries.items():
            if not isinstance(exact, str) or not pattern.fullmatch(exact):
                raise Refusal(
                    "lock.form", f"{variable} says {exact!r} for {component} {request}; an exact version is needed",
                    seen=shown(exact), allowed=allowed, variable=variable,
                )  # fmt: skip
            wanted = str(request).partition("+")
            if wanted[0] != "auto" and (exact.partition("+")[0] + ".").find(wanted[0] + ".") != 0:
                raise Refusal(
                    "lock.mismatch", f"{variable} says {exact} for {component} {request}, which is another release",
                    seen=exact, allowed=f"a release of {request}", variable=variable,
                )  # fmt: skip
        found[component] = {str(request): str(exact) for request, exact in entries.items()}
    return found


def _baseline(value: Any) -> dict[str, Any]:
    baseline = mapping(value, "node_baseline_*", BASELINE)
    memlock = str(baseline["memlock"])
    if not LIMIT.fullmatch(memlock):
        raise Refusal(
            "request.form", f'node_baseline_memlock is {memlock!r}; give "unlimited" or a number of KiB',
            seen=memlock, allowed='"unlimited" or KiB', variable="node_baseline_memlock",
        )  # fmt: skip
    user = str(baseline["service_user"])
    if not NAME.fullmatch(user) or user == "root":
        raise Refusal(
            "request.form", f"node_baseline_service_user is {user!r}; give the name of an unprivileged account",
            seen=user, allowed=NAME.pattern, variable="node_baseline_service_user",
        )  # fmt: skip
    nofile = number(baseline["nofile"], "node_baseline_nofile", 1024, 1 << 30)
    return {"memlock": memlock, "nofile": nofile, "service_user": user}


def _nccl(value: Any) -> dict[str, Any]:
    nccl = mapping(value, "nccl_tuning_*", NCCL)
    interface = text(nccl["socket_interface"])
    if interface is not None and not INTERFACE.fullmatch(interface):
        raise Refusal(
            "request.form", f"nccl_tuning_socket_interface is {interface!r}; give interface names as NCCL_SOCKET_IFNAME takes them",
            seen=interface, allowed=INTERFACE.pattern, variable="nccl_tuning_socket_interface",
        )  # fmt: skip
    return {
        "socket_interface": interface,
        "traffic_class": number(nccl["traffic_class"], "nccl_tuning_traffic_class", 0, 255),
        "service_level": number(nccl["service_level"], "nccl_tuning_service_level", 0, 15),
        "extra": _extra(nccl["extra"]),
    }


def _extra(value: Any) -> dict[str, str]:
    variable = "nccl_tuning_extra"
    extra = mapping(value, variable, {})
    for name, given in extra.items():
        if not SETTING_NAME.fullmatch(str(name)) or isinstance(given, bool) or not SETTING_VALUE.fullmatch(str(given)):
            raise Refusal(
                "request.form", f"{variable} has {name!r}: {given!r}; give names of NCCL's with plain values",
                seen=shown(f"{name}={given}"), allowed=f"{SETTING_NAME.pattern}: {SETTING_VALUE.pattern}", variable=variable,
            )  # fmt: skip
    return {str(name): str(given) for name, given in sorted(extra.items())}
