# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What the next boot will bring: the boot loader's choice of a kernel and its options, and how old the initramfs is."""

from __future__ import annotations

import os
import re
import shlex
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _kernels
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

GRUB_FOLDERS = ("/boot/grub", "/boot/grub2")
BLS_FOLDER = "/boot/loader/entries"
MENU = later(r"(?:menuentry|submenu)\s+(?:'([^']*)'|\"([^\"]*)\"|(\S+))(.*)\{$")
IDENTIFIER = later(r"(?:--id[ =]|\$\{?menuentry_id_option\}?\s+)['\"]?([^'\"\s{]+)")
LINUX = later(r"linux(?:16|efi)?\s+(\S+)\s*(.*)$")
DEFAULT = later(r"^[ \t]*set[ \t]+default=(?:\"([^\"\n]*)\"|'([^'\n]*)'|(\S+))", re.M)
IMAGE = later(r"(?:vmlinuz|vmlinux|Image|kernel)-(.+)$")
VARIABLE = later(r"\$\{?(\w+)\}?")
ASSIGNMENT = later(r"\s*(?:export\s+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)(\+?)=(.*)$")
# What the loader or the firmware adds by itself, or what says where the root is: no setting that somebody may be waiting for.
OWN_OPTIONS = later(r"(?:BOOT_IMAGE|initrd|root|rootflags|resume|vt\.handoff)=|(?:ro|rw|single|\$\S*)$")
INITRAMFS = ("/boot/initrd.img-%s", "/boot/initramfs-%s.img", "/boot/initrd-%s")
MODPROBE_FOLDER = "/etc/modprobe.d"
# Where an operator asks for modules in the initramfs beside those that its maker picks.
INITRAMFS_LISTS = ("/etc/initramfs-tools/modules", "/etc/dracut.conf")
INITRAMFS_FOLDERS = ("/etc/initramfs-tools/conf.d", "/etc/dracut.conf.d")


class Entry:
    """An entry of the menu, or a submenu with entries of its own."""

    def __init__(self, title: str, name: str | None) -> None:
        self.title = title
        self.name = name
        self.linux: str | None = None
        self.options: list[str] = []
        self.entries: list[Entry] = []


def parse_menu(text: str) -> list[Entry]:
    """The menu in a grub.cfg, as far as the file goes."""
    top = Entry("", None)
    # A function's brace at the outermost level closes nothing.
    stack = [top]
    for line in map(str.strip, text.splitlines()):
        menu = MENU.match(line)
        linux = LINUX.match(line)
        if menu:
            name = IDENTIFIER.search(menu.group(4))
            entry = Entry(next(group for group in menu.groups() if group is not None), name.group(1) if name else None)
            stack[-1].entries.append(entry)
            stack.append(entry)
        elif line == "}" and len(stack) > 1:
            stack.pop()
        elif linux and len(stack) > 1:
            # Ubuntu's images have two: the first is for a start that failed without an initramfs.
            stack[-1].linux, stack[-1].options = linux.group(1), linux.group(2).split()
    return top.entries


def parse_environment(text: str) -> dict[str, str]:
    """The variables in GRUB's environment block."""
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): re.sub(r"\\(.)", r"\1", value) for name, equals, value in lines if equals}


def parse_bls(texts: dict[str, str], environment: dict[str, str]) -> list[Entry]:
    """The menu that GRUB makes of the entries' files, by their names without the ending; the newest comes first."""
    found = []
    for name, text in sorted(texts.items(), key=lambda item: _kernels.rpm_order(item[0]), reverse=True):
        fields = {words[0]: words[1] for words in (line.split(None, 1) for line in text.splitlines() if line[:1].isalpha()) if len(words) == 2}
        entry = Entry(fields.get("title", ""), name)
        entry.linux = fields.get("linux")
        options = VARIABLE.sub(lambda match: environment.get(match.group(1), ""), fields.get("options", ""))
        entry.options = options.split()
        found.append(entry)
    return found


def choice(text: str, environment: dict[str, str]) -> tuple[str, bool]:
    """The entry that a grub.cfg starts by itself, in the words of its menu, and whether this once only."""
    if environment.get("next_entry") and "next_entry" in text:
        return environment["next_entry"], True
    given = ["".join(groups) for groups in DEFAULT.findall(text)]
    plain = [value for value in given if "next_entry" not in value]
    values = dict(environment, saved_entry=environment.get("prev_saved_entry") or environment.get("saved_entry", ""))
    chosen = VARIABLE.sub(lambda match: values.get(match.group(1), ""), plain[-1]) if plain else ""
    return chosen or "0", False


def pick(entries: list[Entry], chosen: str) -> Entry | None:
    """The entry of that number, title or name; C(1>2) leads into a submenu. What does not exist is the first, as GRUB has it."""
    found: Entry | None = None
    for part in chosen.split(">"):
        if not entries:
            break
        number = int(part) if part.isdigit() else 0
        named = [entry for entry in entries if part in (entry.title, entry.name)]
        found = named[0] if named else entries[number if number < len(entries) else 0]
        entries = found.entries
    while found and found.linux is None and found.entries:
        found = found.entries[0]
    return found


def release_of(system: System, image: str | None) -> str | None:
    """The release that an image's name tells; of a link, such as C(/vmlinuz), what it leads to."""
    if not image:
        return None
    name = image.rsplit("/", 1)[1] if "/" in image else image
    match = IMAGE.match(name) or IMAGE.match(os.path.basename(system.real(image))) or IMAGE.match(os.path.basename(system.real("/boot/" + name)))
    return match.group(1) if match else None


def next_boot(system: System, kernel: str | None, kernels: list[str]) -> dict[str, t.Any]:
    """C({kernel, source, once, options}); C(source) is the boot loader's file or folder, or C(newest) where none is known."""
    folder = next((path for path in GRUB_FOLDERS if system.exists(path + "/grub.cfg")), None)
    entries = {name[:-5]: system.read(BLS_FOLDER + "/" + name) or "" for name in system.names(BLS_FOLDER) if name.endswith(".conf")}
    if folder is None and not entries:
        found = _kernels.newest(kernels, kernel)
        return {"kernel": found, "source": "newest" if found else None, "once": False, "options": None}
    source = folder + "/grub.cfg" if folder else BLS_FOLDER
    text = (system.read(source, 4 << 20) if folder else "") or ""
    environment = parse_environment(system.read((folder or GRUB_FOLDERS[1]) + "/grubenv", 4096, True) or "")
    if entries and (not folder or re.search(r"^[ \t]*blscfg\b", text, re.M)):
        source, menu = BLS_FOLDER, parse_bls(entries, environment)
        # A grub.cfg that nobody may read still starts what is saved, on every system that has such entries.
        text = text or 'set default="${next_entry}"\nset default="${saved_entry}"'
    else:
        menu = parse_menu(text)
    chosen, once = choice(text, environment)
    entry = pick(menu, chosen)
    if entry is None:
        system.problem("%s names no kernel" % source)
        return {"kernel": None, "source": source, "once": once, "options": None}
    return {"kernel": release_of(system, entry.linux), "source": source, "once": once, "options": entry.options}


def parse_default_grub(texts: t.Iterable[str]) -> list[str]:
    """The kernel options that C(/etc/default/grub) and its folder ask for; later files see the values of earlier ones."""
    values: dict[str, str] = {}
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            match = ASSIGNMENT.match(line)
            if match:
                name, more, raw = match.groups()
                try:
                    words = shlex.split(raw, comments=True)
                except ValueError:
                    words = [raw.strip().strip("'\"")]
                value = VARIABLE.sub(lambda found: values.get(found.group(1), ""), words[0] if words else "")
                values[name] = values.get(name, "") + value if more else value
    return (values.get("GRUB_CMDLINE_LINUX", "") + " " + values.get("GRUB_CMDLINE_LINUX_DEFAULT", "")).split()


def kernel_options(system: System, following: dict[str, t.Any]) -> dict[str, list[str] | None]:
    """C({running, next_boot, configured}): words of kernel command lines; C(configured) where GRUB's menu is made from that file."""
    configured = None
    if following["source"] != BLS_FOLDER and system.exists("/etc/default/grub"):
        more = ["/etc/default/grub.d/" + name for name in system.names("/etc/default/grub.d") if name.endswith(".cfg")]
        configured = parse_default_grub(system.read(path) or "" for path in ["/etc/default/grub", *more])
    return {"running": (system.read("/proc/cmdline", 65536) or "").split(), "next_boot": following["options"], "configured": configured}


def pending_options(options: dict[str, list[str] | None]) -> list[str]:
    """How the running command line differs from the next one, each as a phrase; nothing is said where GRUB did not start this kernel."""
    running = options["running"] or []
    if not any(word.startswith("BOOT_IMAGE=") for word in running):
        return []
    own = {name: [word for word in words or [] if not OWN_OPTIONS.match(word)] for name, words in options.items()}
    said = []
    if options["next_boot"] is not None:
        said += ["not in force: " + word for word in own["next_boot"] if word not in running]
        said += ["still in force: " + word for word in own["running"] if word not in own["next_boot"]]
    known = running + (options["next_boot"] or [])
    said += ["asked for, but not in the boot loader's menu: " + word for word in own["configured"] if word not in known]
    return said


def _modified(system: System, path: str) -> float | None:
    try:
        return os.stat(system.path(path)).st_mtime
    except OSError:
        return None


def initramfs(system: System, kernel: str, module: str | None) -> dict[str, t.Any] | None:
    """C({path, older_than}): the files that it holds, or would hold if it were made now, and that changed after it was made."""
    path = next((pattern % kernel for pattern in INITRAMFS if system.exists(pattern % kernel)), None)
    made = _modified(system, path) if path else None
    if made is None:
        return None
    inside = [MODPROBE_FOLDER] + [MODPROBE_FOLDER + "/" + name for name in system.names(MODPROBE_FOLDER) if name.endswith(".conf")]
    if module and asks_for_driver(system):
        inside.append(module)
    times = [(name, _modified(system, name)) for name in inside]
    return {"path": path, "older_than": [name for name, changed in times if changed is not None and changed > made]}


def asks_for_driver(system: System) -> bool:
    """Whether the driver's module was asked for in the initramfs; by themselves neither of its makers takes it in."""
    paths = list(INITRAMFS_LISTS)
    for folder in INITRAMFS_FOLDERS:
        paths += [folder + "/" + name for name in system.names(folder)]
    lines = (line.split("#", 1)[0] for path in paths for line in (system.read(path, 65536, True) or "").splitlines())
    return any(re.search(r"(?<![\w-])nvidia", line) and "omit" not in line for line in lines)
