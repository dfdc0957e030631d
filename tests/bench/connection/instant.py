# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection to hosts that do not exist: every module answers at once with $GPU_FLEET_BENCH_ANSWER; the controller's cost is left.

A host HOST whose file answer-HOST.json stands beside that one answers with its own, and to a module MODULE with answer-HOST-MODULE.json.
"""

from __future__ import annotations

DOCUMENTATION = """
name: instant
short_description: Answers at once
description: Answers every module with one recorded answer.
author: gpu.fleet contributors (@gpu-fleet)
options: {}
"""

import os
import uuid
from pathlib import Path
from typing import Any

from ansible.plugins.connection import ConnectionBase

# A file is read once by each of the controller's processes.
COMMON = Path(os.environ["GPU_FLEET_BENCH_ANSWER"])
ANSWER = COMMON.read_bytes()
OWN = {path.stem.partition("-")[2]: path.read_bytes() for path in COMMON.parent.glob("answer-*.json")}


class Connection(ConnectionBase):  # type: ignore[misc]
    """A host that knows one answer."""

    transport = "instant"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Answer a pipelined module; who asks for the boot gets another one each time, and anything else, such as the home folder, is a path."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if in_data is None:
            return 0, f"{uuid.uuid4()}\n".encode() if "boot_id" in cmd else b"/root\n", b""
        return 0, self._answer(in_data), b""

    def _answer(self, module: bytes) -> bytes:
        """Return the answer of this host; a module names itself in what carries it."""
        host = self._play_context.remote_addr
        special = next((said for name, said in OWN.items() if name.startswith(f"{host}-") and name[len(host) + 1 :].encode() in module), None)
        return special or OWN.get(host, ANSWER)

    def put_file(self, in_path: str, out_path: str) -> Any:
        """Take a file nowhere."""

    def fetch_file(self, in_path: str, out_path: str) -> Any:
        """Bring nothing."""

    def close(self) -> None:
        """End."""
        self._connected = False
