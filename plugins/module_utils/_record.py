# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The record of a transaction: on the disk before the step that it announces, so that whoever comes after a crash knows what was under way."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import typing as t

SCHEMA = 1
FOLDER = "/var/lib/gpu_fleet/driver"
NAME = "transaction.json"
# Room for the record on a disk that the transaction itself has filled.
RESERVE = "reserve"
RESERVE_BYTES = 1 << 18

Record = t.Dict[str, t.Any]


class Unreadable(Exception):
    """There is a record, and it cannot be understood."""


class Busy(Exception):
    """Another process works on the transaction."""


class Store:
    """The folder that holds the record."""

    def __init__(self, folder: str = FOLDER) -> None:
        self.folder = folder
        self.path = os.path.join(folder, NAME)

    def read(self) -> Record | None:
        """The record, or None when there never was a transaction; raises Unreadable."""
        try:
            with open(self.path, encoding="utf-8") as source:
                record = json.load(source)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Unreadable("%s cannot be read: %s" % (self.path, error)) from error
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            found = record.get("schema") if isinstance(record, dict) else None
            raise Unreadable("%s is of schema %s, and this release knows schema %d" % (self.path, found, SCHEMA))
        return record

    def write(self, record: Record) -> None:
        """Put the record on the disk; it is there when this returns, and at no moment is there half of one."""
        os.makedirs(self.folder, mode=0o755, exist_ok=True)
        data = json.dumps(record, indent=1, sort_keys=True).encode() + b"\n"
        try:
            self._put(data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not os.path.exists(os.path.join(self.folder, RESERVE)):
                raise
            os.unlink(os.path.join(self.folder, RESERVE))
            self._put(data)

    def _put(self, data: bytes) -> None:
        part = self.path + ".part"
        with open(part, "wb") as output:
            output.write(data)
            output.flush()
            os.fsync(output.fileno())
        os.replace(part, self.path)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def reserve(self) -> None:
        """Keep room for the record; raises OSError where there is none, which is the time to know it."""
        os.makedirs(self.folder, mode=0o755, exist_ok=True)
        path = os.path.join(self.folder, RESERVE)
        if not os.path.exists(path) or os.path.getsize(path) < RESERVE_BYTES:
            with open(path, "wb") as output:
                # Bytes that are written: a hole would reserve nothing.
                output.write(b"\xa5" * RESERVE_BYTES)
                output.flush()
                os.fsync(output.fileno())

    @contextlib.contextmanager
    def alone(self) -> t.Iterator[None]:
        """Hold the transaction; raises Busy when somebody else does. The kernel lets go of it when the process ends, however that happens."""
        os.makedirs(self.folder, mode=0o755, exist_ok=True)
        handle = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy from None
            yield
        finally:
            os.close(handle)
