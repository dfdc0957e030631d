#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a part of the long tail: mutants, kills or dkms. A part that passed is not run again until something that it depends on changes."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from lab.machine import check
from lab.paths import LabError

from tools import mutants
from tools.common import BIN, CACHE, CHECKOUT, environment, run, say, tracked_files

PARTS = ("mutants", "kills", "dkms")
DEPENDS = ("plugins/", "roles/", "playbooks/", "site.yml", "tests/lab/", "tests/soak/", "tests/integration/harness.py", "inventories/lab/")


def content_key() -> str:
    """Return a name for everything that a soak depends on."""
    digest = hashlib.sha256()
    for path in tracked_files():
        if str(path).startswith(DEPENDS):
            digest.update(str(path).encode() + b"\0" + (CHECKOUT / path).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def soak(part: str) -> int:
    """Run a part that is made of tests."""
    kept = CACHE / "soak" / f"{part}-{content_key()}.json"
    if kept.exists():
        say(f"{part} passed at {json.loads(kept.read_text())['passed']}, and nothing has changed since: {kept.relative_to(CHECKOUT)}")
        return 0
    code = run([BIN / "pytest", "--verbose", "--timeout=7200", f"tests/soak/test_{part}.py"], environment())
    if code == 0:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"part": part, "passed": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}) + "\n")
    return code


def main(words: list[str]) -> int:
    """Run the part that the command line names."""
    if len(words) != 1 or words[0] not in PARTS:
        print(f"make test-soak: say PART= one of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    try:
        check()
    except LabError as error:
        print(f"make test-soak: {error}", file=sys.stderr)
        return 1
    return mutants.main([]) if words[0] == "mutants" else soak(words[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
