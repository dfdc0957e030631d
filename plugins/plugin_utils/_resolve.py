# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The resolver: from what is known, asked for and observed to a plan, or to a refusal. Pure: it reads nothing but its arguments."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _consent, _driver_plan, _managed_plan, _nccl_policy, _pytorch_plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._fingerprint import fingerprint
from ansible_collections.gpu.fleet.plugins.plugin_utils._platform import find_platform
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._request import normalize
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import upstream

SCHEMA = 1
PLATFORM_FIELDS = ("id", "family", "package_manager", "directory", "architecture", "kernel_headers", "python_venv")
ROLES = ("node_baseline", "nvidia_driver", "conda_pytorch", "nccl_tuning", "verification")


def resolve_stack(
    catalog: dict[str, Any],
    request: dict[str, Any],
    lock: dict[str, Any] | None,
    platform: dict[str, Any] | None,
    observed: dict[str, Any],
    fleet: dict[str, Any] | None,
    today: str,
) -> dict[str, Any]:
    """Return the plan for one host, or {"refusal": ...}.

    `platform` None finds the platform from the observation. `lock` holds exact versions that `driver: auto` or a branch
    were resolved to before. `fleet` is what the other hosts look like. `today` is an ISO date.
    """
    try:
        asked = normalize(request)
        here = platform or find_platform(catalog, observed.get("host"))
        return _plan(catalog, asked, lock or {}, here, observed, today)
    except Refusal as refusal:
        return {"refusal": refusal.fields}


def managed_ids(catalog: dict[str, Any], request: dict[str, Any]) -> list[dict[str, str]]:
    """Return every {kind, id} that this request could manage; a request that will be refused gets the defaults' ids."""
    try:
        asked = normalize(request)
    except Refusal:
        asked = normalize({})
    return _managed_plan.every_id(catalog, asked)


def _plan(
    catalog: dict[str, Any], asked: dict[str, Any], lock: dict[str, Any], platform: dict[str, Any], observed: dict[str, Any], today: str
) -> dict[str, Any]:
    gpus = observed.get("gpus") or []
    fabric_manager = bool(observed.get("nvswitches"))
    wanted, component = _driver(catalog, asked, lock, platform, observed, today)
    packages, source = _packages(catalog, asked, platform, wanted, fabric_manager)
    will_run = wanted["version"] if wanted else component["present"]
    torch = None
    if asked["pytorch"]:
        python = (observed.get("host") or {}).get("python")
        torch = _pytorch_plan.choose(catalog, asked["pytorch"], python, gpus, will_run)
    variables = _nccl_policy.variables(observed, asked["nccl"])

    managed = _managed_plan.baseline(asked["baseline"])
    if wanted:
        managed += _managed_plan.driver(wanted, packages, source, fabric_manager)
    if torch:
        managed += _managed_plan.pytorch(torch, asked["pytorch_prefix"])
    managed += _managed_plan.nccl(variables)
    differs = _managed_plan.differing(managed, observed.get("managed") or {})

    foreseen = _consent.consequences(observed, wanted, differs.get("nvidia_driver", []))
    waits = _consent.driver_pending(asked, wanted, foreseen, differs["nvidia_driver"]) if wanted and "nvidia_driver" in differs else None
    pending = [waits] if waits else []
    if waits:
        will_run = component["present"]
    verification = _verification(asked, observed, will_run, wanted, torch, variables)
    held_back = {item["role"] for item in pending}
    due = {role for role in differs if role not in held_back} | ({"verification"} if verification["due"] else set())
    component["action"] = _action(component, wanted, differs.get("nvidia_driver", []))
    return {
        "schema": SCHEMA,
        "platform": {name: platform[name] for name in PLATFORM_FIELDS},
        "components": {
            "driver": component,
            "pytorch": {
                "wanted": torch,
                "present": next((found["torch"] for found in observed.get("pytorch") or [] if found["path"] == asked["pytorch_prefix"]), None),
                "action": "install" if "conda_pytorch" in differs else "none",
                "reasons": torch["reasons"] if torch else ["gpu_stack_pytorch is not set"],
            },
        },
        "packages": {"nvidia_driver": packages} if wanted else {},
        "closure": sorted(packages),
        "repositories": [source] if source else [],
        "lockstep": {name: version for name, version in packages.items() if "fabricmanager" in name},
        "consequences": foreseen,
        "managed": managed,
        "differs": differs,
        "todo": [role for role in ROLES if role in due],
        "pending": pending,
        "nccl": {"variables": variables},
        "pytorch": {"prefix": asked["pytorch_prefix"], "index": asked["wheel_index"].replace("{tag}", torch["tag"])} if torch else None,
        "verification": verification,
    }


def _packages(
    catalog: dict[str, Any], asked: dict[str, Any], platform: dict[str, Any], wanted: dict[str, Any] | None, fabric_manager: bool
) -> tuple[dict[str, str], dict[str, Any] | None]:
    """Return the driver's packages, and the repository that has to be set up for them."""
    if wanted is None:
        return {}, None
    if asked["driver_source"] == "distro":
        return _driver_plan.distribution_packages(catalog, platform, wanted), None
    source = _managed_plan.repository(platform, asked["mirror"], asked["mirror_key_fingerprint"])
    return _driver_plan.packages(catalog, platform, wanted, fabric_manager), source


def _driver(
    catalog: dict[str, Any], asked: dict[str, Any], lock: dict[str, Any], platform: dict[str, Any], observed: dict[str, Any], today: str
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the wanted driver (None: not ours to change) and what the plan says of the component."""
    gpus = observed.get("gpus") or []
    driver = observed.get("driver") or {}
    owner = driver.get("owner")
    present = (driver.get("loaded") or {}).get("version") or driver.get("user_space")
    component: dict[str, Any] = {"wanted": None, "present": present, "owner": owner, "action": "none", "reasons": []}
    if not gpus:
        component["reasons"].append("no NVIDIA GPU on the PCI bus")
        return None, component
    if owner == "gpu-operator":
        raise Refusal("driver.gpu_operator", "the driver of this node belongs to the GPU operator of its Kubernetes cluster", seen=owner)
    ours = "distro" if asked["driver_source"] == "distro" else "nvidia"
    # Where our pins stand the driver is ours, whatever somebody has taken away of it since.
    pinned = ((observed.get("managed") or {}).get(f"file:{_managed_plan.PIN}") or {}).get("state") == "file"
    if owner not in (None, "absent", ours) and not (pinned and owner == "runfile") and "driver" not in asked["takeover"]:
        component["reasons"].append(f"the driver belongs to {owner}; it is left as it is unless gpu_stack_takeover names driver")
        return None, component
    if asked["driver_source"] == "preinstalled":
        component["reasons"].append("nvidia_driver_source is preinstalled")
        return None, component
    if asked["driver_source"] == "runfile":
        raise Refusal(
            "driver.source", f"nvidia_driver_source {asked['driver_source']!r} cannot be installed on {platform['id']} yet",
            seen=asked["driver_source"], allowed=["auto", "nvidia", "distro", "preinstalled"], variable="nvidia_driver_source", nearest="nvidia",
        )  # fmt: skip
    if not asked["driver"]:
        if present:
            component["reasons"].append("gpu_stack_driver is not set: what is there stays")
            return None, component
        proposal = _driver_plan.choose(catalog, "auto", platform, gpus, today)
        raise Refusal(
            "driver.unset", f"the host has {len(gpus)} GPUs and no driver, and gpu_stack_driver is not set; \"{proposal['branch']}\" would fit",
            seen=None, allowed="a branch, a version, or auto", variable="gpu_stack_driver", nearest=str(proposal["branch"]),
        )  # fmt: skip
    exact = lock.get("driver", {}).get(asked["driver"], asked["driver"])
    if ours == "distro":
        wanted = _driver_plan.choose_distribution(catalog, exact, platform, gpus, bool(observed.get("nvswitches")))
    else:
        wanted = _driver_plan.choose(catalog, exact, platform, gpus, today)
    component["wanted"] = {**wanted, "source": ours}
    component["reasons"] += wanted["reasons"]
    return wanted, component


def _action(component: dict[str, Any], wanted: dict[str, Any] | None, differs: list[str]) -> str:
    if wanted is None:
        return "adopt" if component["present"] else "none"
    if not differs:
        return "none"
    if component["present"] is None:
        return "install"
    return "repair" if upstream(component["present"]) == wanted["version"] else "change"


def _verification(
    asked: dict[str, Any],
    observed: dict[str, Any],
    driver: str | None,
    wanted: dict[str, Any] | None,
    torch: dict[str, Any] | None,
    variables: dict[str, str],
) -> dict[str, Any]:
    """Return what to verify, and whether it is time: the stack is not the one of the last pass, and nobody works here."""
    gpus = observed.get("gpus") or []
    build = f"{torch['version']}+{torch['tag']}" if torch else None
    stack = fingerprint(observed, driver, build, variables, asked["fabric"])
    record = observed.get("record") or {}
    passed = record.get("fingerprint") == stack and record.get("verdict") == "pass"
    jobs = (observed.get("busy") or {}).get("jobs") or []
    backend = "nccl" if torch and torch["tag"] != "cpu" and gpus else "gloo"
    return {
        "fingerprint": stack,
        "backend": backend,
        "due": not passed and not jobs,
        "reason": "passed before" if passed else "the node is busy" if jobs else "no pass of this stack is on record",
        "processes_per_node": len(gpus) if backend == "nccl" else 1,
        "expected": {
            "gpus": len(gpus),
            "driver": driver if wanted else None,
            "torch": build,
            "cuda": torch["cuda"] if torch else None,
            "nics": len(_nccl_policy.compute_hcas(observed)) or None,
            "memlock": asked["baseline"]["memlock"],
        },
    }
