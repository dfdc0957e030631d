# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module arrives as an archive of sources: each of our files in it is compiled once, and one that is missing is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PACKAGE = "ansible_collections/gpu/fleet/plugins/module_utils/"
SCRIPT = """
import collections, importlib, json, sys
sys.path.insert(0, sys.argv[1])
compiled = collections.Counter()
sys.addaudithook(lambda event, words: compiled.update([str(words[1])]) if event == "compile" else None)
package = "ansible_collections.gpu.fleet.plugins.module_utils."
from ansible_collections.gpu.fleet.plugins.module_utils import _once
_once.compile_once()
from ansible_collections.gpu.fleet.plugins.module_utils import _observe
importlib.import_module(package + "_pins")
try:
    importlib.import_module(package + "_nothing")
    missing = False
except ImportError:
    missing = True
try:
    _observe.chosen(["nonsense"])
except ValueError as error:
    import traceback
    place = traceback.format_exc()
print(json.dumps([{name[len(sys.argv[1]) + 1:]: times for name, times in compiled.items() if "gpu/fleet" in name}, missing, place]))
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Give an archive as Ansible makes it."""
    path = tmp_path / "payload.zip"
    with zipfile.ZipFile(path, "w") as made:
        for end in range(1, PACKAGE.count("/") + 1):
            made.writestr("/".join(PACKAGE.split("/")[:end]) + "/__init__.py", "")
        for source in (ROOT / "plugins/module_utils").glob("*.py"):
            made.write(source, PACKAGE + source.name)
    return path


def test_each_file_is_compiled_once(archive: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(archive)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    compiled, missing, place = json.loads(done.stdout)
    ours = {name[len(PACKAGE):]: times for name, times in compiled.items() if name.startswith(PACKAGE + "_")}
    # What makes it so comes too late for itself and the packages above.
    ours = {name: times for name, times in ours.items() if name not in ("_once.py", "__init__.py")}
    assert {"_observe.py", "_pins.py"} <= set(ours)
    assert set(ours.values()) == {1}
    assert missing
    # An error still shows its place and its line.
    assert "raise ValueError(" in place
