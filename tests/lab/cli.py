# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's command line."""

from __future__ import annotations

import argparse
import json
import os
import sys

from lab import inventory
from lab.client import HostSpec, Lab
from lab.images import IMAGES
from lab.paths import LabError, default_name

FAULTS = """faults of a host: reboot, unplug, plug, freeze, thaw, cut, mend, shape RATE (200mbit), unshape
faults of its hardware: see tests/lab/hardware/README.md
faults of the vendor's site (HOST is "site"): gone, slow, half, bad-signature, older, newer, removed VERSION, ok
faults of the way out (HOST is "proxy"): offline, online"""


def host_spec(text: str) -> HostSpec:
    """Read NAME:IMAGE:PROFILE[:LAYER,LAYER]."""
    parts = text.split(":")
    if len(parts) not in (3, 4) or parts[1] not in IMAGES:
        raise argparse.ArgumentTypeError(f"{text!r}: give NAME:IMAGE:PROFILE[:LAYER,...] with IMAGE one of {', '.join(IMAGES)}")
    layers = tuple(parts[3].split(",")) if len(parts) == 4 and parts[3] else ()
    return HostSpec(parts[0], parts[1], parts[2], layers)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="lab", description="A fleet of real systemd hosts with simulated GPUs on this machine.")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--lab", default=default_name(), help="name of the lab (default: $GPU_FLEET_LAB, else 'default')")
    commands = top.add_subparsers(dest="command", required=True)

    up = commands.add_parser("up", parents=[common], help="bring hosts up; those that run are left as they are")
    up.add_argument("--nodes", type=int, default=0, metavar="N", help="bring up n1 to nN")
    up.add_argument("--profile", default="none", help="hardware that n1 to nN wear (default: none)")
    up.add_argument("--image", default="debian12", choices=sorted(IMAGES), help="what n1 to nN run (default: debian12)")
    up.add_argument("--host", type=host_spec, action="append", default=[], metavar="NAME:IMAGE:PROFILE[:LAYER,...]", help="one host; may be repeated")

    down = commands.add_parser("down", parents=[common], help="take the lab down, or only some hosts")
    down.add_argument("hosts", nargs="*", metavar="HOST")

    status = commands.add_parser("status", parents=[common], help="show the hosts")
    status.add_argument("--json", action="store_true", help="as JSON")

    for name, text in (("ssh", "log in to a host, or run a command there through ssh"), ("exec", "run a command in a host without ssh")):
        command = commands.add_parser(name, parents=[common], help=text)
        command.add_argument("host", metavar="HOST")
        command.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")

    fault = commands.add_parser(
        "fault", parents=[common], help="break or mend something", epilog=FAULTS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    fault.add_argument("target", metavar="HOST")
    fault.add_argument("kind", metavar="KIND")
    fault.add_argument("args", nargs="*", metavar="ARG")

    save = commands.add_parser("save", parents=[common], help="keep what a host wrote as a layer for other hosts")
    save.add_argument("host", metavar="HOST")
    save.add_argument("layer", metavar="LAYER")

    commands.add_parser("inventory", parents=[common], help="print the lab as a dynamic inventory")
    return top


def show(state: dict[str, object]) -> None:
    """Print the hosts as a table."""
    print(f"lab {state['lab']}: ssh -F {state['ssh_config']} HOST")
    rows = [("host", "state", "address", "image", "profile", "boots")]
    rows += [tuple(str(host[field]) for field in ("name", "state", "address", "image", "profile", "boots")) for host in state["hosts"]]  # type: ignore[attr-defined,misc]
    for row in rows:
        print("  " + "".join(f"{cell:13}" for cell in row).rstrip())


def act(options: argparse.Namespace) -> int:
    """Do what the command line asks."""
    lab = Lab(options.lab)
    if options.command == "up":
        hosts = [HostSpec(f"n{number}", options.image, options.profile) for number in range(1, options.nodes + 1)] + options.host
        if not hosts:
            raise LabError("name hosts: --nodes N, or --host NAME:IMAGE:PROFILE")
        lab.up(hosts)
        show(lab.status())
    elif options.command == "down":
        lab.down(options.hosts)
    elif options.command == "status":
        state = lab.status()
        print(json.dumps(state, indent=1)) if options.json else show(state)
    elif options.command == "ssh":
        line = lab.ssh(options.host) + options.words
        os.execvp(line[0], line)
    elif options.command == "exec":
        words = options.words[1:] if options.words[:1] == ["--"] else options.words
        return int(lab.ask("exec", [0, 1, 2], host=options.host, argv=words or ["bash", "--login"])["rc"])
    elif options.command == "fault":
        lab.fault(options.target, options.kind, *options.args)
    elif options.command == "save":
        lab.save(options.host, options.layer)
    else:
        print(json.dumps(inventory.build(lab.paths), indent=1))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run a command; what a person can mend is one line on standard error."""
    try:
        return act(parser().parse_args(argv))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; run the same command again to go on, or `lab down` to clean up", file=sys.stderr)
        return 130
