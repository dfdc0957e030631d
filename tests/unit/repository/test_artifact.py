# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built artifact holds what an installation needs, nothing else, and works where only it is installed."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from tools.common import BIN, CHECKOUT, environment

PAPERS = {"docs", "changelogs", "MANIFEST.json", "FILES.json", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"}
TOP = {"meta", "plugins", "roles", "playbooks"} | PAPERS
PLAYBOOKS = ("site", "preflight", "single_node", "infiniband_cluster", "verify")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a fresh build, made from the files that git knows."""
    folder = tmp_path_factory.mktemp("artifact")
    done = subprocess.run(
        [BIN / "ansible-galaxy", "collection", "build", CHECKOUT, "--output-path", folder],
        env=environment(), capture_output=True, text=True, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return next(folder.glob("gpu-fleet-*.tar.gz"))


@pytest.fixture(scope="module")
def installed(artifact: Path) -> Path:
    """Give a folder in which only the artifact is installed."""
    target = artifact.parent / "collections"
    done = subprocess.run(
        [BIN / "ansible-galaxy", "collection", "install", "--offline", artifact, "-p", target],
        env=elsewhere(target), capture_output=True, text=True, cwd=artifact.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return target


def elsewhere(collections: Path) -> dict[str, str]:
    """Return an environment that knows nothing of the checkout."""
    env = environment(ANSIBLE_COLLECTIONS_PATH=str(collections), ANSIBLE_HOME=str(collections.parent / "home"))
    del env["ANSIBLE_CONFIG"], env["PYTHONPATH"]
    return env


def test_artifact_holds_only_what_an_installation_needs(artifact: Path) -> None:
    """No test, tool, inventory or cache travels."""
    with tarfile.open(artifact) as archive:
        names = archive.getnames()
    assert {name.split("/")[0] for name in names} <= TOP
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".orig", "~"))]


def test_artifact_holds_every_file_that_runs(artifact: Path, shipped: list[Path]) -> None:
    """The include list in galaxy.yml forgets nothing."""
    with tarfile.open(artifact) as archive:
        names = set(archive.getnames())
    assert not [str(path) for path in shipped if str(path) not in names]


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_installed_playbook_is_found_and_sound(installed: Path, playbook: str) -> None:
    """The playbook runs by its full name from the installed collection, far from the checkout."""
    done = subprocess.run(
        [BIN / "ansible-playbook", f"gpu.fleet.{playbook}", "-i", "localhost,", "--syntax-check"],
        env=elsewhere(installed), capture_output=True, text=True, cwd=installed.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(CHECKOUT) not in done.stdout + done.stderr
