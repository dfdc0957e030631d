# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's protocol: one JSON request a connection, with file descriptors beside it, and one JSON answer."""

from __future__ import annotations

import json
import socket
from typing import Any

MOST = 1 << 20
# Raised when daemon and client learn to speak differently.
PROTOCOL = 2


def send(connection: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    """Send a message, and descriptors with it."""
    data = json.dumps(message).encode() + b"\n"
    sent = socket.send_fds(connection, [data], descriptors or [])
    if sent < len(data):
        connection.sendall(data[sent:])


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the next message and its descriptors; an empty message means that the other end is gone or speaks otherwise."""
    data = b""
    descriptors: list[int] = []
    while not data.endswith(b"\n"):
        block, more, _, _ = socket.recv_fds(connection, MOST, 4)
        descriptors += more
        if not block:
            return {}, descriptors
        data += block
    try:
        message = json.loads(data)
    except ValueError:
        message = None
    return message if isinstance(message, dict) else {}, descriptors
