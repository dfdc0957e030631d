# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The resolver: from what is known, asked for and observed to a plan, or to a refusal. Pure: it reads nothing but its arguments."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import (
    _components,
    _consent,
    _driver_change,
    _driver_component,
    _driver_packages,
    _managed_plan,
    _nccl_policy,
    _pytorch_plan,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_rules import fabrics_of, weak_key
from ansible_collections.gpu.fleet.plugins.plugin_utils._due import verification
from ansible_collections.gpu.fleet.plugins.plugin_utils._gpus import is_ours, kinds
from ansible_collections.gpu.fleet.plugins.plugin_utils._platform import find_platform
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._request import normalize, normalize_lock

SCHEMA = 1
FACTS_SCHEMA = 1
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
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
    """Return the plan for one host, or {"refusal": ...}; docs/plan.md describes both.

    `platform` None finds the platform from the observation. `lock` holds exact versions that `driver: auto` or a branch
    were resolved to before. `fleet` is what the other hosts look like. `today` is an ISO date.
    """
    try:
        asked = normalize(request)
        locked = normalize_lock(lock, asked["relock"])
        _sound(observed, fleet, today)
        here = platform or find_platform(catalog, observed.get("host"))
        return _plan(catalog, asked, locked, here, observed, today)
    except Refusal as refusal:
        return {"refusal": refusal.fields}


def managed_ids(catalog: dict[str, Any], request: dict[str, Any]) -> list[dict[str, str]]:
    """Return every {kind, id} that this request could manage; a request that will be refused gets the defaults' ids."""
    try:
        asked = normalize(request)
    except Refusal:
        asked = normalize({})
    return _managed_plan.every_id(catalog, asked)


def _sound(observed: Any, fleet: Any, today: Any) -> None:
    """Refuse to decide from something that is no observation, or on no day."""
    schema = observed.get("schema") if isinstance(observed, dict) else None
    if schema != FACTS_SCHEMA:
        raise Refusal(
            "observed.schema", f"the host's facts are of schema {schema}, not {FACTS_SCHEMA}: they are not what gpu_facts of this release returns",
            seen=schema, allowed=[FACTS_SCHEMA],
        )  # fmt: skip
    if fleet is not None and not isinstance(fleet, dict):
        raise Refusal("fleet.form", f"the fleet's summary is {type(fleet).__name__}, not a mapping", seen=str(fleet)[:200], allowed="a mapping")
    if not isinstance(today, str) or not DATE.fullmatch(today):
        raise Refusal("today.form", f"today is {today!r}, not a date such as 2026-11-30", seen=str(today), allowed="YYYY-MM-DD")


def _plan(
    catalog: dict[str, Any], asked: dict[str, Any], lock: dict[str, dict[str, str]], platform: dict[str, Any], observed: dict[str, Any], today: str
) -> dict[str, Any]:
    gpus = kinds(catalog, observed.get("gpus") or [])
    count = sum(is_ours(gpu) for gpu in observed.get("gpus") or [])
    fabrics = fabrics_of(catalog, observed, gpus)
    wanted, driver = _driver_component.plan(catalog, asked, lock["driver"], platform, observed, gpus, fabrics, today)
    packages, lockstep, source = _packages(catalog, asked, platform, wanted, fabrics)
    if source:
        _trusted(catalog, observed, source, today)
    closure = _driver_packages.closure(platform, packages)
    will_run = wanted["version"] if wanted else driver["present"]
    torch = None
    theirs = _components.environment(asked, observed)
    if asked["pytorch"] and not theirs:
        python = _pytorch_plan.python_of(asked, observed)
        locked = lock["pytorch"].get(asked["pytorch"])
        torch = _pytorch_plan.choose(catalog, asked["pytorch"], python, gpus, will_run, locked, platform["architecture"])
    nccl, variables = _nccl(catalog, asked, observed, bool(gpus))

    managed = _managed_plan.baseline(asked["baseline"])
    if wanted:
        fabric_manager = any("fabric_manager" in fabric["companions"] for fabric in fabrics)
        managed += _managed_plan.driver(catalog, platform, wanted, packages, closure, source, fabric_manager)
    if torch:
        managed += _managed_plan.pytorch(torch, asked["pytorch_prefix"])
    managed += _managed_plan.nccl(variables)
    differs = _managed_plan.differing(managed, observed.get("managed") or {})

    if wanted and _driver_change.unfinished(observed):
        differs.setdefault("nvidia_driver", []).append(_driver_change.UNFINISHED_ID)
    coming = _driver_change.next_boot(observed, wanted) if wanted else {}
    if coming:
        differs.setdefault("nvidia_driver", []).extend(coming)
    changed = differs.get("nvidia_driver", [])
    if driver["present"]:
        driver["reasons"] += coming.values()
    driver["reasons"] += _driver_change.told(observed, bool(wanted and not changed))
    units = [item["id"] for item in managed if item["role"] == "nvidia_driver" and item["kind"] == "unit"]
    foreseen = _consent.consequences(observed, wanted, changed, [*units, *_driver_change.services_at_work(observed)])
    leaving = _driver_packages.leaving(catalog, platform, observed, wanted, packages) if wanted else {}
    change = _driver_change.plan(asked, platform, observed, foreseen, managed, leaving) if wanted else None
    pending = _pending(asked, wanted, driver["present"], torch, foreseen, differs, _driver_change.told(observed, False))
    held_back = {item["role"] for item in pending}
    if "nvidia_driver" in held_back:
        will_run = driver["present"]
    due = verification(asked, observed, count, will_run, wanted is not None, torch, variables, "conda_pytorch" in held_back)
    ready = {role for role in differs if role not in held_back} | ({"verification"} if due["due"] else set())
    driver["action"] = _driver_component.action(driver, wanted, changed, (observed.get("driver") or {}).get("flavour"))
    return {
        "schema": SCHEMA,
        "platform": {name: platform[name] for name in PLATFORM_FIELDS},
        "components": {
            "baseline": _settings(asked["baseline"], "node_baseline" in differs, []),
            "driver": driver,
            "fabric_manager": _components.fabric_manager(observed, fabrics, wanted, driver, changed),
            "pytorch": _components.pytorch(asked, observed, torch, theirs if asked["pytorch"] else None, "conda_pytorch" in differs),
            "nccl": {**nccl, **({"action": "change" if nccl["present"] else "install"} if "nccl_tuning" in differs else {})},
            **_components.left(observed),
        },
        "packages": {"nvidia_driver": packages} if wanted else {},
        "closure": closure,
        "repositories": [source] if source else [],
        "lockstep": lockstep,
        "consequences": foreseen,
        "transaction": change,
        "managed": managed,
        "differs": differs,
        "todo": [role for role in ROLES if role in ready],
        "pending": pending,
        "lock": _lock(asked, wanted, torch),
        "nccl": {"variables": variables},
        "pytorch": {"prefix": asked["pytorch_prefix"], "index": asked["wheel_index"].replace("{tag}", torch["tag"])} if torch else None,
        "verification": due,
    }


def _packages(
    catalog: dict[str, Any], asked: dict[str, Any], platform: dict[str, Any], wanted: dict[str, Any] | None, fabrics: list[dict[str, Any]]
) -> tuple[dict[str, str], dict[str, str], dict[str, Any] | None]:
    """Return the driver's packages, those of them that are bound to its version from outside, and the repository that has to be set up for them."""
    if wanted is None:
        return {}, {}, None
    if wanted["source"] == "distro":
        return _driver_packages.distribution_packages(catalog, platform, wanted), {}, None
    source = _managed_plan.repository(platform, asked["mirror"], asked["mirror_key_fingerprint"], asked["proxy"], wanted)
    lockstep = _driver_packages.companions(catalog, platform, wanted, fabrics)
    return _driver_packages.packages(catalog, platform, wanted, fabrics), lockstep, source


def _trusted(catalog: dict[str, Any], observed: dict[str, Any], source: dict[str, Any], today: str) -> None:
    """Refuse a repository that the host's own verifier would call unsigned: every later run of apt on it would fail."""
    weak = weak_key(catalog, (observed.get("host") or {}).get("signature_verifier"), source["fingerprint"], today)
    if weak:
        raise Refusal(
            "repository.key_refused",
            f"the host's apt verifies with {weak['verifier']}, which takes nothing that {source['key_url']} signed since {weak['since']}: "
            f"{weak['reason']}",
            seen=source["fingerprint"], allowed="a mirror that is signed with another key", variable="gpu_stack_mirror_key_fingerprint",
            source=weak["source"],
        )  # fmt: skip


def _nccl(catalog: dict[str, Any], asked: dict[str, Any], observed: dict[str, Any], has_gpus: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the plan says of NCCL's settings, and the variables that we write; none into a file that is somebody else's."""
    text = ((observed.get("nccl") or {}).get("config") or {}).get(_managed_plan.NCCL)
    wanted = _nccl_policy.variables(observed, asked["nccl"], catalog["nccl_policy"]) if has_gpus else {}
    component = _settings(wanted, False, [] if has_gpus else ["NCCL is for hosts with GPUs"])
    component["present"] = bool(text)
    component["owner"] = "absent" if not text else "gpu.fleet" if _managed_plan.HEADER in text else "site"
    if _nccl_policy.foreign(text, _managed_plan.HEADER) and "nccl" not in asked["takeover"]:
        bad = _nccl_policy.leftovers(text, catalog["nccl_policy"])
        component["action"] = "adopt"
        component["wanted"] = None
        component["reasons"] = [
            f"{_managed_plan.NCCL} holds somebody's settings; it is left as it is unless gpu_stack_takeover names nccl",
            *([f"it sets {', '.join(bad)}, which must not be left in a file that every job reads"] if bad else []),
        ]
        return component, {}
    return component, wanted


def _pending(
    asked: dict[str, Any],
    wanted: dict[str, Any] | None,
    present: str | None,
    torch: dict[str, Any] | None,
    foreseen: dict[str, Any],
    differs: dict[str, list[str]],
    told: list[str],
) -> list[dict[str, Any]]:
    """Return what waits for consent: the driver, and a PyTorch that the present driver does not carry."""
    if not wanted or "nvidia_driver" not in differs:
        return []
    waits = _consent.driver_pending(asked, wanted, foreseen, differs["nvidia_driver"])
    if waits is None:
        return []
    waits["reason"] = "; ".join([waits["reason"], *told])
    if torch is None or "conda_pytorch" not in differs or _pytorch_plan.carries(present, torch["minimum_driver"]):
        return [waits]
    return [waits, _consent.pytorch_pending(asked, torch, present, foreseen)]


def _settings(wanted: Any, differs: bool, reasons: list[str]) -> dict[str, Any]:
    return {"wanted": wanted or None, "present": None, "action": "change" if differs else "none", "reasons": reasons}


def _lock(asked: dict[str, Any], wanted: dict[str, Any] | None, torch: dict[str, Any] | None) -> dict[str, dict[str, str]]:
    """Return what this plan settled on, in the form of gpu_stack_lock: requests and the exact versions that they became."""
    found: dict[str, dict[str, str]] = {}
    if wanted:
        found["driver"] = {asked["driver"]: wanted["version"]}
    if torch:
        found["pytorch"] = {asked["pytorch"]: f"{torch['version']}+{torch['tag']}"}
    return found
