# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wheel index: the CPU build of torch and what it needs, fetched once by the machine's own pip."""

from __future__ import annotations

import fcntl
import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from lab.paths import LabError

TAG = "cpu"
# The hosts' Python (Debian 12), whatever this machine's is.
TARGET = ("--python-version", "3.11", "--implementation", "cp", "--only-binary", ":all:")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "linux_x86_64")
TORCH = "torch==2.13.0+cpu"
WANTED = (TORCH, "numpy", "setuptools")
# Where the vendor of torch keeps its CPU builds, for machines whose pip does not find one by itself.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def prepare_wheels(cache: Path) -> Path:
    """Fill the site's wheel index (served as /whl/cpu/) and return its folder; nothing is fetched a second time."""
    top = cache / "vendor" / "wheels"
    top.mkdir(parents=True, exist_ok=True)
    folder = top / TAG
    mark = folder / ".complete"
    with (top / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists() and mark.read_text() == recipe():
            return folder
        part = Path(tempfile.mkdtemp(prefix="part-", dir=top))
        try:
            download(part, machine_pip(top / "pip"))
            write_index(part)
            (part / ".complete").write_text(recipe())
            part.chmod(0o755)
            shutil.rmtree(folder, ignore_errors=True)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder


def recipe() -> str:
    """Return what a complete index was made from."""
    return " ".join([*WANTED, *TARGET])


def download(folder: Path, pip: list[str]) -> None:
    """Fetch the wheels: first as the machine's pip is configured, then with torch's own index beside that."""
    line = [*pip, "download", "--quiet", "--dest", str(folder), *TARGET]
    for platform in PLATFORMS:
        line += ["--platform", platform]
    said = []
    for more in ((), ("--extra-index-url", TORCH_INDEX)):
        done = subprocess.run([*line, *more, *WANTED], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        said.append(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    raise LabError(
        f"pip found no {TORCH} for Python 3.11 ({said[0]}; with {TORCH_INDEX}: {said[1]}). "
        "Give pip a place that has it: PIP_FIND_LINKS=FOLDER or PIP_EXTRA_INDEX_URL=URL"
    )


def machine_pip(spare: Path) -> list[str]:
    """Return the command of a pip of this machine. A virtual environment's Python often has none; then a Python makes one at `spare`."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep), "/usr/local/bin", "/usr/bin"]
    names = [Path(folder) / name for folder in folders for name in ("python3", "python3.11", "python3.12", "python3.13")]
    pythons = [str(python) for python in dict.fromkeys([Path(sys.executable), *names]) if python.is_file()]
    for python in pythons:
        if works([python, "-m", "pip", "--version"]):
            return [python, "-m", "pip"]
    for python in pythons:
        if works([python, "-m", "venv", "--clear", str(spare)]):
            return [str(spare / "bin/python3"), "-m", "pip"]
    raise LabError("no pip was found to fetch torch with; install it with: apt-get install python3-pip")


def works(line: list[str]) -> bool:
    """Tell whether a program ends well."""
    return subprocess.run(line, capture_output=True, check=False).returncode == 0


def write_index(folder: Path) -> None:
    """Write a simple index (PEP 503) over the wheels of a folder."""
    projects: dict[str, list[Path]] = {}
    for wheel in sorted(folder.glob("*.whl")):
        name = re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()
        projects.setdefault(name, []).append(wheel)
    if not projects:
        raise LabError(f"pip left no wheels in {folder}")
    for name, wheels in projects.items():
        page = folder / name
        page.mkdir()
        links = [link(f"../{quote(wheel.name)}#sha256={checksum(wheel)}", wheel.name) for wheel in wheels]
        (page / "index.html").write_text(document(name, links))
    (folder / "index.html").write_text(document("Simple index", [link(f"{name}/", name) for name in projects]))


def link(target: str, text: str) -> str:
    """Return a line of an index page."""
    return f'<a href="{html.escape(target)}">{html.escape(text)}</a><br/>'


def document(title: str, links: list[str]) -> str:
    """Return an index page."""
    return f"<!DOCTYPE html>\n<html><head><title>{html.escape(title)}</title></head><body>\n" + "\n".join(links) + "\n</body></html>\n"


def checksum(path: Path) -> str:
    """Return a file's sha256."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
