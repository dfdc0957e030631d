# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what this Python's PyTorch is, and whether one matrix product comes out right on each of its devices.

Usage: python framework.py RESULT. The product is of whole numbers small enough to be exact in float32.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

SIDE = 512


def product(torch: Any, device: str) -> dict[str, Any]:
    """Multiply on one device and compare with the known answer; seconds include the device's own start."""
    start = time.perf_counter()
    told: dict[str, Any] = {"device": device, "error": None}
    try:
        rows = torch.arange(SIDE, device=device, dtype=torch.float32) % 7
        left = rows.reshape(-1, 1).expand(SIDE, SIDE).contiguous()
        found = left @ torch.ones(SIDE, SIDE, device=device)
        if not bool(torch.equal(found, left * SIDE)):
            told["error"] = f"{int((found != left * SIDE).sum())} of {SIDE * SIDE} elements are wrong"
        if device != "cpu":
            told["name"] = torch.cuda.get_device_name(device)
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}"[:300]
    return {**told, "seconds": round(time.perf_counter() - start, 3)}


def main(result: str) -> int:
    # A lean environment has no numpy; torch says so at each start, and nothing here needs it.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    import torch  # noqa: PLC0415 (its failure must not hide the docstring)

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    told = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if gpus else None,
        "python": sys.executable,
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "devices": [product(torch, device) for device in ("cpu", *(f"cuda:{index}" for index in range(gpus)))],
    }
    Path(result).write_text(json.dumps(told), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
