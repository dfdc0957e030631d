# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Files of dnf that a plan answers for: the repository, the module stream that is enabled, and the locks of versions."""

from __future__ import annotations

from typing import Any

Item = dict[str, Any]

REPOSITORY = "/etc/yum.repos.d/gpu-fleet-nvidia.repo"
KEYRING = "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpu-fleet-nvidia"
MODULE = "nvidia-driver"
STREAM = f"/etc/dnf/modules.d/{MODULE}.module"
# Lower counts first; 99 is that of a repository that says nothing.
PRIORITY = 50
VENDOR = "https://developer.download.nvidia.com"
FOLDER = "/compute/cuda/repos/"


def repository(
    header: str, platform: dict[str, Any], mirror: str | None, fingerprint: str | None, proxy: str | None, stream: str | None
) -> dict[str, Any]:
    """Return where the vendor's packages come from: {id, path, content, key_url, key_path, fingerprint, places, proxy, instead}, and the stream."""
    base = f"{mirror or VENDOR}{FOLDER}{platform['directory']}/{platform['architecture']}/"
    through = f"proxy={proxy}\n" if proxy else ""
    # Both packages and lists have to be signed.
    content = (
        f"{header}[gpu-fleet-nvidia]\nname=NVIDIA CUDA repository\nbaseurl={base}\nenabled=1\ngpgcheck=1\nrepo_gpgcheck=1\n"
        f"gpgkey=file://{KEYRING}\npriority={PRIORITY}\n{through}"
    )
    return {
        "id": "nvidia",
        "path": REPOSITORY,
        "content": content,
        "key_url": base + platform["key_file"],
        "key_path": KEYRING,
        "fingerprint": fingerprint or platform["key_fingerprint"],
        # rpm takes any number of descriptions of one repository; the locks hold whatever each of them offers.
        "places": [],
        "proxy": proxy,
        "instead": "a mirror that is signed by a key of its own (gpu_stack_mirror and gpu_stack_mirror_key_fingerprint)",
        **({"stream": stream} if stream else {}),
    }


def stream(platform: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """Return the module and its stream that a driver's packages belong to, or None where the repository has no modules."""
    streams = platform.get("streams")
    return f"{MODULE}:{streams[wanted['flavour']].format(branch=wanted['branch'])}" if streams else None


def stream_item(role: str, name: str) -> Item:
    """Return that a stream is enabled; the content is what dnf itself writes when nothing is installed by profile."""
    module, _colon, chosen = name.partition(":")
    content = f"[{module}]\nname={module}\nstream={chosen}\nprofiles=\nstate=enabled\n"
    return {"role": role, "kind": "stream", "id": module, "desired": {"stream": chosen, "content": content}}


def locks(role: str, packages: dict[str, str]) -> list[Item]:
    """Return that each of `packages` (name -> [epoch:]version-release) is locked to its version, and to no other."""
    # Without its epoch a lock binds nothing.
    exact = {name: f"{name}-{version if ':' in version else f'0:{version}'}.*" for name, version in sorted(packages.items())}
    return [{"role": role, "kind": "lock", "id": name, "desired": {"lines": [line]}} for name, line in exact.items()]
