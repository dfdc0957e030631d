#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs `ansible-test sanity` on a copy of the checkout, since it refuses to follow the links that make a checkout the collection."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import ansible_test

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.common import BIN, CACHE, CHECKOUT, environment, run, say, tracked_files

COPY = CACHE / "sanity" / "ansible_collections" / "gpu" / "fleet"
# Only what ships is held to the rules of a collection; tests, tools and the lab have rules of their own (ruff, mypy).
CHECKED = ("plugins", "roles", "playbooks", "meta", "changelogs", "galaxy.yml", "README.md", "CHANGELOG.md", "LICENSE", "tests/sanity")


def copy_tree() -> None:
    """Make the copy, with unchanged files left as they are."""
    wanted = {path for path in tracked_files() if str(path).startswith(CHECKED)}
    for old in list(COPY.rglob("*")) if COPY.exists() else []:
        if old.is_file() and ".git" not in old.parts and old.relative_to(COPY) not in wanted:
            old.unlink()
    for path in wanted:
        target = COPY / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != (CHECKOUT / path).read_bytes():
            shutil.copy2(CHECKOUT / path, target)
    if not (COPY / ".git").exists():
        subprocess.run(["git", "init", "--quiet"], cwd=COPY, check=True)


def offer_pip() -> None:
    """Put the stand-in for get-pip.py where ansible-test keeps its download, under the name that its release uses."""
    requirements = Path(ansible_test.__file__).parent / "_internal" / "python_requirements.py"
    version = re.search(r"pip='([\d.]+)'", requirements.read_text())
    if version is None:
        raise SystemExit("ansible-test no longer names its pip version where it did: adapt tools/sanity.py")
    target = Path.home() / ".ansible" / "test" / "cache" / f"get_pip_{version.group(1).replace('.', '_')}.py"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / "tools" / "get_pip.py", target)


def main() -> int:
    """Run the sanity tests; further arguments go to ansible-test."""
    copy_tree()
    offer_pip()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    say(f"ansible-test sanity on a copy in {COPY.relative_to(CHECKOUT)} (its first run makes virtual environments: a minute or two)")
    return run([BIN / "ansible-test", "sanity", "--local", "--python", version, "--color", "no", *sys.argv[1:]], environment(PIP_QUIET="1"), cwd=COPY)


if __name__ == "__main__":
    sys.exit(main())
