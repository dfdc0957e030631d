# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host: an overlay over its image, run by systemd-nspawn, started again when it reboots itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from lab import hardware
from lab.machine import call, say
from lab.paths import GATEWAY, MOST_HOSTS, NETWORK, SITE_NAME, LabError

CGROUPS = Path("/sys/fs/cgroup")
REBOOT = 133
# As long as a firmware that does nothing. Slurm compares boot times by the second, so it must not be less.
FIRMWARE_SECONDS = 2.0
HALT_SECONDS = 20.0

# $1 namespace descriptor, $2.. control groups up to "--", then the program. nspawn must start inside both: with its own
# option for the namespace /sys would show the machine's interfaces, and without a group of its own systemd would manage
# the units of every other host.
ENTER = """
ns=$1; shift
while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift
exec nsenter --net=/proc/self/fd/$ns "$@"
"""


def hierarchies() -> list[Path]:
    """Return the roots of the control group trees that a host gets a place in; the last one can freeze and kill."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [CGROUPS / "systemd", CGROUPS / "unified"]


@dataclass(frozen=True)
class HostSpec:
    """What a host is to be."""

    name: str
    image: str = "debian12"
    profile: str = "none"
    layers: tuple[str, ...] = ()


class Host:
    """A host and its life."""

    def __init__(self, spec: HostSpec, number: int, folder: Path, group: str, lowers: list[Path], namespace: int) -> None:
        """Mount the host's root; it is not booted yet."""
        self.spec = spec
        self.number = number
        self.address = f"{NETWORK}.{number}"
        self.folder = folder
        self.groups = [root / group / spec.name for root in hierarchies()]
        self.namespace = namespace
        self.process: subprocess.Popen[bytes] | None = None
        self.state = "off"
        self.boots = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        for part in ("upper", "work", "root"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        self.root = folder / "root"
        lower = ":".join(str(path) for path in lowers)
        call("mount", "-t", "overlay", f"lab-{spec.name}", "-o", f"lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work", self.root)

    def dress(self, public_key: str) -> None:
        """Write the host's names and keys, and put its hardware on."""
        (self.root / "etc/hostname").write_text(self.spec.name + "\n")
        lines = ["127.0.0.1 localhost", f"{GATEWAY} {SITE_NAME}", *(f"{NETWORK}.{n} n{n}" for n in range(1, MOST_HOSTS + 1))]
        (self.root / "etc/hosts").write_text("\n".join(lines) + "\n")
        (self.root / "etc/resolv.conf").unlink(missing_ok=True)
        (self.root / "etc/resolv.conf").write_text("")
        authorized = self.root / "root/.ssh/authorized_keys"
        authorized.parent.mkdir(mode=0o700, exist_ok=True)
        authorized.write_text(public_key)
        authorized.chmod(0o600)
        # A copy of a saved host must not be taken for the host it was saved from.
        (self.root / "etc/machine-id").write_text("")
        hardware.wear(self.root, self.spec.profile)

    def boot(self) -> None:
        """Switch the host on; returns at once."""
        if self._thread and self._thread.is_alive():
            return
        self._stopping.clear()
        # Said here and not by the thread, or who waits for the host could find it off before the thread has begun.
        self.state = "on"
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        while not self._stopping.is_set():
            for group in self.groups:
                group.mkdir(parents=True, exist_ok=True)
            uptime = int(time.clock_gettime(time.CLOCK_BOOTTIME))
            nspawn = [
                "systemd-nspawn", "--quiet", f"--directory={self.root}", f"--machine={self.spec.name}", "--boot",
                "--register=no", "--keep-unit",
                "--capability=CAP_NET_ADMIN", "--kill-signal=SIGRTMIN+3",
                "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe",
            ]  # fmt: skip
            # A time namespace a boot, so that uptime starts at nought as after a real one.
            argv = ["unshare", "--time", f"--boottime=-{uptime}", f"--monotonic=-{uptime}", *nspawn]
            self.state, self.boots = "on", self.boots + 1
            with (self.folder / "console.log").open("ab") as console:
                self.process = subprocess.Popen(
                    ["sh", "-c", ENTER, "enter", str(self.namespace), *map(str, self.groups), "--", *argv],
                    stdin=subprocess.DEVNULL, stdout=console, stderr=console, pass_fds=(self.namespace,), start_new_session=True,
                    env={"PATH": os.environ["PATH"], "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_LOG_LEVEL": "warning"},
                )  # fmt: skip
                code = self.process.wait()
            self._sweep()
            if code != REBOOT:
                break
            self.state = "rebooting"
            self._stopping.wait(FIRMWARE_SECONDS)
        self.state = "off"

    def _sweep(self) -> None:
        """Remove the control groups of the last boot."""
        for group in self.groups:
            for _ in range(100):
                if self._removed(group):
                    break
                self._kill(group)
                time.sleep(0.02)

    @staticmethod
    def _removed(group: Path) -> bool:
        for folder, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                return False
        return True

    @staticmethod
    def _kill(group: Path) -> None:
        switch = group / "cgroup.kill"
        if switch.exists():
            switch.write_text("1")

    def halt(self) -> None:
        """Switch the host off in an orderly way; a host that does not obey loses its power."""
        self._stopping.set()
        self.thaw()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            if self._thread:
                self._thread.join(HALT_SECONDS)
        self.unplug()

    def unplug(self) -> None:
        """Take the power away at once."""
        self._stopping.set()
        for _ in range(200):
            if self._thread is None or not self._thread.is_alive():
                return
            self._kill(self.groups[-1])
            if self.process and self.process.poll() is None:
                self.process.kill()
            self._thread.join(0.05)
        raise LabError(f"{self.spec.name} did not stop")

    def freeze(self) -> None:
        """Stop every process of the host, as a machine that hangs."""
        (self.groups[-1] / "cgroup.freeze").write_text("1")

    def thaw(self) -> None:
        """Let a frozen host go on."""
        switch = self.groups[-1] / "cgroup.freeze"
        if switch.exists():
            switch.write_text("0")

    def leader(self) -> int:
        """Return the process id of the host's init, as the daemon sees it."""
        if self.process is None or self.process.poll() is not None:
            raise LabError(f"{self.spec.name} is {self.state}")
        waiting = [self.process.pid]
        while waiting:
            pid = waiting.pop()
            children = [int(child) for task in Path(f"/proc/{pid}/task").glob("*") for child in (task / "children").read_text().split()]
            for child in children:
                if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    return child
            waiting += children
        raise LabError(f"{self.spec.name} has not started its init yet")

    def destroy(self) -> None:
        """Switch the host off for good and forget what it wrote."""
        self.unplug()
        subprocess.run(["umount", "--lazy", str(self.root)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            say(f"{self.folder} could not be removed whole")

    def describe(self) -> dict[str, object]:
        """Return what `status` shows."""
        spec = asdict(self.spec)
        return {**spec, "layers": list(self.spec.layers), "address": self.address, "state": self.state, "boots": self.boots}
