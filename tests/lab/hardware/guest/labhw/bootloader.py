# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine's boot loader: it runs the host's grub.cfg and says which kernel that starts; and its disk, as grub-probe asks for it."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field

FOLDER = "boot/grub"
# Where a loader that takes one file for each kernel finds them, and its own variables.
ENTRIES = "boot/loader/entries"
FOLDER_BLS = "boot/grub2"
BLOCK_BYTES = 1024
# What grub-probe finds out of a disk with one file system.
DISK = {
    "device": "/dev/vda1", "fs_uuid": "6f1c1f0c-7b8d-4c8e-9b1e-2f54f2d1a0b1", "partuuid": "2b6ad1c4-0b3c-4a29-93a5-6f0d0f7c1e55", "fs": "ext2",
    "partmap": "gpt", "drive": "(hostdisk//dev/vda,gpt1)", "hints_string": "--hint-bios=hd0,gpt1 --hint-efi=hd0,gpt1 --hint-baremetal=ahci0,gpt1",
}  # fmt: skip


@dataclass
class Item:
    """An entry of the menu, or a submenu."""

    title: str
    name: str
    linux: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


class Script:
    """A grub.cfg that is run line by line."""

    def __init__(self, text: str, environment: dict[str, str]) -> None:
        """Run all of it; `menu`, `variables` and `saved` are what came of it."""
        self.variables: dict[str, str] = {}
        self.stored = environment
        self.saved: dict[str, str] = {}
        self.menu: list[Item] = []
        self.inside: list[Item] = []
        self.branches: list[bool] = []
        self.in_function = False
        for line in text.splitlines():
            self.step(line.strip())

    def expand(self, text: str) -> str:
        return re.sub(r"\$\{?(\w+)\}?", lambda match: self.variables.get(match.group(1), ""), text)

    def holds(self, condition: str) -> bool:
        """Tell whether the condition of an if is true; a command's success is not."""
        words = shlex.split(self.expand(condition))
        if words[:1] != ["["]:
            return False
        words = words[1 : words.index("]")]
        if words[:1] == ["-s"]:
            return bool(self.stored)
        if len(words) == 3 and words[1] == "=":
            return words[0] == words[2]
        return len(words) == 1 and bool(words[0])

    def step(self, line: str) -> None:
        """Run one line."""
        if self.in_function or line.startswith("function "):
            self.in_function = line != "}"
        elif match := re.match(r"if (.*?)\s*;\s*then$", line):
            self.branches.append(not self.inside and self.holds(match.group(1)))
        elif line == "else" and self.branches:
            self.branches[-1] = not self.branches[-1]
        elif line == "fi" and self.branches:
            self.branches.pop()
        elif line.startswith(("menuentry ", "submenu ")):
            self.open(shlex.split(line.rstrip("{")))
        elif line == "}" and self.inside:
            self.inside.pop()
        elif line.startswith("linux") and self.inside:
            self.inside[-1].linux = line.split()[1:]
        elif all(self.branches):
            self.run(line)

    def open(self, words: list[str]) -> None:
        """Begin an entry or a submenu."""
        mark = next((number for number, word in enumerate(words) if word in ("--id", "$menuentry_id_option")), None)
        item = Item(words[1], words[mark + 1] if mark else words[1])
        (self.inside[-1].items if self.inside else self.menu).append(item)
        self.inside.append(item)

    def run(self, line: str) -> None:
        """Run one of the commands that matter here."""
        if line.startswith("set ") and "=" in line:
            name, _, value = line.removeprefix("set ").partition("=")
            self.variables[name] = self.expand(value).strip("\"'")
        elif line.startswith("load_env"):
            self.variables.update(self.stored)
        elif line.startswith("save_env "):
            self.saved[line.split()[1]] = self.variables.get(line.split()[1], "")

    def chosen(self) -> Item | None:
        """Return the entry that starts when nobody touches a key."""
        items, item = self.menu, None
        for word in (self.variables.get("default") or "0").split(">"):
            if not items:
                return item
            number = int(word) if word.isdigit() and int(word) < len(items) else 0
            item = next((item for item in items if word in (item.title, item.name)), items[number])
            items = item.items
        while item and not item.linux and item.items:
            item = item.items[0]
        return item


def environment(root: str) -> dict[str, str]:
    """Return GRUB's stored variables."""
    return environment_at(os.path.join(root, FOLDER))


def environment_at(folder: str) -> dict[str, str]:
    """Return the variables that are stored in a folder."""
    try:
        with open(os.path.join(folder, "grubenv")) as file:
            return dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line and line[0] != "#")
    except FileNotFoundError:
        return {}


def store(root: str, variables: dict[str, str]) -> None:
    """Write GRUB's stored variables."""
    store_at(os.path.join(root, FOLDER), variables)


def store_at(folder: str, variables: dict[str, str]) -> None:
    """Write GRUB's stored variables in place, as the loader does: the block keeps its size."""
    text = "# GRUB Environment Block\n" + "".join(f"{name}={value}\n" for name, value in variables.items() if value)
    with open(os.path.join(folder, "grubenv"), "w") as file:
        file.write(text.ljust(BLOCK_BYTES, "#"))


def order(name: str) -> list[tuple[int, int, str]]:
    """Return what entries sort by, numbers as numbers."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[a-zA-Z]+", name)]


def bls(root: str) -> dict[str, dict[str, str]]:
    """Return the fields of each entry's file by its name, the newest first."""
    folder, found = os.path.join(root, ENTRIES), {}
    names = [name.removesuffix(".conf") for name in os.listdir(folder) if name.endswith(".conf")] if os.path.isdir(folder) else []
    for name in sorted(names, key=order, reverse=True):
        with open(os.path.join(folder, f"{name}.conf")) as file:
            rows = [line.split(None, 1) for line in file.read().splitlines()]
        found[name] = {"title": "", "version": "", "linux": "", "options": "", **{row[0]: row[1] for row in rows if len(row) == 2}}
    return found


def chosen_bls(root: str, entries: dict[str, dict[str, str]]) -> str | None:
    """Return the name of the entry that starts when nobody touches a key."""
    saved = environment_at(os.path.join(root, FOLDER_BLS)).get("saved_entry")
    return saved if saved in entries else next(iter(entries), None)


def start_bls(root: str) -> tuple[str, str] | None:
    """Run the boot loader that has a file for each kernel; what is to start once is forgotten now."""
    entries = bls(root)
    folder = os.path.join(root, FOLDER_BLS)
    stored = environment_at(folder)
    once = stored.get("next_entry")
    if once:
        store_at(folder, {**stored, "next_entry": ""})
    name = once if once in entries else chosen_bls(root, entries)
    if name is None:
        return None
    fields = entries[name]
    return os.path.basename(fields["linux"]).removeprefix("vmlinuz-"), f"BOOT_IMAGE={fields['linux']} {fields['options']}"


def start(root: str = "/") -> tuple[str, str] | None:
    """Run the boot loader; returns the kernel's release and its command line, or None where no menu is installed."""
    try:
        with open(os.path.join(root, FOLDER, "grub.cfg")) as file:
            text = file.read()
    except FileNotFoundError:
        return start_bls(root)
    stored = environment(root)
    script = Script(text, stored)
    if script.saved:
        store(root, {**stored, **script.saved})
    item = script.chosen()
    if item is None or not item.linux:
        return None
    return os.path.basename(item.linux[0]).removeprefix("vmlinuz-"), " ".join([f"BOOT_IMAGE={item.linux[0]}", *item.linux[1:]])


def probe(words: list[str]) -> int:
    """Answer grub-probe's questions of the host's disk; what a plain disk has no answer to is empty."""
    target = next((word.removeprefix("--target=") for word in words if word.startswith("--target=")), "fs")
    if "-t" in words:
        target = words[words.index("-t") + 1]
    if DISK.get(target):
        print(DISK[target])
    return 0
