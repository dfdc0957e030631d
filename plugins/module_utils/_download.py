# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Downloads that are worth nothing until they are proved to be what was asked for."""

from __future__ import annotations

import http.client
import os
import urllib.error

from ansible.module_utils.urls import open_url
from ansible_collections.gpu.fleet.plugins.module_utils import _managed

MOST_BYTES = 1 << 20


class Failed(Exception):
    """The download did not come, or was not what was asked for."""


def through(proxy: str) -> None:
    """Let what this process fetches go through a proxy, whatever its environment says."""
    for scheme in ("http", "https"):
        os.environ.update({scheme + "_proxy": proxy, scheme.upper() + "_PROXY": proxy})
    for name in ("no_proxy", "NO_PROXY"):
        os.environ.pop(name, None)


def key(url: str, fingerprint: str, timeout: int) -> bytes:
    """The key file behind C(url); raises Failed unless it holds the one primary key with this fingerprint and no other."""
    try:
        data = open_url(url, timeout=timeout).read(MOST_BYTES)
    except (OSError, ValueError, http.client.HTTPException, urllib.error.URLError) as error:
        raise Failed("the key could not be fetched from %s: %s" % (url, error)) from error
    found = _managed.fingerprints(data)
    if found != [fingerprint]:
        raise Failed(
            "%s holds %s, not the key %s; nothing was written" % (url, "the key " + " and ".join(found) if found else "no OpenPGP key", fingerprint)
        )
    return bytes(data)
