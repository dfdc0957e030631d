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
from pathlib import Path
from typing import Any

from lab import hardware, layers
from lab.cache import Lease
from lab.cgroups import Group
from lab.machine import call, say
from lab.network import Cable
from lab.paths import GATEWAY, MOST_HOSTS, NETWORK, SITE_NAME, LabError
from lab.spec import HostSpec

REBOOT = 133
# As long as a firmware that does nothing. Slurm compares boot times by the second, so it must not be less.
FIRMWARE_SECONDS = 2.0
HALT_SECONDS = 20.0
# Without syncing: what a host writes lives as long as the lab, and dpkg asks for it after every file.
OVERLAY = "volatile,redirect_dir=on,index=off,metacopy=off"
NSPAWN = (
    "--quiet", "--boot", "--register=no", "--keep-unit", "--capability=CAP_NET_ADMIN", "--kill-signal=SIGRTMIN+3",
    "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe",
)  # fmt: skip


class Host:
    """A host and its life."""

    def __init__(self, spec: HostSpec, lowers: list[Path], folder: Path, console: Path, group: Group, cable: Cable) -> None:
        """Mount the host's root over `lowers` (top first); it is not booted yet."""
        self.spec = spec
        self.address = f"{NETWORK}.{spec.number}"
        self.lowers = lowers
        self.folder = folder
        self.root = folder / "root"
        self.console = console
        self.group = group
        self.cable = cable
        self.process: subprocess.Popen[bytes] | None = None
        self.state = "off"
        self.frozen = False
        self.boots = 0
        self.leaving = threading.Event()
        self._stopping = threading.Event()
        self._switch = threading.Lock()
        self._thread: threading.Thread | None = None
        self.leases: list[Lease] = []
        self.mount()

    def mount(self) -> None:
        """Mount the root, over an empty folder for what the host writes unless there is one already."""
        self.leases = [layers.lease_of(path) for path in self.lowers]
        shutil.rmtree(self.folder / "work", ignore_errors=True)
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        lower = ":".join(str(path) for path in self.lowers)
        options = f"lowerdir={lower},upperdir={self.folder}/upper,workdir={self.folder}/work,{OVERLAY}"
        call("mount", "-t", "overlay", f"lab-{self.spec.name}", "-o", options, self.root)

    def unmount(self) -> None:
        """Unmount the root."""
        subprocess.run(["umount", "--lazy", str(self.root)], check=False, capture_output=True)
        for lease in self.leases:
            lease.release()
        self.leases = []

    def dress(self, public_key: str, host_key: Path) -> None:
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
        for source, mode in ((host_key, 0o600), (host_key.with_suffix(".pub"), 0o644)):
            target = self.root / "etc/ssh" / f"ssh_host_ed25519_key{source.suffix}"
            shutil.copyfile(source, target)
            target.chmod(mode)
        # A host that starts from a saved one must not be taken for that one.
        (self.root / "etc/machine-id").write_text("")
        hardware.wear(self.root, self.spec.profile)

    def boot(self) -> None:
        """Switch the host on; returns at once."""
        with self._switch:
            if self._thread and self._thread.is_alive() and not self._stopping.is_set():
                return
            if self._thread:
                self._thread.join()
            self.cable.plug(True)
            self._stopping.clear()
            self.state = "on"
            self._thread = threading.Thread(target=self._live, daemon=True)
            self._thread.start()

    def _live(self) -> None:
        try:
            while not self._stopping.is_set():
                self.state = "on"
                code = self._run()
                if code != REBOOT:
                    break
                self.state = "rebooting"
                self._stopping.wait(FIRMWARE_SECONDS)
        finally:
            self.state = "off"

    def _run(self) -> int:
        """Run the host from one start to its end, and clear up behind it; returns nspawn's exit status."""
        if not self.group.remove():
            raise LabError(f"{self.spec.name}: the processes of its last run do not end")
        self.group.make()
        self.frozen = False
        uptime = int(time.clock_gettime(time.CLOCK_BOOTTIME))
        # A time namespace a boot, so that uptime starts at nought as after a real one.
        clock = ["unshare", "--time", f"--boottime=-{uptime}", f"--monotonic=-{uptime}"]
        argv = [*clock, "systemd-nspawn", f"--directory={self.root}", f"--machine={self.spec.name}", *NSPAWN]
        with self.console.open("ab") as console:
            self.process = subprocess.Popen(
                self.group.enter(self.cable.namespace, argv),
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, pass_fds=(self.cable.namespace,), start_new_session=True,
                env={"PATH": os.environ["PATH"], "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_LOG_LEVEL": "warning"},
            )  # fmt: skip
            # Counted when there is something to see of it: who waits for a boot looks at this.
            self.boots += 1
            code = self.process.wait()
        self.group.remove()
        return code

    def halt(self) -> None:
        """Switch the host off in an orderly way; a host that does not obey loses its power."""
        self._stopping.set()
        self.freeze(False)
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            if self._thread:
                self._thread.join(HALT_SECONDS)
        self._kill()

    def unplug(self) -> None:
        """Take the power away at once: the others see silence, not a goodbye."""
        self.cable.plug(False)
        self._kill()

    def _kill(self) -> None:
        self._stopping.set()
        for _ in range(200):
            if self._thread is None or not self._thread.is_alive():
                return
            self.group.kill()
            if self.process and self.process.poll() is None:
                self.process.kill()
            self._thread.join(0.05)
        raise LabError(f"{self.spec.name} did not stop")

    def freeze(self, frozen: bool) -> None:
        """Stop every process of the host, as a machine that hangs, or let them go on."""
        self.group.freeze(frozen)
        self.frozen = frozen

    def leader(self) -> int:
        """Return the process id of the host's init, as the daemon sees it."""
        if self.process is None or self.process.poll() is not None:
            raise LabError(f"{self.spec.name} is {self.state}")
        waiting = [self.process.pid]
        while waiting:
            pid = waiting.pop()
            try:
                if (Path(f"/proc/{pid}/comm")).read_text().strip() == "systemd":
                    return pid
                waiting += [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]
            except OSError:
                # Gone while we looked.
                continue
        raise LabError(f"{self.spec.name} has not started its init yet")

    def destroy(self) -> None:
        """Switch the host off for good and forget what it wrote."""
        self.leaving.set()
        self._kill()
        self.unmount()
        self.group.remove()
        self.cable.remove()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            say(f"{self.folder} could not be removed whole")

    def describe(self) -> dict[str, Any]:
        """Return what `status` shows."""
        state = "frozen" if self.frozen and self.state == "on" else self.state
        link = "cut" if self.cable.cut_off else self.cable.rate or "whole"
        return {**self.spec.packed(), "address": self.address, "state": state, "boots": self.boots, "link": link}
