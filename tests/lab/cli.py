# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's command line."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from lab import faults, hardware, inventory, looks
from lab.client import Lab
from lab.images import IMAGES
from lab.paths import MOST_HOSTS, LabError, default_name
from lab.spec import HostSpec, parse

ABOUT = """A fleet of real systemd hosts on this machine, with simulated GPUs and a simulated download site of their vendor.
Images: debian12, debian13, and two simulations of what a package manager sees: ubuntu2404, Debian under Ubuntu's name, and el9, Debian with dnf."""


def host_spec(text: str) -> HostSpec:
    """Read NAME:IMAGE:PROFILE[:LAYER,LAYER]."""
    try:
        return parse(text)
    except LabError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    """Read a number of hosts."""
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= MOST_HOSTS:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of hosts from 1 to {MOST_HOSTS}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="lab", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--lab", default=default_name(), help="name of the lab (default: $GPU_FLEET_LAB, else 'default')")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, act: Callable[[Lab, argparse.Namespace], int | None], text: str, **more: Any) -> argparse.ArgumentParser:
        made = commands.add_parser(name, parents=[common], help=text, description=text, **more)
        made.set_defaults(act=act)
        return made

    made = command("up", up, "bring hosts up; those that run are left as they are")
    made.add_argument("--nodes", type=count, default=0, metavar="N", help="bring up n1 to nN")
    made.add_argument("--profile", default="none", choices=hardware.profiles(), help="hardware that n1 to nN wear (default: none)")
    made.add_argument("--image", default="debian12", choices=sorted(IMAGES), help="what n1 to nN run (default: debian12)")
    made.add_argument(
        "--host", type=host_spec, action="append", default=[], metavar="NAME:IMAGE:PROFILE[:LAYER,...]",
        help="one host, over saved layers where some are named; may be repeated",
    )  # fmt: skip
    made = command("down", down, "take the lab down, or only some hosts; nothing of them stays")
    made.add_argument("hosts", nargs="*", metavar="HOST")
    made = command("status", status, "show the hosts")
    made.add_argument("--json", action="store_true", help="as JSON")
    made = command("ssh", ssh, "log in to a host, or run a command there through ssh")
    made.add_argument("host", metavar="HOST")
    made.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    made = command("exec", execute, "run a command in a host without ssh: lab exec HOST -- COMMAND")
    made.add_argument("host", metavar="HOST")
    made.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    made = command("fault", fault, "break or mend something", epilog=faults.overview(), formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("target", metavar="HOST")
    made.add_argument("kind", metavar="KIND", nargs="?")
    made.add_argument("args", nargs="*", metavar="ARG")
    made = command(
        "look", look, "put on a host what somebody else would have left there", epilog=looks.overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("host", metavar="HOST")
    made.add_argument("look", choices=sorted(looks.LOOKS), metavar="LOOK")
    made = command("save", save, "halt a host, keep what it wrote as a layer for other hosts (lab up --host), and start it again")
    made.add_argument("host", metavar="HOST")
    made.add_argument("layer", metavar="LAYER")
    command("inventory", show_inventory, "print the lab as a dynamic inventory of Ansible")
    return top


def show(state: dict[str, Any]) -> None:
    """Print the hosts as a table."""
    print(f"lab {state['lab']}: ssh -F {state['ssh_config']} HOST")
    fields = ("name", "state", "address", "image", "profile", "boots", "link")
    rows = [("host", *fields[1:]), *(tuple(str(host.get(field, "")) for field in fields) for host in state["hosts"])]
    for row in rows:
        print("  " + "".join(f"{cell:13}" for cell in row).rstrip())


def up(lab: Lab, options: argparse.Namespace) -> None:
    """Bring hosts up."""
    hosts = [HostSpec(f"n{number}", options.image, options.profile) for number in range(1, options.nodes + 1)] + options.host
    if not hosts:
        raise LabError("name hosts: --nodes N, or --host NAME:IMAGE:PROFILE")
    if len({host.name for host in hosts}) < len(hosts):
        raise LabError("a host is named twice; --nodes N already stands for n1 to nN")
    lab.up(hosts)
    show(lab.status())


def down(lab: Lab, options: argparse.Namespace) -> None:
    """Take the lab or some hosts down."""
    lab.down(options.hosts)


def status(lab: Lab, options: argparse.Namespace) -> None:
    """Show the state."""
    state = lab.status()
    if options.json:
        print(json.dumps(state, indent=1))
    else:
        show(state)


def ssh(lab: Lab, options: argparse.Namespace) -> None:
    """Become ssh."""
    lab.status()
    line = lab.ssh(options.host) + options.words
    os.execvp(line[0], line)


def execute(lab: Lab, options: argparse.Namespace) -> int:
    """Run a command on this command's own standard streams."""
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise LabError(f"name a command: lab exec {options.host} -- COMMAND (a shell: lab ssh {options.host})")
    return int(lab.ask("exec", [0, 1, 2], host=options.host, argv=words)["rc"])


def fault(lab: Lab, options: argparse.Namespace) -> None:
    """Break or mend something."""
    if options.kind is None:
        raise LabError(f"name what it hits and what happens: lab fault HOST KIND, of a host {', '.join(faults.FAULTS)}; more: lab fault --help")
    lab.fault(options.target, options.kind, *options.args)


def look(lab: Lab, options: argparse.Namespace) -> None:
    """Give a host a look."""
    looks.wear(lab, options.host, options.look)


def save(lab: Lab, options: argparse.Namespace) -> None:
    """Keep a layer."""
    lab.save(options.host, options.layer)


def show_inventory(lab: Lab, options: argparse.Namespace) -> None:
    """Print the inventory."""
    print(json.dumps(inventory.build(lab.paths), indent=1))


def main(argv: list[str] | None = None) -> int:
    """Run a command; what a person can mend is one line on standard error."""
    options = parser().parse_args(argv)
    try:
        return options.act(Lab(options.lab), options) or 0
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; the same command starts over, and takes what is built already from the cache", file=sys.stderr)
        return 130
