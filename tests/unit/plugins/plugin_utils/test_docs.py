# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages that describe the resolver's tables and answers say what they are."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _components, _resolve
from fixtures.nodes import bare, host, installed, job, request, resolve
from fixtures.stack import V100, catalog, driver

from tools import generate_docs
from tools.catalog import entries, load
from tools.common import CHECKOUT
from tools.compatibility import table

PAGE = CHECKOUT / "docs" / "plan.md"
# Mappings whose keys are data, and how docs/plan.md names those keys.
MAPPINGS = {
    "components.nccl.wanted": "<variable>",
    "packages": "<role>",
    "packages.<role>": "<package>",
    "lockstep": "<package>",
    "differs": "<role>",
    "transaction.headers": "<package>",
    "transaction.files": "<path>",
    "transaction.locks": "<package>",
    "lock.driver": "<request>",
    "lock.pytorch": "<request>",
    "nccl.variables": "<variable>",
}
# The state of a thing depends on its kind, and docs/facts.md describes it.
OPAQUE = {"managed[].desired"}
VENV = {"path": "/opt/gpu_fleet/pytorch", "kind": "venv", "owner": "pip", "torch": "2.13.0+cpu", "python": "3.11.2", "cuda": None}
STALE = {**driver("580.159.04"), "fabric_manager": {"version": "580.65.06"}}
PLANS = [
    (request(), bare()),
    (request(), installed(busy=job())),
    (request(driver="580", pytorch="2.14+cu130"), installed("535.309.01", volatile={"0000:10:00.0": {"power_limit_w": 300.0}})),
    (request(), installed(driver=driver("535.309.01", packages=[{"name": "libcuda1", "version": "535.309.01-1", "held": False}]))),
    (request(pytorch=None), bare(gpus=0, switches=False, nics=[])),
    (request(), bare(gpus=0, switches=False, nics=[], driver={**driver(), "owner": None})),
    (request(driver="535", driver_source="distro", pytorch="2.14"), bare(device=V100, switches=False)),
    (
        request(takeover=["driver"], disruption="idle"),
        bare(driver=driver("535.309.01", "distro", packages=[{"name": "nvidia-alternative", "version": "535.309.01-1", "held": False}])),
    ),
    (request(), bare(driver=driver("580.159.04", "distro"), nccl={"config": {"/etc/nccl.conf": "NCCL_ALGO=Ring\n"}})),
    (request(), bare(owners={"cuda": "runfile", "rdma": "doca", "fabric_manager": None}, cuda=[{"version": "13.0.2"}])),
    (request(driver=None), installed(driver=STALE, owners={"fabric_manager": "nvidia"})),
    (request(), installed(pytorch=[VENV])),
]


def enterprise() -> dict[str, Any]:
    """Return the platform of a host that dnf manages, as if it were managed already."""
    return {"platform": {**catalog()["platforms"]["rhel9"], "id": "rhel9", "architecture": "x86_64"}}


def shape(value: Any, path: str = "") -> set[tuple[str, str]]:
    """Return every path below a value with the name of its type."""
    if path in OPAQUE:
        return {(path, "mapping")}
    if isinstance(value, dict):
        found: set[tuple[str, str]] = set()
        for key, item in value.items():
            name = "<other>" if path == "components" and key in _components.LEFT else MAPPINGS.get(path) or str(key)
            found |= shape(item, f"{path}.{name}" if path else name)
        return found
    if isinstance(value, list):
        return {entry for item in value for entry in shape(item, f"{path}[]")}
    return {(path, "null" if value is None else type(value).__name__)}


def documented(title: str) -> dict[str, set[str]]:
    """Return path -> types of the table under a title of the page."""
    part = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \|", part, re.M)
    assert len(rows) == len({path for path, _ in rows}), "a field is described twice"
    return {path: set(types.split(", ")) for path, types in rows}


def test_the_page_describes_the_plan() -> None:
    page = documented("The plan")
    seen: set[tuple[str, str]] = set()
    for asked, observed in PLANS:
        made = resolve(asked, observed)
        assert "refusal" not in made, made
        seen |= shape(made)
    seen |= shape(resolve(request(), bare(host=host("rocky", "9.6")), **enterprise()))
    unknown = {f"{path}: {kind}" for path, kind in seen if kind not in page.get(path, set())}
    assert not unknown, f"docs/plan.md lacks {sorted(unknown)}"
    told = {(path, kind) for path, kinds in page.items() for kind in kinds}
    assert told == seen, f"docs/plan.md has what no plan has: {sorted(told - seen)}"
    assert f"schema {_resolve.SCHEMA}" in PAGE.read_text()


def test_the_page_describes_the_refusal() -> None:
    page = documented("The refusal")
    fields = set(resolve(request(driver="999"), bare())["refusal"])
    assert fields == set(page)


def test_a_plan_always_has_the_same_fields() -> None:
    """Whoever reads a plan need not ask whether a field is there."""
    assert len({tuple(resolve(asked, observed)) for asked, observed in PLANS}) == 1
    assert list(resolve(request(), bare(host=host("plan9", "4")))) == ["refusal"]


@pytest.mark.parametrize("name", sorted(generate_docs.PAGES))
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (CHECKOUT / "docs" / name).read_text() == generate_docs.PAGES[name](), "run: make docs"


def test_the_compatibility_page_shows_every_entry_of_the_catalog() -> None:
    text, known = generate_docs.compatibility(), catalog()
    assert load() == known
    cells = {cell.strip(" `") for line in text.splitlines() for cell in line.split(" | ")}
    cells |= {line.split(" | ")[0].strip("| `") for line in text.splitlines()}
    wanted = {*known["gpus"], *known["distribution_drivers"], *(str(entry["branch"]) for entry in known["driver_branches"])}
    wanted |= {f"{entry['distribution']} {entry['version']}" for entry in known["platforms"].values()}
    wanted |= {entry["tag"] for entry in known["builds"]} | {entry["effect"] for entry in known["known_bad"]}
    for part in ("pytorch", "cuda_toolkits", "cudnn", "nccl", "container_toolkit_releases", "dcgm", "dcgm_exporter"):
        wanted |= {entry["version"] for entry in known[part]}
    for part in ("architectures", "fabrics"):
        wanted |= {entry["name"] for entry in known[part]}
    assert wanted <= cells, sorted(wanted - cells)


def test_every_source_of_the_catalog_is_quoted() -> None:
    """But for those of what the page leaves out: ranges of device ids, and the policy of NCCL's variables."""
    text, known = generate_docs.compatibility(), catalog()
    quoted = dict(re.findall(r"^([0-9]+)\. (.+)$", text, re.MULTILINE))
    assert list(quoted) == [str(number) for number in range(1, len(quoted) + 1)]
    parts = set(known) - {"gpu_ranges", "nccl_policy"}
    found = {f"{entry['source']} (read {entry['date']})" for part in parts for _, entry in entries(known[part], part)}
    assert set(quoted.values()) == found
    assert set(re.findall(r"\[([0-9]+)\]", text)) == set(quoted)


def test_a_table_survives_a_bar_in_a_cell() -> None:
    assert table(("a", "b"), [("x|y", None)]) == "| a | b |\n| --- | --- |\n| x\\|y |  |\n"
