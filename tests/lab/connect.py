# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ssh's ProxyCommand: takes a connection to a host from the lab's daemon and hands it to ssh. Usage: connect.py SOCKET HOST PORT."""

from __future__ import annotations

import json
import socket
import sys


def main(path: str, host: str, port: str) -> int:
    """Pass one connected socket on through standard output (ssh's ProxyUseFdpass)."""
    with socket.socket(socket.AF_UNIX) as daemon:
        try:
            daemon.connect(path)
        except OSError as error:
            print(f"the lab is not up ({error})", file=sys.stderr)
            return 1
        daemon.sendall(json.dumps({"op": "connect", "host": host, "port": int(port)}).encode() + b"\n")
        data, descriptors, _, _ = socket.recv_fds(daemon, 65536, 1)
        if not descriptors:
            print(json.loads(data or b'{"error": "the lab went away"}').get("error"), file=sys.stderr)
            return 1
    with socket.socket(fileno=1) as ssh:
        socket.send_fds(ssh, [b"\0"], descriptors)
        ssh.detach()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
