# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Container engines and what they know of NVIDIA's runtime, from their configuration; no engine is asked, since a sick one hangs."""

from __future__ import annotations

import glob
import json
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _conf, _cuda
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils import _software
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

    Packages = t.Optional[t.Dict[str, _software.Package]]


class Engine(t.NamedTuple):
    """Names of an engine's packages, the programs that show one installed without them, and its unit."""

    packages: t.Pattern[str]
    programs: t.Tuple[str, ...]
    unit: t.Optional[str]


ENGINES = {
    "docker": Engine(later(r"(?:docker-ce|docker\.io|moby-engine|docker-engine|docker)$"), ("dockerd",), "docker.service"),
    "containerd": Engine(later(r"(?:containerd\.io|containerd|moby-containerd)$"), ("containerd",), "containerd.service"),
    "crio": Engine(later(r"cri-o(?:-\d.*)?$"), ("crio",), "crio.service"),
    "podman": Engine(later(r"podman$"), ("podman",), None),
    "enroot": Engine(later(r"enroot(?:-hardened)?$"), ("enroot",), None),
    "apptainer": Engine(later(r"(?:apptainer|singularity(?:-ce|-container)?)$"), ("apptainer", "singularity"), None),
}
UNITS = tuple(engine.unit for engine in ENGINES.values() if engine.unit)
TOOLKIT = later(r"nvidia-container-toolkit$")
TOOLKIT_PARTS = later(r"(?:nvidia-container-toolkit(?:-base)?|libnvidia-container-tools|libnvidia-container1)$")
OBSOLETE = later(r"nvidia-docker2?$|nvidia-container-runtime(?:-hook)?$")
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
OPERATOR_CONFIG = "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"
OCI_HOOKS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
BIN = ("/usr/bin/", "/usr/sbin/", "/usr/local/bin/")

Settings = t.Dict[str, t.Any]


def _merged(system: System, paths: t.Iterable[str]) -> dict[tuple[str, ...], dict[str, str]]:
    """The tables of several files, of which a later one wins."""
    tables: dict[tuple[str, ...], dict[str, str]] = {}
    for path in paths:
        text = system.read(path)
        if text is None:
            continue
        parsed = _conf.toml(text)
        if parsed.strange:
            system.problem("%s: line %d is not understood" % (path, parsed.strange[0]))
        for table, values in parsed.tables.items():
            tables.setdefault(table, {}).update(values)
    return tables


def docker(text: str | None) -> Settings:
    """From daemon.json; ValueError when it is no JSON object, with which docker would not start."""
    config = json.loads(text) if text else {}
    if not isinstance(config, dict):
        raise ValueError("it is no object")
    runtimes, features = config.get("runtimes"), config.get("features")
    return {
        "nvidia_runtime": isinstance(runtimes, dict) and any(is_nvidia(name, entry) for name, entry in runtimes.items()),
        "default_runtime": config.get("default-runtime") if isinstance(config.get("default-runtime"), str) else None,
        "cdi": features.get("cdi") if isinstance(features, dict) and isinstance(features.get("cdi"), bool) else None,
    }


def is_nvidia(name: str, entry: t.Any) -> bool:
    """Whether a runtime is NVIDIA's: by its name, or by the program that it calls."""
    return name.startswith("nvidia") or (isinstance(entry, dict) and "nvidia-container-runtime" in str(entry.get("path", "")))


def containerd(tables: dict[tuple[str, ...], dict[str, str]]) -> Settings:
    """Every version of containerd has another name for the same plugin, and the same tables below it."""
    found: Settings = {"nvidia_runtime": False, "default_runtime": None, "cdi": None}
    for table, values in tables.items():
        if "runtimes" in table[:-1]:
            at = table.index("runtimes")
            if is_nvidia(table[at + 1], {"path": values.get("BinaryName", "")}):
                found["nvidia_runtime"] = True
        if table[-1:] == ("containerd",) and "default_runtime_name" in values:
            found["default_runtime"] = values["default_runtime_name"] or None
        if "enable_cdi" in values:
            found["cdi"] = values["enable_cdi"] == "true"
    return found


def crio(tables: dict[tuple[str, ...], dict[str, str]]) -> Settings:
    runtimes = {table[3]: values for table, values in tables.items() if table[:3] == ("crio", "runtime", "runtimes") and len(table) == 4}
    return {
        "nvidia_runtime": any(is_nvidia(name, {"path": values.get("runtime_path", "")}) for name, values in runtimes.items()),
        "default_runtime": tables.get(("crio", "runtime"), {}).get("default_runtime") or None,
        # It has known CDI for long and needs no switch.
        "cdi": None,
    }


def _containerd_files(system: System) -> list[str]:
    """The main file, and what it imports (globs included)."""
    main = "/etc/containerd/config.toml"
    imports = _conf.strings(_conf.toml(system.read(main, quiet=True) or "").tables.get((), {}).get("imports", ""))
    found = [main]
    for pattern in imports:
        if pattern.startswith("/etc/"):
            found += sorted(path[len(system.root):] for path in glob.glob(system.root + pattern))
    return found


def settings(system: System, name: str) -> Settings:
    """What an engine's configuration says of NVIDIA: C({nvidia_runtime, default_runtime, cdi}); null is not said there."""
    none: Settings = {"nvidia_runtime": None, "default_runtime": None, "cdi": None}
    if name == "docker":
        try:
            return docker(system.read("/etc/docker/daemon.json"))
        except ValueError as error:
            system.problem("/etc/docker/daemon.json cannot be read: %s" % error)
            return none
    if name == "containerd":
        return containerd(_merged(system, _containerd_files(system)))
    if name == "crio":
        folder = "/etc/crio/crio.conf.d"
        return crio(_merged(system, ["/etc/crio/crio.conf", *(folder + "/" + part for part in system.names(folder))]))
    if name == "podman":
        hooks = any("nvidia" in part for folder in OCI_HOOKS for part in system.names(folder))
        config = _merged(system, ["/etc/containers/containers.conf"]).get(("engine",), {})
        return {"nvidia_runtime": hooks, "default_runtime": config.get("runtime"), "cdi": None}
    if name == "enroot":
        return dict(none, nvidia_runtime=any("nvidia" in part for part in system.names("/etc/enroot/hooks.d")))
    text = system.read("/etc/apptainer/apptainer.conf", quiet=True) or system.read("/etc/singularity/singularity.conf", quiet=True) or ""
    always = re.search(r"^\s*always use nv\s*=\s*(yes|no)", text, re.M)
    return dict(none, nvidia_runtime=always.group(1) == "yes" if always else None)


def engines(system: System, packages: Packages, units: dict[str, dict[str, str]] | None) -> dict[str, dict[str, t.Any]]:
    """Engines that are installed, by name."""
    found = {}
    for name, engine in ENGINES.items():
        made = _cuda.installed(packages, engine.packages)
        if not made and not any(system.exists(folder + program) for program in engine.programs for folder in BIN):
            continue
        state = (units or {}).get(engine.unit or "", {})
        found[name] = {
            "version": next(iter(made.values())).version if made else None,
            "active": None if units is None or engine.unit is None else state.get("ActiveState") == "active",
            **settings(system, name),
        }
    return found


def toolkit(system: System, packages: Packages) -> dict[str, t.Any] | None:
    """NVIDIA's container toolkit: C({version, mode, config, obsolete}); None when nothing of it is there."""
    operator = system.exists(OPERATOR_CONFIG)
    path = OPERATOR_CONFIG if operator else TOOLKIT_CONFIG
    text = system.read(path)
    parts = _cuda.installed(packages, TOOLKIT_PARTS)
    obsolete = sorted(_cuda.installed(packages, OBSOLETE))
    if text is None and not parts and not obsolete and not system.exists("/usr/bin/nvidia-container-runtime"):
        return None
    versions = {package.version for package in parts.values()}
    if len(versions) > 1:
        told = ", ".join("%s %s" % (name, package.version) for name, package in sorted(parts.items()))
        system.problem("parts of the container toolkit are of different versions: %s" % told)
    tables = _merged(system, [path])
    main = parts.get("nvidia-container-toolkit") or parts.get("nvidia-container-toolkit-base")
    return {
        "version": main.version if main else None,
        "mode": tables.get(("nvidia-container-runtime",), {}).get("mode") or None,
        "config": path if text is not None else None,
        "obsolete": obsolete,
        "owner": "gpu-operator" if operator else None if packages is None else _cuda.maker(parts) if parts else "unpackaged",
    }
