# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one process that holds a lab: its end removes every process, mount and namespace of the lab."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab import hardware, images, vendor, wire
from lab.hosts import Host, HostSpec, hierarchies
from lab.machine import call, say
from lab.network import Network, connect, start_inside
from lab.paths import CACHE, GATEWAY, MOST_HOSTS, PROXY_PORT, SITE_NAME, SITE_PORT, LabError, LabPaths
from lab.proxy import Proxy

SSH_PORT = 22
BOOT_SECONDS = 90.0


class Daemon:
    """A running lab."""

    def __init__(self, paths: LabPaths) -> None:
        """Make the network, the proxy and the vendor's site."""
        self.paths = paths
        self.hosts: dict[str, Host] = {}
        self.changing = threading.RLock()
        self.network = Network()
        self.site_control = paths.run / "site.json"
        self.site_control.write_text("{}")
        self.site = vendor.build(CACHE)
        self.proxies: list[Proxy] = []
        start_inside(self.network.namespace, self._serve_site)
        self._start_proxy()
        self.make_keys()

    def _serve_site(self) -> None:
        vendor.serve(self.site, GATEWAY, SITE_PORT, self.site_control)

    def _start_proxy(self) -> None:
        """Open the proxy's ear in the lab's network, and let it connect from the machine's."""
        start_inside(self.network.namespace, lambda: self.proxies.append(Proxy((GATEWAY, PROXY_PORT), CACHE / "downloads"))).join()
        if not self.proxies:
            raise LabError("the proxy could not listen in the lab's network")
        threading.Thread(target=self.proxies[0].serve_forever, daemon=True).start()

    def make_keys(self) -> None:
        """Make the key that opens the hosts and the key that the hosts show."""
        for name in ("id_ed25519", "host_ed25519"):
            if not (self.paths.run / name).exists():
                call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {self.paths.name}", "-f", self.paths.run / name)
        shown = (self.paths.run / "host_ed25519.pub").read_text().split()
        (self.paths.run / "known_hosts").write_text(f"* {shown[0]} {shown[1]}\n")
        connector = Path(__file__).with_name("connect.py")
        self.paths.ssh_config.write_text(
            "Host *\n"
            f"  IdentityFile {self.paths.run}/id_ed25519\n  IdentitiesOnly yes\n  User root\n"
            f"  UserKnownHostsFile {self.paths.run}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
            f"  ProxyCommand {sys.executable} -S -E {connector} {self.paths.socket} %h %p\n  ProxyUseFdpass yes\n"
            "  BatchMode yes\n  ConnectTimeout 10\n  ServerAliveInterval 5\n  ServerAliveCountMax 3\n  LogLevel ERROR\n"
        )

    def up(self, specs: list[HostSpec]) -> None:
        """Bring hosts up; those that run already are left as they are."""
        with self.changing:
            new = [spec for spec in specs if spec.name not in self.hosts]
            for spec in new:
                known = hardware.profiles()
                if spec.profile not in known:
                    raise LabError(f"profile {spec.profile!r}: choose one of {', '.join(known)}")
            for spec in new:
                self._add(spec)
            for spec in specs:
                self.hosts[spec.name].boot()
            for spec in specs:
                self.wait(self.hosts[spec.name])
            self.write_state()

    def _add(self, spec: HostSpec) -> None:
        digits = spec.name.removeprefix("n")
        if spec.name != f"n{digits}" or not digits.isdigit() or not 1 <= int(digits) <= MOST_HOSTS:
            raise LabError(f"host name {spec.name!r}: use n1 to n{MOST_HOSTS}")
        number = int(digits)
        lowers = [saved_layer(layer) for layer in reversed(spec.layers)] + images.lowers(spec.image)
        folder = self.paths.hosts / spec.name
        shutil.rmtree(folder, ignore_errors=True)
        namespace = self.network.plug(spec.name, number)
        host = Host(spec, number, folder, self.paths.cgroup, lowers, namespace)
        self.hosts[spec.name] = host
        shutil.copy(self.paths.run / "host_ed25519", host.root / "etc/ssh/ssh_host_ed25519_key")
        os.chmod(host.root / "etc/ssh/ssh_host_ed25519_key", 0o600)
        shutil.copy(self.paths.run / "host_ed25519.pub", host.root / "etc/ssh/ssh_host_ed25519_key.pub")
        host.dress((self.paths.run / "id_ed25519.pub").read_text())

    def wait(self, host: Host, seconds: float = BOOT_SECONDS) -> None:
        """Wait until a host answers on its ssh port."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                with connect(self.network.namespace, host.address, SSH_PORT, 1.0) as line:
                    line.settimeout(2.0)
                    if line.recv(4) == b"SSH-":
                        return
            except OSError:
                pass
            if host.state == "off":
                break
            time.sleep(0.1)
        log = (host.folder / "console.log").read_text(errors="replace")[-600:]
        raise LabError(f"{host.spec.name} did not come up within {seconds:.0f} s; its console ends with: {log}")

    def down(self, names: list[str]) -> None:
        """Take hosts away."""
        with self.changing:
            chosen = [self.host(name) for name in names]
            threads = [threading.Thread(target=host.destroy) for host in chosen]
            for thread in threads:
                thread.start()
            for host, thread in zip(chosen, threads, strict=True):
                thread.join()
                self.network.unplug(host.spec.name, host.number)
                del self.hosts[host.spec.name]
            self.write_state()

    def host(self, name: str) -> Host:
        """Return a host by name."""
        if name not in self.hosts:
            raise LabError(f"no host {name!r} in lab {self.paths.name}; there are: {', '.join(sorted(self.hosts)) or 'none'}")
        return self.hosts[name]

    def fault(self, target: str, kind: str, args: list[str]) -> None:
        """Break or mend something."""
        if target == "site":
            vendor.set_fault(self.site_control, kind, args)
            return
        if target == "proxy":
            self.proxies[0].offline = {"offline": True, "online": False}[kind]
            return
        host = self.host(target)
        simple: dict[str, Callable[[], None]] = {
            "unplug": host.unplug,
            "freeze": host.freeze,
            "thaw": host.thaw,
            "cut": lambda: self.network.cut(host.number),
            "mend": lambda: self.network.mend(host.number),
            "shape": lambda: self.network.shape(target, host.number, args[0]),
            "unshape": lambda: self.network.shape(target, host.number, None),
        }
        if kind in simple:
            simple[kind]()
        elif kind == "plug":
            host.boot()
            self.wait(host)
        elif kind == "reboot":
            boots = host.boots
            self.execute(host, ["systemctl", "reboot"])
            end = time.monotonic() + BOOT_SECONDS
            while host.boots == boots and time.monotonic() < end:
                time.sleep(0.05)
            self.wait(host)
        else:
            hardware.fault(lambda argv: self.execute(host, argv), kind, args)

    def enter(self, host: Host) -> list[str]:
        """Return the words that put a program into a host."""
        return ["nsenter", "--all", f"--target={host.leader()}", "--", "env", "-i", "HOME=/root", "LANG=C.UTF-8",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]  # fmt: skip

    def execute(self, host: Host, argv: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program in a host, without ssh."""
        return subprocess.run([*self.enter(host), *argv], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)

    def save(self, name: str, layer: str) -> None:
        """Halt a host and keep what it wrote as a layer for other hosts."""
        host = self.host(name)
        host.halt()
        target = layer_path(layer)
        if target.exists() and images.in_use(target):
            raise LabError(f"layer {layer!r} is in use")
        part = target.with_name(target.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        call("cp", "--archive", host.folder / "upper", part)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        host.boot()
        self.wait(host)

    def describe(self) -> dict[str, Any]:
        """Return the state of the lab."""
        return {
            "lab": self.paths.name,
            "pid": os.getpid(),
            "ssh_config": str(self.paths.ssh_config),
            "site": {"url": f"http://{SITE_NAME}", "fingerprint": self.site.fingerprint},
            "hosts": [self.hosts[name].describe() for name in sorted(self.hosts, key=lambda name: int(name[1:]))],
        }

    def write_state(self) -> None:
        """Leave the state where the inventory finds it."""
        part = self.paths.state.with_suffix(".part")
        part.write_text(json.dumps(self.describe(), indent=1))
        part.replace(self.paths.state)

    def answer(self, connection: socket.socket) -> None:
        """Serve one request."""
        with connection:
            request, descriptors = wire.receive(connection)
            if not request:
                return
            try:
                wire.send(connection, *self.act(request, descriptors))
            except (LabError, OSError, KeyError, IndexError, subprocess.SubprocessError) as error:
                if not isinstance(error, LabError | BrokenPipeError):
                    traceback.print_exc()
                with suppress(OSError):
                    wire.send(connection, {"error": str(error) or type(error).__name__})
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def act(self, request: dict[str, Any], descriptors: list[int]) -> tuple[dict[str, Any], list[int]]:
        """Do what a request asks; returns the answer and the descriptors that go with it."""
        op = request.get("op")
        if op == "connect":
            line = connect(self.network.namespace, self.host(request["host"]).address, request["port"], 10.0)
            return {}, [line.detach()]
        if op == "exec":
            stdin, stdout, stderr = descriptors
            done = subprocess.run([*self.enter(self.host(request["host"])), *request["argv"]], stdin=stdin, stdout=stdout, stderr=stderr)
            return {"rc": done.returncode}, []
        if op == "up":
            self.up([HostSpec(**{**spec, "layers": tuple(spec["layers"])}) for spec in request["hosts"]])
        elif op == "down":
            self.down(request["hosts"])
        elif op == "fault":
            self.fault(request["target"], request["kind"], request["args"])
        elif op == "save":
            self.save(request["host"], request["layer"])
        elif op == "stop":
            threading.Thread(target=self.stop).start()
        elif op != "status":
            raise LabError(f"unknown request {op!r}")
        return self.describe(), []

    def stop(self) -> None:
        """End the lab; the namespaces take the rest along."""
        self.down(list(self.hosts))
        shutil.rmtree(self.paths.hosts, ignore_errors=True)
        remove_groups(self.paths)
        shutil.rmtree(self.paths.run, ignore_errors=True)
        os._exit(0)


def layer_path(layer: str) -> Path:
    """Return where a saved layer lies."""
    if not layer.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise LabError(f"layer name {layer!r}: use letters, digits, '-', '_' and '.'")
    return CACHE / "layers" / layer


def saved_layer(layer: str) -> Path:
    """Return a saved layer that exists."""
    path = layer_path(layer)
    if not path.is_dir():
        raise LabError(f"no saved layer {layer!r}; make it with: lab save HOST {layer}")
    return path


def remove_groups(paths: LabPaths) -> None:
    """Remove the lab's control groups, and kill what is left in them."""
    for root in hierarchies():
        top = root / paths.cgroup
        for attempt in range(100):
            left = False
            for folder, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    left = True
            if not left:
                break
            if attempt % 10 == 0 and (top / "cgroup.kill").exists():
                (top / "cgroup.kill").write_text("1")
            time.sleep(0.05)


def reap() -> None:
    """Collect the orphans that land on this process, the first of its process namespace."""
    while True:
        time.sleep(5)
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
                if fields[0] == "Z" and int(fields[1]) == os.getpid() and stat.parent.name not in known_children():
                    os.waitpid(int(stat.parent.name), os.WNOHANG)
            except (OSError, IndexError):
                continue


def known_children() -> set[str]:
    """Return the process ids that a Popen object waits for."""
    return {str(child.pid) for child in getattr(subprocess, "_active", [])}


def main(name: str) -> None:
    """Hold a lab until it is told to stop."""
    paths = LabPaths(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    daemon = Daemon(paths)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=daemon.stop).start())
    ear = socket.socket(socket.AF_UNIX)
    part = paths.socket.with_suffix(".new")
    part.unlink(missing_ok=True)
    ear.bind(str(part))
    os.chmod(part, 0o600)
    ear.listen(128)
    daemon.write_state()
    part.rename(paths.socket)
    say(f"{name} is ready")
    while True:
        connection, _ = ear.accept()
        threading.Thread(target=daemon.answer, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
