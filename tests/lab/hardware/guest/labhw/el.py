# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""grubby and dracut as hosts of the RHEL family have them: over the boot loader's real entries, and over an image that a host could start from."""

from __future__ import annotations

import glob
import os
import re
import sys
import tarfile

from . import bootloader

# What dracut copies of the host's settings.
COPIED = ("/etc/modprobe.d", "/usr/lib/modprobe.d", "/etc/dracut.conf.d")


def dracut(words: list[str]) -> int:
    """Write the image of a kernel, or with --regenerate-all of each; the image is a tar of what it was made from."""
    plain = [word for word in words if not word.startswith("-") or word == "-"]
    force = any(word in ("-f", "--force") for word in words)
    if "--kver" in words[:-1]:
        plain = ["", words[words.index("--kver") + 1]]
    everything = "--regenerate-all" in words
    releases = sorted(os.listdir("/lib/modules")) if everything else [plain[1] if len(plain) > 1 else os.uname().release]
    for release in releases:
        image = plain[0] if plain and plain[0] else f"/boot/initramfs-{release}.img"
        if not os.path.isdir(f"/lib/modules/{release}"):
            print(f"dracut: Cannot find module directory /lib/modules/{release}/", file=sys.stderr)
            return 1
        if os.path.exists(image) and not (force or everything):
            print(f"dracut: Will not override existing initramfs ({image}) without --force", file=sys.stderr)
            return 1
        part = f"{image}.part"
        with tarfile.open(part, "w") as archive:
            for folder in COPIED:
                for path in sorted(glob.glob(f"{folder}/*.conf")):
                    archive.add(path)
        os.rename(part, image)
    return 0


def grubby(words: list[str]) -> int:
    """Tell or set the kernel that starts, tell the entries, and change the arguments of kernels."""
    entries = bootloader.bls("/")
    options = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    chosen = bootloader.chosen_bls("/", entries)
    if "--default-kernel" in options and chosen:
        print(entries[chosen]["linux"])
    elif "--set-default" in options:
        wanted = options["--set-default"] or words[-1]
        name = next((name for name, fields in entries.items() if wanted in (fields["linux"], fields["version"])), None)
        if name is None:
            print(f"grubby: {wanted}: no such kernel", file=sys.stderr)
            return 1
        bootloader.store_at("/boot/grub2", {**bootloader.environment_at("/boot/grub2"), "saved_entry": name})
    elif "--info" in options:
        for number, name in enumerate(entries):
            fields = entries[name]
            if options["--info"] == "ALL" or options["--info"] in (fields["linux"], "DEFAULT" if name == chosen else ""):
                print(f'index={number}\nkernel="{fields["linux"]}"\nargs="{fields["options"]}"\ntitle="{fields["title"]}"\nid="{name}"')
    elif "--update-kernel" in options:
        for name, fields in entries.items():
            if options["--update-kernel"] in ("ALL", fields["linux"]) or (options["--update-kernel"] == "DEFAULT" and name == chosen):
                _arguments(name, fields, options.get("--args", "").strip("'\"").split(), options.get("--remove-args", "").strip("'\"").split())
    else:
        print(f"grubby: {' '.join(words)}: not understood here", file=sys.stderr)
        return 1
    return 0


def _arguments(name: str, fields: dict[str, str], added: list[str], removed: list[str]) -> None:
    path = f"/{bootloader.ENTRIES}/{name}.conf"
    names = {word.partition("=")[0] for word in added}
    kept = [word for word in fields["options"].split() if word not in removed and word.partition("=")[0] not in {*names, *removed}]
    with open(path) as file:
        text = file.read()
    with open(f"{path}.part", "w") as file:
        file.write(re.sub(r"^options .*$", "options " + " ".join(kept + added), text, flags=re.MULTILINE))
    os.rename(f"{path}.part", path)
