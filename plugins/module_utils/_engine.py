# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The driver transaction as a service of its own: dpkg or rpm outlives the connection, the controller and, in the next boot, the host's power.

The service is there only while a transaction is unfinished. It is enabled, so that a boot, asked for or not, goes on with what the record says.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import typing as t
import zipfile

from ansible_collections.gpu.fleet.plugins.module_utils import _kernel_driver, _managers, _record, _transaction
from ansible_collections.gpu.fleet.plugins.module_utils._driver_steps import DriverSteps

PACKAGE = "ansible_collections.gpu.fleet.plugins.module_utils"
UNIT = "gpu-fleet-driver.service"
UNIT_PATH = "/etc/systemd/system/" + UNIT
ENGINE = "engine.zip"
ARCHIVES = "packages"
# A step is let go on when the host is told to shut down: half a run of dpkg or rpm is worse than a late boot.
UNIT_TEXT = """[Unit]
Description=gpu.fleet: unfinished change of the GPU driver
After=local-fs.target systemd-modules-load.service
RequiresMountsFor=/var/lib/gpu_fleet
ConditionPathExists={folder}/transaction.json

[Service]
Type=exec
ExecStart={python} {folder}/engine.zip
KillMode=mixed
TimeoutStopSec=1800

[Install]
WantedBy=multi-user.target
"""
MAIN = "from %s import _engine\n_engine.main()\n" % PACKAGE


def sources() -> dict[str, bytes]:
    """This program: every file of the collection that it has imported, by its place below the search path."""
    found = {"__main__.py": MAIN.encode()}
    for name, module in sorted(sys.modules.items()):
        loader: t.Any = getattr(module, "__loader__", None)
        if name.startswith(PACKAGE + ".") and hasattr(loader, "get_source"):
            found[name.replace(".", "/") + ".py"] = (loader.get_source(name) or "").encode()
    parts = PACKAGE.split(".")
    found.update({"/".join(parts[:count]) + "/__init__.py": b"" for count in range(1, len(parts) + 1)})
    return found


def write_engine(folder: str) -> None:
    """Put the program beside the record, for this boot and the next."""
    path = os.path.join(folder, ENGINE)
    with zipfile.ZipFile(path + ".part", "w") as archive:
        for name, text in sorted(sources().items()):
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), text)
    os.replace(path + ".part", path)


def systemctl(*words: str) -> None:
    """Ask systemd for something that must be done."""
    done = subprocess.run(  # pylint: disable=ansible-bad-function
        ["systemctl", "--quiet", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        universal_newlines=True, check=False, timeout=120,
    )
    if done.returncode:
        raise OSError("systemctl %s failed: %s" % (" ".join(words), done.stdout.strip()))


def install(folder: str, unit_path: str = UNIT_PATH) -> None:
    """Make the service."""
    write_engine(folder)
    with open(unit_path + ".part", "w", encoding="utf-8") as output:
        output.write(UNIT_TEXT.format(folder=folder, python=sys.executable))
    os.replace(unit_path + ".part", unit_path)
    systemctl("daemon-reload")
    systemctl("enable", UNIT)


def remove(unit_path: str = UNIT_PATH) -> None:
    """Take the service away; the record, and the files for the way back, stay."""
    if os.path.exists(unit_path):
        systemctl("disable", UNIT)
        os.unlink(unit_path)
        systemctl("daemon-reload")


def active() -> bool:
    """Whether the service works on the transaction now."""
    done = subprocess.run(  # pylint: disable=ansible-bad-function
        ["systemctl", "--quiet", "is-active", UNIT], stdin=subprocess.DEVNULL, check=False, timeout=30,
    )
    return done.returncode == 0


def work(store: _record.Store) -> t.Dict[str, t.Any] | None:
    """Go on with the unfinished transaction, if there is one; returns its record."""
    with store.alone():
        record = store.read()
        if record is None or record["status"] not in _transaction.UNFINISHED:
            return record
        manager = _managers.here()
        archives = manager.archives(os.path.join(store.folder, ARCHIVES))
        steps = DriverSteps(archives, manager)
        transaction = _transaction.Transaction(store, steps, record)
        signal.signal(signal.SIGTERM, lambda *_: setattr(transaction, "stopping", True))
        record = transaction.run()
        if record["status"] not in _transaction.UNFINISHED:
            if record["wanted"]["version"] != record["before"]["version"]:
                # Both sets stay: the present driver's, to come back to from a later one, and the former one's.
                archives.keep(record["wanted"]["archives"], record["before"]["archives"])
            with contextlib.suppress(_kernel_driver.Refused, OSError):
                steps.release(_transaction.own(record))
        return record


def main() -> None:
    """Run as the service."""
    store = _record.Store()
    try:
        record = work(store)
    except _record.Busy:
        raise SystemExit("another process works on the transaction") from None
    except _record.Unreadable as error:
        raise SystemExit(str(error)) from error
    if record is None or record["status"] not in _transaction.UNFINISHED:
        remove()
    if record is not None:
        # The record says how it ended; a service that failed would be one more thing to clear away.
        reason = ": " + record["reason"] if record["reason"] else ""
        sys.stdout.write("driver transaction %s: %s%s\n" % (record["id"], record["status"], reason))
