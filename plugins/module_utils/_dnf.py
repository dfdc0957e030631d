# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""dnf: a transaction that is read before it is made.

dnf prints for people. What it would do is read through its Python bindings, which exist for the Python that dnf runs under and often for no
other: so a program of ours runs under that one, named in the first line of C(/usr/bin/dnf), in a session of its own and with a time limit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _dkms, _dnf_worker

PROGRAM = "/usr/bin/dnf"
FOLDERS = ("/etc/yum.repos.d", "/etc/yum/repos.d", "/etc/distro.repos.d")
RPM = ("rpm", "-qa", "--qf", "%{NAME}\\t%{EVR}\\t%{VERSION}-%{RELEASE}.%{ARCH}\\n")
POLL_SECONDS = 2.0
LOAD_SECONDS = _apt.UPDATE_SECONDS
SHEBANG = re.compile(rb"#!\s*(/\S+)((?:\s+-\w+)*)\s*$")
SECTION = re.compile(r"^\[([^\]]+)\]", re.M)
# What an answer holds for the judge alone.
INWARD = ("lower", "package")
Failed = _apt.Failed
Change = _apt.Change


def interpreter() -> list[str]:
    """The Python that dnf itself runs under."""
    try:
        with open(PROGRAM, "rb") as source:
            first = source.readline(200)
    except OSError as error:
        raise Failed("%s is not on this host: %s" % (PROGRAM, error.strerror)) from None
    match = SHEBANG.match(first.strip())
    if match is None or b"python" not in match.group(1):
        raise Failed(
            "%s is no Python program, so it is dnf of version 5 or newer, which this release of the collection does not drive; "
            "supported is version 4, which EL 9 and 10 have" % PROGRAM
        )
    return [match.group(1).decode(), *match.group(2).decode().split()]


def installed() -> list[tuple[str, str, str]]:
    """Name, C([epoch:]version-release) and C(version-release.architecture) of each package; several versions of one are several entries."""
    done = subprocess.run(  # pylint: disable=ansible-bad-function
        RPM, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False, env=_apt.ENVIRONMENT
    )
    if done.returncode:
        raise Failed("rpm cannot list the installed packages: %s" % " ".join(done.stderr.split())[-500:])
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [(row[0], row[1], row[2]) for row in rows if len(row) == 3]


def versions() -> dict[str, set[str]]:
    """The installed versions by every name that an answer of ours may use: plain, with the architecture, and with the version."""
    found: dict[str, set[str]] = {}
    for name, evr, full in installed():
        for label in (name, "%s.%s" % (name, full.rpartition(".")[2]), "%s-%s" % (name, evr)):
            found.setdefault(label, set()).add(evr)
    return found


def missing(wanted: dict[str, str]) -> list[str]:
    """Names of wanted packages that are not installed in the wanted version, or in another one beside it.

    A name without a version may itself hold one, as in C(kernel-devel-5.14.0-570.el9.x86_64).
    """
    present = versions()
    names: set[str] = set()
    for name, _evr, full in installed() if "" in wanted.values() else ():
        names.update((name, "%s-%s" % (name, full), "%s-%s" % (name, full.rpartition(".")[0])))
    return [name for name, version in wanted.items() if (present.get(name) != {version} if version else name not in names)]


def judge(changes: list[Change], wanted: dict[str, str], may_remove: list[str]) -> list[Change]:
    """Refuse what nobody asked for; raises Failed. Returns the changes as a module tells them."""
    lowered = {(change["to"], change["from"]) for change in changes if change["lower"]}
    # A kernel is one under whichever name.
    judged = [{**change, "name": change["package"] if _apt.KERNEL.match(change["package"]) else change["name"]} for change in changes]
    _apt.judge(judged, wanted, may_remove, lambda one, two: (one, two) in lowered)
    return [told(change) for change in changes]


def told(change: Change) -> Change:
    """A change as a module tells it."""
    return {key: value for key, value in change.items() if key not in INWARD}


class Dnf:
    """dnf on the host, or with caches of its own and one repository more."""

    def __init__(self, repository: dict[str, t.Any] | None, lock_timeout: int, private: bool, alone: bool = False, staged: bool = False) -> None:
        self.repository = repository
        self.private = private
        self.alone = alone
        # The stream is enabled for this process alone; it comes to the host with the packages.
        self.staged = private or staged
        self.refresh = True
        self.lock_timeout = lock_timeout
        self.settings: dict[str, t.Any] = {}
        self.root = ""

    def __enter__(self) -> Dnf:
        # Where there is room for lists and packages, as C(/tmp) may be memory.
        self.root = tempfile.mkdtemp(prefix="gpu-fleet-dnf-", dir="/var/tmp")
        try:
            if self.private:
                self.furnish()
        except BaseException:
            shutil.rmtree(self.root)
            raise
        return self

    def __exit__(self, *_details: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def furnish(self) -> None:
        """Give dnf caches of its own, and the host's own repositories with the one that is to come."""
        for name in ("repos", "cache", "lib", "log"):
            os.mkdir(os.path.join(self.root, name))
        repos = os.path.join(self.root, "repos")
        self.settings = {
            "reposdir": [repos], "cachedir": os.path.join(self.root, "cache"), "persistdir": os.path.join(self.root, "lib"),
            "logdir": os.path.join(self.root, "log"),
        }  # fmt: skip
        if not self.alone:
            for folder in FOLDERS:
                for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                    if name.endswith(".repo") and (self.repository is None or os.path.join(folder, name) != self.repository["path"]):
                        shutil.copy(os.path.join(folder, name), repos)
        if self.repository:
            self.add(repos, self.repository)

    def add(self, repos: str, repository: dict[str, t.Any]) -> None:
        """Add the repository that is to come, with its key."""
        # The engine of the driver transaction has no Ansible, and needs none of this.
        from ansible_collections.gpu.fleet.plugins.module_utils import _download

        if repository.get("proxy"):
            _download.through(repository["proxy"])
        try:
            data = _download.key(repository["key_url"], repository["fingerprint"], 30)
        except _download.Failed as error:
            raise Failed(str(error)) from error
        key = os.path.join(self.root, "key.asc")
        with open(key, "wb") as output:
            output.write(data)
        with open(os.path.join(repos, os.path.basename(repository["path"])), "w", encoding="utf-8") as text:
            text.write(repository["content"].replace(repository["key_path"], key))

    def ask(self, verb: str, seconds: int, wanted: dict[str, str], expected: list[Change] | None = None, **more: t.Any) -> dict[str, t.Any]:
        """Have the work done under dnf's own Python; returns its answer, of which C(changes) is what the transaction does."""
        repository = self.repository or {}
        sections = SECTION.findall(repository.get("content") or "")
        request = {
            "verb": verb, "wanted": wanted, "remove": [], "expected": expected, "private": self.private, "staged": self.staged, "alone": self.alone,
            "refresh": self.refresh, "settings": self.settings, "stream": repository.get("stream"),
            "fingerprints": {name: repository["fingerprint"].upper() for name in sections}, **more,
        }  # fmt: skip
        started = time.time()
        end = time.monotonic() + self.lock_timeout
        while True:
            answer = run([*interpreter(), self.program()], json.dumps(request), seconds, os.path.join(self.root, "said"))
            if "locked" not in answer:
                break
            if time.monotonic() > end:
                raise Failed("another run of dnf did not end within %d s: %s" % (self.lock_timeout, answer["locked"]))
            time.sleep(POLL_SECONDS)
        if "error" in answer:
            raise Failed("%s%s" % (answer["error"], _dkms.failure_since(started) if verb in ("install", "exchange") else ""))
        return answer

    def program(self) -> str:
        """Our program as a file that dnf's Python can run."""
        path = os.path.join(self.root, "worker.py")
        if not os.path.exists(path):
            source = _dnf_worker.__loader__.get_source(_dnf_worker.__name__)  # type: ignore[union-attr]
            with open(path, "w", encoding="utf-8") as output:
                output.write(source or "")
        return path

    def simulate(self, wanted: dict[str, str], removed: t.Sequence[str] = ()) -> list[Change]:
        """What the transaction would do. The lists that this fetched decide also what follows."""
        changes: list[Change] = self.ask("simulate", _apt.UPDATE_SECONDS, wanted, remove=list(removed))["changes"]
        self.refresh = False
        return changes

    def fetch(self, wanted: dict[str, str], changes: list[Change]) -> None:
        """Bring everything that the transaction needs onto the host, and change nothing."""
        self.ask("fetch", _apt.INSTALL_SECONDS, wanted, changes)

    def install(self, wanted: dict[str, str], changes: list[Change]) -> None:
        """Make the transaction that was looked at, and no other."""
        self.ask("install", _apt.INSTALL_SECONDS, wanted, changes)

    def collect(self, wanted: dict[str, str], folder: str) -> list[str]:
        """Bring the files of exact versions into a folder; returns the names of those that no repository has."""
        lacking: list[str] = self.ask("collect", _apt.INSTALL_SECONDS, wanted, folder=folder)["lacking"]
        return lacking

    def exchange(self, files: list[str], removed: list[str], dry: bool = False) -> None:
        """Install package files and remove packages in one transaction, without a repository; C(dry) only sees that it could be made."""
        self.ask("exchange", _apt.INSTALL_SECONDS, {}, files=files, remove=removed, dry=dry)

    def upgrade(self) -> dict[str, t.Any]:
        """What a full upgrade would do: C({changes, locking})."""
        return self.ask("upgrade", _apt.UPDATE_SECONDS, {})


def run(words: list[str], request: str, seconds: int, said: str) -> dict[str, t.Any]:
    """Run a program in a session of its own, so that the loss of the connection does not reach rpm; returns its answer."""
    with open(said, "w+b") as noise:
        try:
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                words, input=request, stdout=subprocess.PIPE, stderr=noise, universal_newlines=True, check=False,
                env=_apt.ENVIRONMENT, timeout=seconds, start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError:
            raise Failed("%s is not on this host" % words[0]) from None
        except subprocess.TimeoutExpired:
            raise Failed("dnf did not end within %d s" % seconds) from None
        noise.seek(0)
        heard = " | ".join(noise.read().decode("utf-8", "replace").split("\n")[-12:]).strip(" |")[-1000:]
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Failed("dnf ended with %d and no answer: %s" % (done.returncode, heard or "it said nothing"))
    return answer
