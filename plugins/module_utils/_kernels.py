# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Kernel releases: which are installed, of which kind they are, and which of a kind is the newest."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

RPM_RELEASE = later(r"(.+)\.(?:x86_64|aarch64|ppc64le|s390x)(\+\S+)?$")
DEB_RELEASE = later(r"(\d[^-]*(?:-\d[^-]*)?)(?:-([A-Za-z].*))?$")
SEGMENT = later(r"\d+|[A-Za-z]+|~|\^")


class Release(t.NamedTuple):
    """C(kind) is the packaging and the flavour (rt, cloud-amd64, +debug); C(order) compares releases of one kind."""

    kind: t.Tuple[str, str]
    order: t.Tuple[t.Any, ...]


def release(text: str) -> Release:
    """Take a kernel release apart, such as C(6.1.0-40-cloud-amd64) or C(5.14.0-427.el9.x86_64+debug)."""
    rpm = RPM_RELEASE.match(text)
    if rpm:
        version, flavour = rpm.group(1), rpm.group(2) or ("+rt" if re.search(r"\.rt\d", text) else "")
        return Release(("rpm", flavour), tuple(rpm_order(part) for part in version.split("-", 1)))
    deb = DEB_RELEASE.match(text)
    if deb:
        return Release(("deb", deb.group(2) or ""), deb_order(deb.group(1)))
    return Release(("other", text), ())


def deb_order(version: str) -> t.Tuple[t.Tuple[t.Tuple[int, ...], int], ...]:
    """A key that sorts as dpkg does: C(~) before the end, letters before other signs, digits as numbers."""
    parts = re.findall(r"(\D*)(\d*)", version)
    weights = {"~": -1}
    return tuple(
        ((*(weights.get(sign, ord(sign) if sign.isalpha() else ord(sign) + 256) for sign in signs), 0), int(digits or 0))
        for signs, digits in parts
    )


def rpm_order(version: str) -> t.Tuple[t.Tuple[t.Any, ...], ...]:
    """A key that sorts as rpm does: C(~) before the end, C(^) after it, then words, then numbers."""
    marks: dict[str, t.Tuple[t.Any, ...]] = {"~": (-1,), "^": (1,)}
    return (*(marks.get(part) or ((3, int(part)) if part.isdigit() else (2, part)) for part in SEGMENT.findall(version)), (0,))


def installed(system: System) -> list[str]:
    """Releases with an image that can be booted, sorted by name; headers or left-over modules alone are no kernel."""
    found = {name[8:] for name in system.names("/boot") if name.startswith("vmlinuz-") and "rescue" not in name}
    found.update(name for name in system.names("/lib/modules") if system.exists("/lib/modules/%s/vmlinuz" % name))
    return sorted(found)


def newest(kernels: t.Iterable[str], like: str | None) -> str | None:
    """The newest release of the same kind as C(like); a cloud kernel is no newer version of one for real-time work."""
    kind = release(like).kind if like else None
    same = [kernel for kernel in kernels if release(kernel).kind == kind]
    return max(same, key=lambda kernel: release(kernel).order) if same else None
