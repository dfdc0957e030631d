# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the repository holds, and what it must not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from ansible import constants
from lab import sources
from lab.paths import LabError

from tools.common import BIN, CHECKOUT, environment

HEADED = (".py", ".yml", ".yaml", ".cfg", ".toml", ".c", ".sh")
LICENCE = "SPDX-License-Identifier: GPL-3.0-or-later"


def test_every_source_file_has_its_licence(files: list[Path]) -> None:
    """Three lines at the top: who, which licence, and its identifier. What stands in for a vendor's own file (payload) has none."""
    missing = []
    for path in files:
        if path.suffix not in HEADED or path.parts[0] == "changelogs" or "payload" in path.parts:
            continue
        head = (CHECKOUT / path).read_text(errors="replace")[:800]
        if head.strip() and LICENCE not in head:
            missing.append(str(path))
    assert not missing


def registries() -> set[str]:
    """Return where the machine's tools take packages from: Debian's as apt is set up, the others also where they go without being told."""
    addresses = [str(constants.GALAXY_SERVER)]
    # On another distribution there are no sources of Debian's to name.
    with suppress(LabError):
        addresses.append(sources.sources(sources.machine_codename()))
    python = str(BIN / "python")
    asked = [[python, "-c", "from pip._internal.models.index import PyPI as i; print(i.url, 'https://' + i.file_storage_domain)"]]
    asked.append([python, "-m", "pip", "config", "list"])
    if shutil.which("npm"):
        asked.append(["npm", "config", "get", "registry"])
    addresses += [subprocess.run(words, capture_output=True, text=True, check=True).stdout for words in asked]
    hosts = set(re.findall(r"https?://(?:[^/@\s]*@)?([a-z0-9.-]+\.[a-z]+)", " ".join(addresses)))
    # A registry's files and its index stand under one domain, whichever of its hosts is named.
    return {re.sub(r"^(?:files|registry|www)\.", "", host) for host in hosts}


def test_no_registry_is_named(files: list[Path]) -> None:
    """Where packages come from is the machine's business: its pip and apt settings are used as they are."""
    hosts = registries()
    assert len(hosts) >= 3
    named = [str(path) for path in files for host in hosts if (CHECKOUT / path).is_file() and host in (CHECKOUT / path).read_text(errors="replace")]
    assert not named


def test_nothing_unfinished(files: list[Path]) -> None:
    """No note to oneself, no test that is switched off."""
    # Put together here, so that this file does not hold them either.
    marks = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b(?!_)|pytest\." + r"skip\(|mark\." + r"xfail")
    found = [
        f"{path}:{number}: {line.strip()[:80]}"
        for path in files
        if path.suffix in HEADED
        for number, line in enumerate((CHECKOUT / path).read_text(errors="replace").splitlines(), 1)
        if marks.search(line)
    ]
    assert not found


def test_the_links_that_make_a_checkout_the_collection() -> None:
    """Every top entry that an installation runs is linked, relatively, and nothing else is."""
    folder = CHECKOUT / "collections" / "ansible_collections" / "gpu" / "fleet"
    links = {path.name: os.readlink(path) for path in folder.iterdir()}
    assert links == {name: f"../../../../{name}" for name in ("galaxy.yml", "meta", "playbooks", "plugins", "roles")}
    assert all((folder / name).exists() for name in links)


def test_nothing_is_newer_than_the_collection(files: list[Path]) -> None:
    """What a page says came with a version is in that version."""

    def fields(version: str) -> list[int]:
        return [int(field) for field in version.split(".")]

    version = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())["version"]
    said = {
        found
        for path in files
        if path.parts[0] in ("plugins", "roles") and path.suffix in (".py", ".yml")
        for found in re.findall(r"version_added: ([0-9.]+)", (CHECKOUT / path).read_text())
    }
    assert said and max(map(fields, said)) == fields(version)


def test_lint_hides_nothing() -> None:
    """The skip and warn lists are empty, the profile is production, and nothing is ignored by file."""
    settings = yaml.safe_load((CHECKOUT / ".ansible-lint").read_text())
    assert settings["profile"] == "production" and settings["skip_list"] == [] and not settings.get("warn_list")
    assert not (CHECKOUT / ".ansible-lint-ignore").exists()
    assert not list((CHECKOUT / "tests" / "sanity").glob("ignore-*.txt"))
    search = ["git", "grep", "-nE", "# *noqa *:? *[a-z]+[[-]", "--", "roles", "playbooks"]
    disabled = subprocess.run(search, cwd=CHECKOUT, capture_output=True, text=True)
    assert disabled.stdout == ""


def test_ansible_cfg_leaves_security_alone() -> None:
    """No setting weakens host keys, privilege or logging."""
    text = "\n".join(line for line in (CHECKOUT / "ansible.cfg").read_text().splitlines() if not line.startswith("#"))
    assert not re.search(r"(?i)host_key_checking|StrictHostKeyChecking|UserKnownHosts|no_log|become|allow_world|vault", text)


@pytest.mark.parametrize("inventory", ["prod", "single"])
def test_example_inventories_are_complete(inventory: str) -> None:
    """Each example lists the tasks of site.yml without a host to reach, and draws its groups."""
    folder = CHECKOUT / "inventories" / inventory
    listed = subprocess.run(
        [BIN / "ansible-playbook", "site.yml", "-i", folder, "--list-tasks"], cwd=CHECKOUT, env=environment(), capture_output=True, text=True
    )
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.count("TAGS:") > 5
    assert "WARNING" not in listed.stderr, listed.stderr
    drawn = subprocess.run([BIN / "ansible-inventory", "-i", folder, "--graph"], cwd=CHECKOUT, env=environment(), capture_output=True, text=True)
    assert drawn.returncode == 0 and "@gpu_nodes:" in drawn.stdout, drawn.stderr + drawn.stdout
    assert "WARNING" not in drawn.stderr, drawn.stderr


def test_a_mistyped_inventory_is_refused_beside_a_good_one(tmp_path: Path) -> None:
    """A run on half of the nodes looks like a run on all of them."""
    good, bad = CHECKOUT / "inventories" / "single", tmp_path / "pord"
    listed = subprocess.run(
        [BIN / "ansible-playbook", "site.yml", "--list-hosts", "-i", good, "-i", bad], cwd=CHECKOUT, env=environment(), capture_output=True, text=True
    )
    assert listed.returncode != 0 and "Completely failed to parse inventory source" in listed.stderr, listed.stderr


def test_inventories_set_scalars_that_roles_declare() -> None:
    """What an inventory sets is an option of some role; a spelling mistake would be obeyed by nobody."""
    declared: set[str] = set()
    for path in (CHECKOUT / "roles").glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            declared |= set(entry.get("options") or {})
    for path in sorted((CHECKOUT / "inventories").rglob("group_vars/**/*.yml")):
        names = {name for name in yaml.safe_load(path.read_text()) or {} if not name.startswith("ansible_")}
        assert names <= declared, f"{path.relative_to(CHECKOUT)}: {sorted(names - declared)}"
