# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is to be, as data and as a word of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.paths import MOST_HOSTS, LabError


@dataclass(frozen=True)
class HostSpec:
    """What a host is to be; `layers` are saved states, the lowest first."""

    name: str
    image: str = "debian12"
    profile: str = "none"
    layers: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Return the host's number, which its address ends with."""
        digits = self.name.removeprefix("n")
        if not (digits.isascii() and digits.isdigit()) or self.name != f"n{int(digits)}" or not 1 <= int(digits) <= MOST_HOSTS:
            raise LabError(f"host name {self.name!r}: use n1 to n{MOST_HOSTS}")
        return int(digits)

    def packed(self) -> dict[str, Any]:
        """Return the host as JSON can carry it."""
        return {"name": self.name, "image": self.image, "profile": self.profile, "layers": list(self.layers)}

    @classmethod
    def unpacked(cls, data: dict[str, Any]) -> HostSpec:
        """Return the host that `packed` made data of."""
        return cls(data["name"], data["image"], data["profile"], tuple(data["layers"]))

    def __str__(self) -> str:
        """Return the host as the command line takes it."""
        return ":".join([self.name, self.image, self.profile, *([",".join(self.layers)] if self.layers else [])])


def parse(text: str) -> HostSpec:
    """Read NAME:IMAGE:PROFILE[:LAYER,LAYER]."""
    parts = text.split(":")
    if len(parts) not in (3, 4) or not all(parts):
        raise LabError(f"{text!r}: give NAME:IMAGE:PROFILE[:LAYER,...]")
    spec = HostSpec(parts[0], parts[1], parts[2], tuple(parts[3].split(",")) if len(parts) == 4 else ())
    spec.number  # noqa: B018  (refuses a name that is none)
    return spec
