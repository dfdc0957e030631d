# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""apt-get: a transaction that is read before it is run.

run_command of Ansible has no time limit, which a transaction needs.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _apt_status, _dkms

# Numbered files here are the journal of a run of dpkg that was cut off.
JOURNAL = "/var/lib/dpkg/updates"
KERNEL = re.compile(r"(?:linux-image|linux-modules)\b|kernel(?:-rt|-64k|-debug)?(?:-core|-modules(?:-\w+)*|-uki-\w+)?$")
INSTALL = re.compile(r"Inst (\S+?)(?::\S+)? (?:\[([^\]]+)\] )?\((\S+) ")
REMOVE = re.compile(r"(?:Remv|Purg) (\S+?)(?::\S+)? \[([^\]]+)\]")
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
# What an earlier run has left half done is no reason to refuse the very packages that mend it; what it would cost, judge looks at.
INSTALL_WORDS = ("install", "-y", "--fix-broken", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages")
TELLING = re.compile(r"(E:|W:|dpkg:|Error|.*error:|.*[Uu]nmet|.*Depends:|.*not going to be|.*No space left|cannot )")
# What is exchanged is in files on this host. No repository, which may be gone, and no pin, which may name another version, has a part in it.
ALONE = (
    "-o", "Dir::Etc::SourceList=/dev/null", "-o", "Dir::Etc::SourceParts=/dev/null",
    "-o", "Dir::Etc::Preferences=/dev/null", "-o", "Dir::Etc::PreferencesParts=/dev/null",
    "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=",
)  # fmt: skip
UPDATE_SECONDS = 600
INSTALL_SECONDS = 3600
Change = t.Dict[str, t.Any]


class Failed(Exception):
    """The transaction cannot be made, or was not."""


class Selection(t.NamedTuple):
    """What dpkg says of an installed package."""

    version: str
    held: bool


def rows() -> list[list[str]]:
    """What dpkg knows: name, version, status and the wish of each package; nothing on a host without it."""
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            ["dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${db:Status-Status}\\t${db:Status-Want}\\n"],
            stdout=subprocess.PIPE, universal_newlines=True, check=False, env=ENVIRONMENT,
        )  # fmt: skip
    except FileNotFoundError:
        return []
    return [line.split("\t") for line in done.stdout.splitlines()]


def selections() -> dict[str, Selection]:
    """Version and hold of each package that is wholly installed."""
    return {row[0]: Selection(row[1], row[3:] == ["hold"]) for row in rows() if len(row) > 2 and row[2] == "installed"}


def unpacked() -> set[str]:
    """Names of the packages of which more than settings is here, be they half installed."""
    return {row[0] for row in rows() if len(row) > 2 and row[2] not in ("not-installed", "config-files")}


def installed() -> dict[str, str]:
    """Version of each package that is wholly installed."""
    return {name: found.version for name, found in selections().items()}


def held(names: t.Iterable[str]) -> list[str]:
    """Those of the packages that are on hold."""
    present = selections()
    return sorted(name for name in names if name in present and present[name].held)


def hold(names: t.Iterable[str], lock_timeout: int) -> None:
    """Put those of the packages on hold that are installed and are not."""
    present = selections()
    free = {name: True for name in names if name in present and not present[name].held}
    if free:
        select(free, lock_timeout)


def select(held: dict[str, bool], lock_timeout: int) -> None:
    """Put packages on hold, or take them off it."""
    text = "".join("%s %s\n" % (name, "hold" if hold else "install") for name, hold in sorted(held.items()))
    end = time.monotonic() + lock_timeout
    while True:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            ["dpkg", "--set-selections"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            universal_newlines=True, check=False, env=ENVIRONMENT, timeout=UPDATE_SECONDS,
        )  # fmt: skip
        if not done.returncode:
            return
        if "lock" not in done.stdout or time.monotonic() > end:
            raise Failed("dpkg --set-selections failed: %s" % complaint(done.stdout))
        time.sleep(1)


def missing(wanted: dict[str, str]) -> list[str]:
    """Names of wanted packages that are not installed in the wanted version."""
    present = installed()
    return [name for name, version in wanted.items() if name not in present or (version and present[name] != version)]


def parse(text: str) -> list[Change]:
    """What C(apt-get --simulate) says it would do, by name: C([{name, from, to, action}])."""
    found = []
    for line in text.splitlines():
        match = INSTALL.match(line)
        if match:
            name, old, new = match.groups()
            found.append({"name": name, "from": old, "to": new, "action": "install" if old is None else "change"})
        match = REMOVE.match(line)
        if match:
            found.append({"name": match.group(1), "from": match.group(2), "to": None, "action": "remove"})
    return sorted(found, key=lambda change: str(change["name"]))


def lower(one: str, two: str) -> bool:
    """Whether version C(one) is lower than C(two), as dpkg orders them."""
    return subprocess.run(["dpkg", "--compare-versions", one, "lt", two], check=False, env=ENVIRONMENT).returncode == 0  # pylint: disable=ansible-bad-function


def judge(changes: list[Change], wanted: dict[str, str], may_remove: list[str], is_lower: t.Callable[[str, str], bool] = lower) -> None:
    """Refuse what nobody asked for; raises Failed."""
    removed = [change["name"] for change in changes if change["action"] == "remove" and change["name"] not in may_remove]
    if removed:
        raise Failed("refused: the transaction would remove %s; name them in may_remove if that is meant" % ", ".join(removed))
    held = [change["name"] for change in changes if change.get("held") and change["name"] not in wanted and change["name"] not in may_remove]
    if held:
        raise Failed("refused: the transaction would change %s, which are on hold and which nobody asked for" % ", ".join(held))
    kernels = [change["name"] for change in changes if change["to"] and KERNEL.match(change["name"]) and change["name"] not in wanted]
    if kernels:
        raise Failed("refused: the transaction would bring the kernel packages %s, which nobody asked for" % ", ".join(kernels))
    lowered = [
        "%s %s -> %s" % (change["name"], change["from"], change["to"])
        for change in changes
        if change["action"] == "change" and not wanted.get(change["name"]) and is_lower(change["to"], change["from"])
    ]
    if lowered:
        raise Failed("refused: the transaction would lower %s, which nobody asked for" % ", ".join(lowered))


class Apt:
    """apt-get on the host."""

    def __init__(self, lock_timeout: int) -> None:
        self.lock_timeout = lock_timeout
        self.options = ["-q", "-o", "DPkg::Lock::Timeout=%d" % lock_timeout, "-o", "APT::Get::AutomaticRemove=false", "-o", "Acquire::Retries=2"]

    def call(self, words: list[str], seconds: int, *options: str) -> str:
        """Run apt-get, which must end well; returns its output."""
        started = time.time()
        code, output = run(["apt-get", *self.options, *options, *words], seconds)
        if code:
            raise Failed("apt-get %s failed: %s%s" % (words[0], complaint(output), _dkms.failure_since(started)))
        return output

    def repair(self) -> None:
        """Settle the journal that a run of dpkg left when it was cut off; until then apt-get refuses everything.

        That some packages cannot be configured yet is no failure here: they may be half unpacked, and the transaction brings them anew.
        """
        end = time.monotonic() + self.lock_timeout
        while cut_off():
            code, output = run(["dpkg", "--force-confold", "--configure", "-a"], INSTALL_SECONDS)
            if not cut_off():
                return
            if "lock" not in output or time.monotonic() > end:
                raise Failed("an earlier run of dpkg was cut off, and dpkg --configure -a failed (%d): %s" % (code, complaint(output)))
            time.sleep(2)

    def update(self) -> None:
        """Fetch the lists; a source that fails is a failure, as otherwise an old list would decide."""
        self.call(["update", "-o", "APT::Update::Error-Mode=any"], UPDATE_SECONDS)

    def words(self, wanted: dict[str, str], removed: t.Iterable[str] = ()) -> list[str]:
        """Arguments that ask for the packages, and for others to go."""
        asked = ["%s=%s" % (name, version) if version else name for name, version in sorted(wanted.items())]
        return [*INSTALL_WORDS, *asked, *(name + "-" for name in sorted(removed))]

    def simulate(self, wanted: dict[str, str], may_remove: t.Iterable[str] = (), removed: t.Iterable[str] = ()) -> list[Change]:
        """What the transaction would do. A hold on what may be removed is no obstacle; any other one is, as apt sees it."""
        held = {name for name, package in selections().items() if package.held}
        # To ask apt for the removal of what it does not know is an error.
        gone = unpacked() & set(removed) if removed else set()
        with _apt_status.freed(held & set(may_remove)) as options:
            found = parse(self.call(self.words(wanted, gone), UPDATE_SECONDS, "--simulate", *options))
        return [{**change, "held": True} if change["name"] in held else change for change in found]

    def fetch(self, wanted: dict[str, str], removed: t.Iterable[str] = ()) -> None:
        """Bring everything that the transaction needs onto the host, and change nothing."""
        self.call(self.words(wanted, removed), INSTALL_SECONDS, "--download-only")

    def download(self, words: list[str], folder: str) -> tuple[int, str]:
        """Fetch package files into a folder, as NAME=VERSION each; returns the exit code and the output of apt-get."""
        return run(["apt-get", *self.options, "-o", "APT::Sandbox::User=root", "download", *words], INSTALL_SECONDS, folder=folder)

    def foresee_exchange(self, files: list[str], removed: list[str], *options: str) -> None:
        """See that C(exchange) would do what it is told and no more; raises Failed. C(options) speak of a host that is otherwise than this one."""
        words = [*INSTALL_WORDS, *files, *(name + "-" for name in removed)]
        changes = parse(self.call(words, UPDATE_SECONDS, "--simulate", *ALONE, *options))
        more = [change["name"] for change in changes if change["action"] == "remove" and change["name"] not in removed]
        if more:
            raise Failed("refused: it would also remove %s, which needs what is to go" % ", ".join(more))

    def exchange(self, files: list[str], removed: list[str], afresh: t.Sequence[str] | None = None) -> None:
        """Install package files and remove packages in one transaction; a file that the operator changed stays the operator's.

        From another supplier, those that come C(afresh), be it none, and what goes are gone before anything is unpacked: a package that leads paths
        elsewhere, such as Debian's nvidia-alternative, takes them along, and by then they would be those of the new packages.
        """
        self.foresee_exchange(files, removed)
        before = [] if afresh is None else sorted({*removed, *afresh})
        self.remove(before)
        words = [*INSTALL_WORDS, *files, *(name + "-" for name in removed if name not in before)]
        self.call(words, INSTALL_SECONDS, "-o", "Dpkg::Options::=--force-confold", *ALONE)

    def remove(self, names: list[str]) -> None:
        """Remove packages with their settings, whatever depends on them: for what comes in their place at once."""
        end = time.monotonic() + self.lock_timeout
        while names:
            code, output = run(["dpkg", "--force-depends", "--force-remove-reinstreq", "--purge", *names], INSTALL_SECONDS)
            if not code:
                return
            if "lock" not in output or time.monotonic() > end:
                raise Failed("dpkg --remove failed (%d): %s" % (code, complaint(output)))
            time.sleep(2)

    def install(self, wanted: dict[str, str], removed: t.Iterable[str] = ()) -> None:
        """Make the transaction; a file that the operator changed stays the operator's."""
        self.call(self.words(wanted, removed), INSTALL_SECONDS, "-o", "Dpkg::Options::=--force-confold")


def edited(names: t.Iterable[str]) -> list[str]:
    """Settings files of packages that are not as the packages brought them."""
    done = subprocess.run(  # pylint: disable=ansible-bad-function
        ["dpkg", "--verify", *sorted(names)], stdout=subprocess.PIPE, universal_newlines=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    found = [line.split(None, 2) for line in done.stdout.splitlines()]
    return [words[2] for words in found if len(words) == 3 and words[1] == "c" and words[0][2:3] == "5"]


def cut_off() -> bool:
    """Whether dpkg's journal holds something, as it does while dpkg runs, and ever after when that run had no end."""
    return os.path.isdir(JOURNAL) and any(name.isdigit() for name in os.listdir(JOURNAL))


def run(words: list[str], seconds: int, folder: str | None = None, quiet: bool = False) -> tuple[int, str]:
    """Run a program in a session of its own, so that the loss of the connection does not reach dpkg.

    Returns its exit code and output; C(quiet) throws away what it writes to its standard output.
    """
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL if quiet else subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else subprocess.STDOUT, universal_newlines=True, check=False, env=ENVIRONMENT,
            timeout=seconds, start_new_session=True, cwd=folder,
        )  # fmt: skip
    except FileNotFoundError:
        raise Failed("%s is not on this host" % words[0]) from None
    except subprocess.TimeoutExpired:
        raise Failed("%s did not end within %d s" % (" ".join(words), seconds)) from None
    return done.returncode, (done.stderr if quiet else done.stdout)


def complaint(output: str) -> str:
    """The lines of apt's output that say what went wrong."""
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("dpkg: warning: downgrading")]
    telling = [line for line in lines if TELLING.match(line.strip())]
    return " | ".join(telling[-12:] or lines[-6:])[-2000:]
