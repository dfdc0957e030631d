# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a lab with all that they need: network, proxy, vendor's site and keys."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab import faults, hardware, keys, layers, vendor
from lab.cgroups import Group
from lab.hosts import Host
from lab.network import Network, connect, start_inside
from lab.paths import CACHE, GATEWAY, PROXY_PORT, SITE_NAME, SITE_PORT, SSH_PORT, LabError, LabPaths
from lab.proxy import Proxy, Upstream
from lab.sources import settings
from lab.spec import HostSpec
from lab.wire import PROTOCOL

BOOT_SECONDS = 90.0
ENVIRONMENT = ("HOME=/root", "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


class Fleet:
    """The hosts of a lab."""

    def __init__(self, paths: LabPaths) -> None:
        """Make the network, the proxy and the vendor's site."""
        self.paths = paths
        self.hosts: dict[str, Host] = {}
        self.group = Group(paths.cgroup)
        self._changing = threading.RLock()
        self._ending = threading.Event()
        self.network = Network()
        self.site = vendor.build(CACHE)
        self.site_control = paths.run / "site.json"
        self.site_control.write_text("{}")
        start_inside(self.network.namespace, lambda: vendor.serve(self.site, GATEWAY, SITE_PORT, self.site_control))
        self.proxy = self._proxy()
        keys.make_keys(paths)
        paths.logs.mkdir(exist_ok=True)
        self.write_state()

    def _proxy(self) -> Proxy:
        """Open the proxy's ear in the lab's network, and let it connect from the machine's."""
        upstream = Upstream.of_the_machine(settings())
        made: list[Proxy] = []
        start_inside(self.network.namespace, lambda: made.append(Proxy((GATEWAY, PROXY_PORT), CACHE / "downloads", upstream))).join()
        if not made:
            raise LabError("the proxy could not listen in the lab's network")
        threading.Thread(target=made[0].serve_forever, daemon=True).start()
        return made[0]

    def up(self, wanted: list[tuple[HostSpec, list[Path]]], cancelled: threading.Event) -> None:
        """Bring hosts up, each over its lower folders (top first); those that run already are left as they are.

        When it fails, or is cancelled, the hosts that it added go again.
        """
        with self._changing:
            self._refuse([spec for spec, _ in wanted])
            new = [spec.name for spec, _ in wanted if spec.name not in self.hosts]
            try:
                for spec, lowers in wanted:
                    self._stop_if(cancelled)
                    if spec.name in new:
                        self._add(spec, lowers)
                    self.hosts[spec.name].boot()
                for spec, _ in wanted:
                    self.wait(self.hosts[spec.name], cancelled=cancelled)
            except BaseException:
                self.down([name for name in new if name in self.hosts])
                raise
            finally:
                self.write_state()

    def _stop_if(self, cancelled: threading.Event | None) -> None:
        if self._ending.is_set() or (cancelled and cancelled.is_set()):
            raise LabError("given up: whoever asked for it has gone, or the lab ends")

    def _refuse(self, specs: list[HostSpec]) -> None:
        known = hardware.profiles()
        for spec in specs:
            if spec.profile not in known:
                raise LabError(f"profile {spec.profile!r}: choose one of {', '.join(known)}")
            there = self.hosts.get(spec.name)
            # A host that was saved stands on its own layer since.
            if there and (there.spec.image, there.spec.profile) != (spec.image, spec.profile):
                raise LabError(f"{spec.name} runs as {there.spec}, not as {spec}; take it down first: lab down --lab {self.paths.name} {spec.name}")

    def _add(self, spec: HostSpec, lowers: list[Path]) -> None:
        folder = self.paths.hosts / spec.name
        shutil.rmtree(folder, ignore_errors=True)
        cable = self.network.lay(spec.number)
        try:
            host = Host(spec, lowers, folder, self.paths.logs / f"{spec.name}.log", self.group.child(spec.name), cable)
        except BaseException:
            cable.remove()
            raise
        self.hosts[spec.name] = host
        self.dress(host)

    def dress(self, host: Host) -> None:
        """Give a host that is off its names, keys and hardware."""
        host.dress((self.paths.run / f"{keys.CLIENT_KEY}.pub").read_text(), self.paths.run / keys.HOST_KEY)

    def wait(self, host: Host, seconds: float = BOOT_SECONDS, cancelled: threading.Event | None = None) -> None:
        """Wait until a host answers on its ssh port."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and host.state != "off" and not host.leaving.is_set():
            self._stop_if(cancelled)
            try:
                with connect(self.network.namespace, host.address, SSH_PORT, 1.0) as line:
                    line.settimeout(2.0)
                    if line.recv(4) == b"SSH-":
                        return
            except OSError:
                host.leaving.wait(0.05)
        if host.leaving.is_set():
            raise LabError(f"{host.spec.name} was taken down")
        log = host.console.read_text(errors="replace")[-600:] if host.console.exists() else ""
        raise LabError(f"{host.spec.name} is {host.state} and did not answer within {seconds:.0f} s; its console ends with: {log}")

    def reboot(self, host: Host) -> None:
        """Let a host reboot itself, and wait until it is back."""
        boots = host.boots
        self.execute(host, ["systemctl", "reboot"])
        end = time.monotonic() + BOOT_SECONDS
        while host.boots == boots:
            if time.monotonic() > end or host.state == "off" or host.leaving.wait(0.02):
                raise LabError(f"{host.spec.name} does not reboot (it is {host.state})")
        self.wait(host)

    def down(self, names: list[str]) -> None:
        """Take hosts away."""
        with self._changing:
            chosen = [self.host(name) for name in names]
            threads = [threading.Thread(target=host.destroy) for host in chosen]
            for thread in threads:
                thread.start()
            for host, thread in zip(chosen, threads, strict=True):
                thread.join()
                del self.hosts[host.spec.name]
            self.write_state()

    def end(self) -> None:
        """Take every host away, those that are on their way up too."""
        self._ending.set()
        self.down(list(self.hosts))
        shutil.rmtree(self.paths.hosts, ignore_errors=True)
        self.group.remove()

    def host(self, name: str) -> Host:
        """Return a host by name."""
        if name not in self.hosts:
            raise LabError(f"no host {name!r} in lab {self.paths.name}; there are: {', '.join(sorted(self.hosts)) or 'none'}")
        return self.hosts[name]

    def fault(self, target: str, kind: str, args: list[str]) -> None:
        """Break or mend something."""
        if target == "site":
            vendor.set_fault(self.site_control, kind, args)
        elif target == "proxy":
            if kind not in ("offline", "online") or args:
                raise LabError("faults of the proxy: offline, online")
            self.proxy.offline = kind == "offline"
        elif kind in faults.FAULTS:
            try:
                faults.strike(self, self.host(target), kind, args)
            finally:
                self.write_state()
        else:
            host = self.host(target)
            hardware.fault(lambda argv: self.execute(host, argv), kind, args)

    def entering(self, host: Host, argv: list[str]) -> list[str]:
        """Return the words that put a program into a host: into its namespaces, and into a group that goes with it."""
        group = host.group.child("entered")
        group.make()
        inner = ["nsenter", "--all", f"--target={host.leader()}", "--", "env", "-i", *ENVIRONMENT, *argv]
        return group.enter(host.cable.namespace, inner)

    def execute(self, host: Host, argv: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program in a host, without ssh."""
        line = self.entering(host, argv)
        return subprocess.run(
            line, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=300, pass_fds=(host.cable.namespace,)
        )

    def save(self, name: str, layer: str) -> None:
        """Halt a host, keep what it wrote as a layer for other hosts, and start it again over that layer."""
        with self._changing:
            host = self.host(name)
            # Refused before the host is disturbed.
            layers.free_place(layer, self._image_of(host))
            host.halt()
            host.unmount()
            about = {"below": list(host.spec.layers), "profile": host.spec.profile}
            try:
                folder = layers.keep(host.folder / "upper", layer, self._image_of(host), about)
                host.lowers = [folder / layers.UPPER, *host.lowers]
                host.spec = HostSpec(host.spec.name, host.spec.image, host.spec.profile, (*host.spec.layers, layer))
            finally:
                host.mount()
                self.dress(host)
                host.boot()
                self.wait(host)
                self.write_state()

    @staticmethod
    def _image_of(host: Host) -> str:
        """Return the name of the folder that holds a host's image, which is the lowest but one (the tree)."""
        return host.lowers[-2].name

    def describe(self) -> dict[str, Any]:
        """Return the state of the lab."""
        return {
            "lab": self.paths.name,
            "protocol": PROTOCOL,
            "ssh_config": str(self.paths.ssh_config),
            "site": {"url": f"http://{SITE_NAME}", "fingerprint": self.site.fingerprint},
            "hosts": [host.describe() for host in sorted(self.hosts.values(), key=lambda host: host.spec.number)],
        }

    def write_state(self) -> None:
        """Leave the state where the inventory finds it."""
        part = self.paths.state.with_suffix(f".{threading.get_ident()}")
        # A lab that is being taken down has no folder any more.
        with suppress(FileNotFoundError):
            part.write_text(json.dumps(self.describe(), indent=1))
            part.replace(self.paths.state)
