# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes with what, cell by cell: GPUs by driver branch, distributions by driver branch, releases of PyTorch by GPU and driver.

The tables are written by hand from what NVIDIA and PyTorch publish, not from the catalog: each cell is one labelled combination.
"""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _pytorch_plan, _resolve
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_rules import fabrics_of, known_bad, oldest_driver
from ansible_collections.gpu.fleet.plugins.plugin_utils._gpus import kinds
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from fixtures.stack import TODAY, catalog, driver, gpu, observed, resolve

CATALOG = catalog()
# Rubin has no device id in the catalog yet; this one is made up.
RUBIN = "31fe"
CATALOG["gpus"][RUBIN] = {"model": "Rubin", "architecture": "rubin", "compute_capability": "10.7", "minimum_driver": "615"}
IDS = {
    "Kepler": "1024", "GTX970": "13c2", "P100": "15f8", "V100": "1db1", "T4": "1eb8", "A100": "20b2", "L40S": "26b9", "H100": "2330", "H200": "2335",
    "GH200": "2342", "B200": "2901", "B300": "3182", "GB200": "2941", "GB300": "31c2", "RTX5090": "2b85", "Rubin": RUBIN,
}  # fmt: skip

# A driver with open modules (O) or proprietary ones (P), or the rule that refuses it.
MEANING = {
    "F": "driver.flavour", "B": "driver.flavour_gone", "G": "driver.generation", "M": "driver.gpu_minimum", "U": "driver.branch_unmanaged",
    "N": "driver.not_packaged", "X": "gpu.mixed_generations", "D": "pytorch.driver", "C": "pytorch.gpu",
}  # fmt: skip


def cells(table: str) -> list[Any]:
    """Return (row, column, cell) of a table, each under a label of its own."""
    lines = [line.split() for line in table.strip().splitlines()]
    columns = lines[0]
    assert all(len(line) == len(columns) + 1 for line in lines[1:]), "a row is too short or too long"
    found = []
    for line in lines[1:]:
        for column, cell in zip(columns, line[1:], strict=True):
            found += [pytest.param(row, column, cell, id=f"{row} {column} {cell}") for row in line[0].split(",")]
    return found


def host(*names: str, **more: Any) -> dict[str, Any]:
    """Return a bare host with GPUs of these models, on Ubuntu 24.04 unless told otherwise."""
    given = {"distribution": "ubuntu", "version": "24.04", "python": "3.12.3", **more}
    return observed([gpu(number, IDS[name], None) for number, name in enumerate(names)], **given)


def answer(facts: dict[str, Any], branch: str, **more: str) -> str:
    """Return the cell of a table for a request."""
    made = resolve({"driver": branch, **more}, facts, known=CATALOG)
    if "refusal" in made:
        return next(letter for letter, rule in MEANING.items() if rule == made["refusal"]["rule"])
    wanted = made["components"]["driver"]["wanted"]
    assert str(wanted["branch"]) == branch
    return {"open": "O", "proprietary": "P"}[wanted["flavour"]]


# The last branch for Maxwell to Volta is 580, and only proprietary modules drive those; Grace and Blackwell take open ones alone; Blackwell begins
# with 570, its Ultra with 580, Rubin with 615. "+" is two kinds of GPUs in one host.
DRIVERS = """
                535  545  550  555  560  565  570  575  580  590  595  610  615  620
    Kepler       G    U    G    U    G    G    G    G    G    G    G    G    U    G
    GTX970       P    U    P    U    P    P    P    P    P    G    G    G    U    G
    P100         P    U    P    U    P    P    P    P    P    G    G    G    U    G
    V100         P    U    P    U    P    P    P    P    P    G    G    G    U    G
    T4           O    U    O    U    O    O    O    O    O    O    O    O    U    O
    A100         O    U    O    U    O    O    O    O    O    O    O    O    U    O
    L40S         O    U    O    U    O    O    O    O    O    O    O    O    U    O
    H100         O    U    O    U    O    O    O    O    O    O    O    O    U    O
    H200         O    U    O    U    O    O    O    O    O    O    O    O    U    O
    GH200        O    U    O    U    O    O    O    O    O    O    O    O    U    O
    B200         G    U    G    U    G    G    O    O    O    O    O    O    U    O
    RTX5090      G    U    G    U    G    G    O    O    O    O    O    O    U    O
    GB200        G    U    G    U    G    G    O    O    O    O    O    O    U    O
    B300         G    U    G    U    G    G    M    M    O    O    O    O    U    O
    GB300        G    U    G    U    G    G    M    M    O    O    O    O    U    O
    Rubin        G    U    G    U    G    G    G    G    G    G    G    G    U    O
    V100+T4      P    U    P    U    P    P    P    P    P    G    G    G    U    G
    V100+H100    P    U    P    U    P    P    P    P    P    G    G    G    U    G
    P100+V100    P    U    P    U    P    P    P    P    P    G    G    G    U    G
    T4+B200      G    U    G    U    G    G    O    O    O    O    O    O    U    O
    A100+H100    O    U    O    U    O    O    O    O    O    O    O    O    U    O
    V100+B200    X    X    X    X    X    X    X    X    X    X    X    X    X    X
    P100+GH200   X    X    X    X    X    X    X    X    X    X    X    X    X    X
"""


@pytest.mark.parametrize(("names", "branch", "expected"), cells(DRIVERS))
def test_gpus_and_branches(names: str, branch: str, expected: str) -> None:
    assert answer(host(*names.split("+")), branch) == expected


# What comes of a wish: open modules for what is older than Turing there never were, proprietary ones for Grace and Blackwell neither, and from 615 on
# nobody gets those.
WISHES = """
                535/open 535/proprietary 580/open 580/proprietary 610/open 610/proprietary 620/open 620/proprietary
    GTX970      F        P               F        P               F        G               F        G
    P100        F        P               F        P               F        G               F        G
    V100        F        P               F        P               F        G               F        G
    T4          O        P               O        P               O        P               O        B
    A100        O        P               O        P               O        P               O        B
    H100        O        P               O        P               O        P               O        B
    H200        O        P               O        P               O        P               O        B
    GH200       O        F               O        F               O        F               O        F
    B200        G        F               O        F               O        F               O        F
    GB300       G        F               O        F               O        F               O        F
    V100+T4     F        P               F        P               F        G               F        G
    T4+B200     G        F               O        F               O        F               O        F
    V100+B200   F        F               F        F               F        F               F        F
"""


@pytest.mark.parametrize(("names", "asked", "expected"), cells(WISHES))
def test_gpus_and_flavours(names: str, asked: str, expected: str) -> None:
    branch, _, flavour = asked.partition("/")
    assert answer(host(*names.split("+")), branch, driver_flavour=flavour) == expected


# Debian 13's folder begins with 580 and that of Ubuntu 26.04 with 595; that of Ubuntu 20.04 is frozen.
PLATFORMS = """
                  535  545  550  555  560  565  570  575  580  590  595  610  615  620
    debian-12      O    U    U    U    U    U    U    U    O    O    O    O    U    O
    debian-13      N    N    N    N    N    N    N    N    O    O    O    O    U    O
    ubuntu-20.04   O    U    O    U    O    O    O    O    N    N    N    N    N    N
    ubuntu-22.04   O    U    O    U    O    O    O    O    O    O    O    O    U    O
    ubuntu-24.04   O    U    O    U    O    O    O    O    O    O    O    O    U    O
    ubuntu-26.04   N    N    N    N    N    N    N    N    N    N    O    O    U    O
"""


@pytest.mark.parametrize(("platform", "branch", "expected"), cells(PLATFORMS))
def test_platforms_and_branches(platform: str, branch: str, expected: str) -> None:
    distribution, _, version = platform.partition("-")
    assert answer(host("H100", distribution=distribution, version=version), branch) == expected


# The build that is chosen where none is asked for: the first in the project's order that the driver knows all of, else the first that it runs.
# CUDA 13 left Volta and older behind; 2.15 has no other build. Blackwell came with the build for 12.8, and with 2.7.
PYTORCH = """
                      H100/580.178.04 H100/535.309.01 H100/595.91.07 L40S/550.163.01 V100/580.178.04 P100/580.178.04 B200/580.178.04 B200/570.211.01 RTX5090/580.178.04
    2.15.0            cu130           D               cu132          D               C               C               cu130           D               cu130
    2.14.1,2.14.0     cu130           cu126           cu130          cu126           cu126           cu126           cu130           D               cu130
    2.13.0            cu130           cu126           cu130          cu126           cu126           cu126           cu130           D               cu130
    2.12.1,2.12.0     cu130           cu126           cu130          cu126           cu126           cu126           cu130           D               cu130
    2.11.0            cu130           cu128           cu130          cu128           cu126           cu126           cu130           cu128           cu130
    2.10.0            cu128           cu128           cu128          cu128           cu128           cu126           cu128           cu128           cu128
    2.9.1,2.9.0       cu128           cu128           cu128          cu128           cu128           cu126           cu128           cu128           cu128
    2.8.0             cu128           cu128           cu128          cu128           cu128           cu126           cu128           cu128           cu128
    2.7.1,2.7.0       cu126           cu118           cu126          cu118           cu126           cu126           cu128           cu128           cu128
    2.6.0             cu124           cu118           cu124          cu124           cu124           cu124           C               C               C
    2.5.1,2.5.0       cu124           cu121           cu124          cu124           cu124           cu124           C               C               C
    2.4.1,2.4.0       cu121           cu121           cu121          cu121           cu121           cu121           C               C               C
    2.3.1,2.3.0       cu121           cu121           cu121          cu121           cu121           cu121           C               C               C
    2.2.2,2.2.0       cu121           cu121           cu121          cu121           cu121           cu121           C               C               C
    2.1.2,2.1.0       cu121           cu121           cu121          cu121           cu121           cu121           C               C               C
    2.0.1,2.0.0       cu118           cu118           cu118          cu117           cu117           cu117           C               C               C
"""  # noqa: E501


@pytest.mark.parametrize(("release", "on", "expected"), cells(PYTORCH))
def test_releases_of_pytorch_gpus_and_drivers(release: str, on: str, expected: str) -> None:
    name, _, driver = on.partition("/")
    gpus = kinds(CATALOG, [gpu(0, IDS[name])])
    try:
        found = _pytorch_plan.choose(CATALOG, release, None, gpus, driver)
    except Refusal as refusal:
        assert refusal.fields["rule"] == MEANING.get(expected)
        return
    assert (found["version"], found["tag"]) == (release, expected)


@pytest.mark.parametrize(
    ("name", "architecture", "build", "expected"),
    [
        ("GB200", "sbsa", "2.14+cu130", "cu130"),
        ("GB300", "sbsa", "2.15+cu132", "cu132"),
        ("GH200", "sbsa", "2.14+cu130", "cu130"),
        ("A100", "sbsa", "2.14+cu130", "cu130"),
        # On Arm, the builds for CUDA 13 are made for no Turing.
        ("T4", "sbsa", "2.14+cu130", "C"),
        ("T4", "x86_64", "2.14+cu130", "cu130"),
        ("L40S", "sbsa", "2.14+cu130", "cu130"),
        ("B300", "x86_64", "2.14+cu130", "cu130"),
        ("V100", "x86_64", "2.10+cu128", "cu128"),
        ("V100", "x86_64", "2.11+cu128", "C"),
        ("V100", "x86_64", "2.8+cu129", "cu129"),
        ("Rubin", "x86_64", "2.15+cu132", "cu132"),
    ],
)
def test_code_for_a_gpu_on_each_cpu(name: str, architecture: str, build: str, expected: str) -> None:
    gpus = kinds(CATALOG, [gpu(0, IDS[name])])
    try:
        found = _pytorch_plan.choose(CATALOG, build, None, gpus, "620.10.01", None, architecture)["tag"]
    except Refusal as refusal:
        found = next(letter for letter, rule in MEANING.items() if rule == refusal.fields["rule"])
    assert found == expected


# ---- what links GPUs


@pytest.mark.parametrize(
    ("names", "more", "expected"),
    [
        (["H100"] * 8, {"nvswitches": 4}, ["nvswitch"]),
        (["A100"] * 8, {"nvswitches": 6}, ["nvswitch"]),
        (["V100"] * 16, {"nvswitches": 12}, ["nvswitch"]),
        (["H100"] * 4, {}, []),
        (["L40S"] * 8, {}, []),
        (["B200"] * 8, {}, ["nvlink5"]),
        (["B300"] * 8, {}, ["nvlink5"]),
        # A GPU that fell off the bus takes the fabric manager of the others with it from no plan.
        (["B200"] * 7, {}, ["nvlink5"]),
        (["B200"] * 8, {"virtualization": "kvm"}, ["nvlink5"]),
        (["B200"] * 2, {"virtualization": "kvm"}, []),
        (["GB200"] * 4, {}, ["rack"]),
        (["GB300"] * 4, {}, ["rack"]),
        (["GH200"], {}, []),
        ([], {"nvswitches": 4}, []),
    ],
)
def test_fabrics(names: list[str], more: dict[str, Any], expected: list[str]) -> None:
    facts = host(*names, nvswitches=more.get("nvswitches", 0))
    facts["host"]["virtualization"] = more.get("virtualization")
    assert [entry["name"] for entry in fabrics_of(CATALOG, facts, kinds(CATALOG, facts["gpus"]))] == expected


@pytest.mark.parametrize(
    ("names", "version", "lockstep", "others"),
    [
        (["B200"] * 8, "580.178.04", {"nvidia-fabricmanager"}, {"nvlsm", "infiniband-diags"}),
        (["B200"] * 8, "575.57.08", {"nvidia-fabricmanager-575"}, {"nvlsm", "infiniband-diags"}),
        (["B300"] * 8, "620.10.01", {"nvidia-fabricmanager"}, {"nvlsm", "infiniband-diags"}),
        (["GB200"] * 4, "580.178.04", {"nvidia-imex"}, set()),
        (["GB200"] * 4, "570.211.01", {"nvidia-imex-570"}, set()),
        (["H100"] * 4, "580.178.04", set(), set()),
    ],
)
def test_what_a_fabric_needs_comes_with_the_driver(names: list[str], version: str, lockstep: set[str], others: set[str]) -> None:
    made = resolve({"driver": version}, host(*names), known=CATALOG)
    packages = made["packages"]["nvidia_driver"]
    assert set(made["lockstep"]) == lockstep and all(packages[name].startswith(version + "-") for name in lockstep)
    assert {name for name, number in packages.items() if not number} == others
    units = {item["id"] for item in made["managed"] if item["kind"] == "unit"}
    assert ("nvidia-fabricmanager.service" in units) == any("fabricmanager" in name for name in lockstep)


def test_the_oldest_driver_is_that_of_the_most_demanding_part() -> None:
    fabrics = CATALOG["fabrics"]
    assert oldest_driver(kinds(CATALOG, [gpu(0, IDS["H100"])]), fabrics) is None
    # A board asks for more than the first driver that knows the GPUs on it.
    assert oldest_driver(kinds(CATALOG, [gpu(0, "2920")]), fabrics) == ("570.133.20", "the fabric of B100 SXM")
    assert oldest_driver(kinds(CATALOG, [gpu(0, "2920")]), []) == ("570", "B100 SXM")
    assert oldest_driver(kinds(CATALOG, [gpu(0, IDS["B200"]), gpu(1, IDS["B300"])]), fabrics) == ("580", "B300 SXM")


# ---- versions known to be bad


@pytest.mark.parametrize(
    ("name", "asked", "wanted"),
    [
        # A branch goes around its bad releases, whichever of its GPUs they break.
        ("H100", "570", "570.211.01"),
        ("H100", "550", "550.163.01"),
        ("B200", "580", "580.178.04"),
        ("L40S", "550.54", "550.54.15"),
        ("H100", "550.54", "driver.known_bad"),
        ("A100", "550.54.14", "driver.known_bad"),
        ("H100", "570.124.06", "driver.known_bad"),
        ("H100", "570.133.20", "570.133.20"),
        # What nobody has seen twice is told, and refused to nobody who insists.
        ("B200", "580.105.08", "580.105.08"),
        ("H100", "580.105.08", "580.105.08"),
    ],
)
def test_known_bad_drivers(name: str, asked: str, wanted: str) -> None:
    made = resolve({"driver": asked}, host(name), known=CATALOG)
    if "refusal" in made:
        assert made["refusal"]["rule"] == wanted
        assert made["refusal"]["nearest"] is not None
        return
    component = made["components"]["driver"]
    assert component["wanted"]["version"] == wanted
    told = [reason for reason in component["reasons"] if "known to be bad" in reason]
    assert bool(told) == ((name, asked) == ("B200", "580.105.08"))


def test_a_newest_release_that_is_bad_is_passed_over() -> None:
    known = catalog()
    about = {"component": "driver", "first_good": "580.200.01", "effect": "nothing works", "source": "us", "date": TODAY}
    known["known_bad"].insert(0, {**about, "first": "580.160", "last": "580.178.04"})

    def chosen(asked: str) -> str:
        made = resolve({"driver": asked}, host("H100"), known=known)
        return str(made["refusal"]["rule"] if "refusal" in made else made["components"]["driver"]["wanted"]["version"])

    assert [chosen(asked) for asked in ("580", "auto", "580.178.04")] == ["580.159.04", "580.159.04", "driver.known_bad"]
    known["known_bad"][0]["first"] = "580"
    assert [chosen(asked) for asked in ("580", "auto", "580.65.06")] == ["driver.known_bad"] * 3
    known["known_bad"][0]["unverified"] = True
    assert [chosen(asked) for asked in ("580", "auto")] == ["580.178.04"] * 2


def test_what_is_proposed_is_new_enough_for_the_gpus() -> None:
    said = resolve({"driver": "535"}, host("B300"), known=CATALOG)["refusal"]
    assert said["allowed"] == ["620", "610", "595", "590", "580"] and said["nearest"] == "580"
    assert resolve({"driver": "535"}, host("B200"), known=CATALOG)["refusal"]["allowed"][-2:] == ["575", "570"]


def test_a_locked_version_that_turns_out_bad_is_told_and_kept() -> None:
    """A lock is what a fleet runs; a newer catalog may not stop it."""
    made = resolve({"driver": "570"}, host("H100"), {"driver": {"570": "570.124.06"}}, CATALOG, TODAY)
    component = made["components"]["driver"]
    assert component["wanted"]["version"] == "570.124.06"
    assert any("first good: 570.133.20" in reason for reason in component["reasons"])


@pytest.mark.parametrize(
    ("component", "version", "name", "flavour", "bad"),
    [
        ("driver", "570.26", "H100", "open", True),
        ("driver", "570.25", "H100", "open", False),
        ("driver", "570.124.06", "V100", "proprietary", True),
        ("driver", "570.133.20", "H100", "open", False),
        ("driver", "570.133.20", "B200", "open", True),
        ("driver", "570.133.20", "B200", "proprietary", False),
        ("driver", "580.105.08", "B200", "open", True),
        ("driver", "580.126.20", "B200", "open", False),
        ("driver", "550.54.15", "H100", "open", True),
        ("driver", "550.54.15", "T4", "open", False),
        ("container_toolkit", "1.17.7", "T4", None, True),
        ("container_toolkit", "1.17.8", "T4", None, False),
        ("nccl", "2.29.2", "T4", None, True),
        ("nccl", "1.17.7", "T4", None, False),
    ],
)
def test_what_is_known_against_a_version(component: str, version: str, name: str, flavour: str | None, bad: bool) -> None:
    assert bool(known_bad(CATALOG, component, version, kinds(CATALOG, [gpu(0, IDS[name])]), flavour)) == bad


def test_a_bad_nccl_inside_of_pytorch_is_told() -> None:
    known = catalog()
    next(entry for entry in known["pytorch"] if entry["version"] == "2.14.1")["builds"]["cu130"]["nccl"] = "2.29.2"
    reasons = _pytorch_plan.choose(known, "2.14+cu130", None, kinds(known, [gpu(0, IDS["H100"])]), "580.178.04")["reasons"]
    assert reasons[-1] == "NCCL 2.29.2 inside of it is known to be bad: collectives hang; first good: 2.29.3"


# ---- Secure Boot


@pytest.mark.parametrize(
    ("platform", "names", "branch", "rule"),
    [
        ("rhel9", ["H100"], "610", None),
        ("rhel9", ["H100"], "580", None),
        ("rhel9", ["V100"], "580", None),
        ("rhel9", ["H100"], "615", "driver.secure_boot"),
        ("rhel9", ["H100"], "620", "driver.secure_boot"),
        # Signed modules are proprietary ones there, and those do not drive Blackwell.
        ("rhel9", ["B200"], "580", "driver.secure_boot"),
        ("rhel10", ["H100"], "580", "driver.secure_boot"),
        ("ubuntu2404", ["H100"], "620", None),
        ("debian12", ["H100"], "580", None),
    ],
)
@pytest.mark.parametrize("secure", [True, False])
def test_secure_boot(platform: str, names: list[str], branch: str, rule: str | None, secure: bool) -> None:
    """Where a signed module could be had it has to be; elsewhere the operator is told what the console will ask."""
    known = catalog()
    for entry in known["driver_branches"]:
        entry["packaged"] = ["debian", "ubuntu", "el"]
    about = {**known["platforms"][platform], "id": platform, "architecture": "x86_64"}
    facts = host(*names)
    facts["host"]["secure_boot"] = secure
    made = _resolve.resolve_stack(known, {"driver": branch}, None, about, facts, None, TODAY)
    if rule and secure:
        assert made["refusal"]["rule"] == rule and branch not in made["refusal"]["allowed"]
        return
    told = [reason for reason in made["components"]["driver"]["reasons"] if "mokutil --import" in reason]
    assert bool(told) == secure


def test_a_module_of_ours_that_is_loaded_proves_its_key() -> None:
    facts = host("H100")
    facts["host"]["secure_boot"] = True
    facts["driver"] = driver("580.159.04")
    assert not [reason for reason in resolve({"driver": "580"}, facts)["components"]["driver"]["reasons"] if "mokutil" in reason]
