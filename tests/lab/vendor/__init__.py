# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's download site: its packages (one table describes all), its signatures, its wheel index, and its bad days."""

from __future__ import annotations

from lab.vendor.faults import set_fault
from lab.vendor.server import serve
from lab.vendor.site import SiteTree, build, content_key
from lab.vendor.wheels import prepare_wheels

__all__ = ["SiteTree", "build", "content_key", "prepare_wheels", "serve", "set_fault"]
