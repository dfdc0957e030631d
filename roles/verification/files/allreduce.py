# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check and measure what a distributed PyTorch training job needs from its nodes and their network.

Every rank all-reduces buffers whose sum is known exactly, in a sweep of sizes, and trains a small network with
DistributedDataParallel, whose gradients must be the mean of all ranks' and the same bits on each of them.
Rank 0 writes one JSON result. Bandwidths are those of nccl-tests: algbw = size / time, busbw = algbw * 2(n-1)/n,
in GB/s (1e9 bytes); the time of an operation is that of its slowest rank, and a row holds the median.

By hand, on each of two nodes:
  torchrun --nnodes 2 --node-rank 0|1 --nproc-per-node 1 --master-addr FIRST --master-port 29400 allreduce.py
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

MIB = 1 << 20
CYCLE = 97  # values repeat with this period, prime so that no power-of-two stride hides a misplaced block
SHARES = 512  # distinct contributions of ranks; keeps every sum below 2**24, where float32 counts exactly


def bus_factor(ranks: int) -> float:
    """What nccl-tests multiplies algbw with for an all-reduce: 2(n-1)/n, so 0 for a single rank."""
    return 2 * (ranks - 1) / ranks


def row(size_bytes: int, seconds: float, ranks: int) -> dict[str, float]:
    """One line of the table: size in bytes, time in microseconds, bandwidths in GB/s."""
    algbw = size_bytes / seconds / 1e9
    return {
        "size_bytes": size_bytes,
        "time_us": round(seconds * 1e6, 1),
        "algbw_gbs": round(algbw, 6),
        "busbw_gbs": round(algbw * bus_factor(ranks), 6),
    }


def slowest_median(times: list[list[float]]) -> float:
    """Median over the repeats of the slowest rank's time; C(times) holds one list of seconds for each rank."""
    return float(statistics.median(map(max, *times) if len(times) > 1 else times[0]))


def share(rank: int) -> int:
    """What a rank adds to the common pattern."""
    return rank % SHARES + 1


def offset(ranks: int) -> int:
    """What all ranks together add to the common pattern."""
    return sum(share(rank) for rank in range(ranks))


def sizes(text: str) -> list[int]:
    """Sizes in bytes from a list of MiB such as "1,4,0.5"; multiples of 4 bytes, ascending."""
    try:
        found = sorted({int(float(part) * MIB) // 4 * 4 for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected numbers of MiB separated by commas: {text!r}") from error
    if not found or found[0] < 4:
        raise argparse.ArgumentTypeError(f"expected at least one size of 4 bytes or more: {text!r}")
    return found


def positive(text: str) -> int:
    """A whole number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, not {text}")
    return number


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--backend", choices=("auto", "gloo", "nccl"), default="auto", help="auto: nccl where there is a GPU, else gloo")
    add("--sizes-mib", type=sizes, default=sizes("1,4,16,64"), help="sweep, MiB separated by commas (1,4,16,64)")
    add("--iterations", type=positive, default=5, help="timed repeats of each size (5)")
    add("--warmup", type=positive, default=1, help="untimed repeats of each size (1)")
    add("--steps", type=positive, default=3, help="DistributedDataParallel training steps (3)")
    add("--timeout", type=positive, default=60, help="seconds that one collective may take (60)")
    add("--ranks", type=positive, help="refuse to run with another world size than this")
    add("--name", default=socket.gethostname(), help="what to call this node (its host name)")
    add("--result", help="file for rank 0's JSON result (standard output)")
    add("--progress", help="folder where each rank notes the last collective it reached")
    return parser.parse_args(argv)


class Progress:
    """The last collective of this rank, kept in a file that is readable while the rank hangs in it."""

    def __init__(self, folder: str | None, rank: int, host: str) -> None:
        self.note: dict[str, Any] = {"rank": rank, "host": host, "sequence": 0, "collective": None, "state": "started"}
        path = f"{folder}/progress-{rank}.json" if folder else os.devnull
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self.write()

    def write(self) -> None:
        # One write of constant length: a reader never sees half a note, nor the end of an older one.
        self.note["at"] = round(time.time(), 3)
        os.pwrite(self.file, json.dumps(self.note).ljust(1024).encode()[:4096], 0)

    def enter(self, collective: str) -> None:
        self.note.update(sequence=self.note["sequence"] + 1, collective=collective, state="entered")
        self.write()

    def leave(self, state: str = "done", error: str | None = None) -> None:
        self.note.update(state=state, **({"error": error[:600]} if error else {}))
        self.write()


class Job:
    """One rank of the job, between init_process_group and destroy_process_group."""

    def __init__(self, options: argparse.Namespace) -> None:
        # A lean environment has no numpy; torch says so at each start, and nothing here needs it.
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        import torch  # noqa: PLC0415 (--help must work without it)
        import torch.distributed as dist  # noqa: PLC0415

        self.torch, self.dist, self.options = torch, dist, options
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.progress = Progress(options.progress, self.rank, options.name)
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        self.backend = options.backend if options.backend != "auto" else ("nccl" if gpus else "gloo")
        if self.backend == "nccl":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            self.device = torch.device("cuda", torch.cuda.current_device())
        else:
            self.device = torch.device("cpu")

    def settle(self) -> None:
        """Wait until the device has done what was asked of it."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def sweep(self) -> tuple[dict[str, list[float]], dict[str, int]]:
        """Seconds of each timed all-reduce and number of wrong elements, both by size in bytes (as text)."""
        torch = self.torch
        times: dict[str, list[float]] = {str(size): [] for size in self.options.sizes_mib}
        wrong = dict.fromkeys(times, 0)
        for size in self.options.sizes_mib:
            pattern = (torch.arange(size // 4, dtype=torch.int32, device=self.device) % CYCLE).to(torch.float32)
            given = pattern + share(self.rank)
            expected = pattern * self.ranks + offset(self.ranks)
            buffer = torch.empty_like(given)
            for repeat in range(self.options.warmup + self.options.iterations):
                buffer.copy_(given)
                self.progress.enter(f"all_reduce of {size / MIB:g} MiB, repeat {repeat + 1}")
                self.dist.barrier()
                self.settle()
                start = time.perf_counter()
                self.dist.all_reduce(buffer)
                self.settle()
                seconds = time.perf_counter() - start
                self.progress.leave()
                wrong[str(size)] += int((buffer != expected).sum())
                if repeat >= self.options.warmup:
                    times[str(size)].append(seconds)
        return times, wrong

    def checksum(self, tensors: list[Any]) -> int:
        """A number that differs when any bit of the tensors does (exact integer arithmetic, modulo 2**64)."""
        torch = self.torch
        bits = torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).contiguous().view(torch.int32)
        weights = torch.arange(bits.numel(), dtype=torch.int64, device=bits.device) % 65521 + 1
        return int((bits.to(torch.int64) * weights).sum())

    def train(self) -> dict[str, Any]:
        """Real DDP steps, each rank with data of its own; checksums of what must be the same on all ranks."""
        torch = self.torch
        torch.manual_seed(20)
        layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)]
        network = torch.nn.Sequential(*layers).to(self.device)
        self.progress.enter("DDP construction")
        ddp = torch.nn.parallel.DistributedDataParallel(network, bucket_cap_mb=0.25)
        self.progress.leave()
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        data = torch.Generator().manual_seed(1000 + self.rank)
        gradients, means_right = [], True
        for step in range(self.options.steps):
            inputs = torch.randn(32, 256, generator=data).to(self.device)
            targets = torch.randn(32, 64, generator=data).to(self.device)
            # What DDP must arrive at: the mean of the ranks' own gradients, taken by one plain all-reduce.
            optimizer.zero_grad()
            with ddp.no_sync():
                torch.nn.functional.mse_loss(ddp(inputs), targets).backward()
            mean = torch.cat([parameter.grad.reshape(-1) for parameter in ddp.parameters()])
            self.progress.enter(f"all_reduce of the gradients of step {step + 1}")
            self.dist.all_reduce(mean)
            self.progress.leave()
            optimizer.zero_grad()
            self.progress.enter(f"DDP backward of step {step + 1}")
            torch.nn.functional.mse_loss(ddp(inputs), targets).backward()
            self.settle()
            self.progress.leave()
            found = torch.cat([parameter.grad.reshape(-1) for parameter in ddp.parameters()])
            means_right &= bool(torch.allclose(found, mean / self.ranks, rtol=1e-4, atol=1e-7))
            gradients.append(self.checksum([found]))
            optimizer.step()
        return {"gradients": gradients, "parameters": self.checksum(list(ddp.parameters())), "means": means_right}

    def gather(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        """Every rank's findings. As bytes in tensors: torch's own way for objects needs numpy, which may be absent."""
        torch, dist = self.torch, self.dist
        text = json.dumps(found).encode()
        self.progress.enter("all_gather of the findings")
        lengths = [torch.zeros(1, dtype=torch.int64, device=self.device) for _rank in range(self.ranks)]
        dist.all_gather(lengths, torch.tensor([len(text)], device=self.device))
        longest = max(int(length) for length in lengths)
        texts = [torch.zeros(longest, dtype=torch.uint8, device=self.device) for _rank in range(self.ranks)]
        dist.all_gather(texts, torch.tensor(list(text.ljust(longest)), dtype=torch.uint8, device=self.device))
        return [json.loads(bytes(text.tolist())) for text in texts]

    def run(self) -> list[dict[str, Any]]:
        """Everything that each rank found, in the order of ranks."""
        torch, dist = self.torch, self.dist
        self.progress.enter("init_process_group")
        dist.init_process_group(self.backend, timeout=timedelta(seconds=self.options.timeout))
        self.progress.leave()
        times, wrong = self.sweep()
        found = {
            "rank": self.rank,
            "host": self.options.name,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
            "times": times,
            "wrong": wrong,
            "ddp": self.train(),
        }
        everyone = self.gather(found)
        self.progress.leave("finished")
        dist.destroy_process_group()
        return everyone


def summary(backend: str, findings: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Rank 0's result. Each finding holds one rank's times (seconds), wrong elements and DDP checksums."""
    ranks = len(findings)
    rows = [row(int(size), slowest_median([found["times"][size] for found in findings]), ranks) for size in findings[0]["times"]]
    wrong = [
        {"rank": found["rank"], "host": found["host"], "size_bytes": int(size), "elements": count}
        for found in findings
        for size, count in found["wrong"].items()
        if count
    ]
    first = findings[0]["ddp"]
    ddp = {
        "steps": len(first["gradients"]),
        "gradients_equal": all(found["ddp"]["gradients"] == first["gradients"] for found in findings),
        "gradients_right": all(found["ddp"]["means"] for found in findings),
        "parameters_equal": all(found["ddp"]["parameters"] == first["parameters"] for found in findings),
        "different": [found["host"] for found in findings if found["ddp"]["gradients"] != first["gradients"]],
    }
    correct = not wrong and ddp["gradients_equal"] and ddp["gradients_right"] and ddp["parameters_equal"]
    told = ("rank", "host", "torch", "cuda", "memlock")
    return {
        "schema": 1,
        "backend": backend,
        "world_size": ranks,
        "correct": correct,
        "rows": rows,
        "wrong": wrong,
        "ddp": ddp,
        "ranks": [{key: found[key] for key in told} for found in findings],
        "seconds": round(seconds, 3),
    }


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        print("allreduce.py: start it with torchrun, which tells it its rank (see --help)", file=sys.stderr)
        return 2
    if options.ranks and options.ranks != int(os.environ["WORLD_SIZE"]):
        print(f"allreduce.py: {os.environ['WORLD_SIZE']} ranks, expected {options.ranks}", file=sys.stderr)
        return 2
    start = time.monotonic()
    job = Job(options)
    try:
        findings = job.run()
    except Exception as error:
        job.progress.leave("failed", f"{type(error).__name__}: {error}")
        raise
    result = summary(job.backend, findings, time.monotonic() - start)
    if job.rank == 0:
        text = json.dumps(result, indent=1) + "\n"
        if options.result:
            part = Path(options.result + ".part")
            part.write_text(text, encoding="utf-8")
            part.replace(options.result)
        else:
            sys.stdout.write(text)
    return 0 if result["correct"] else 1


def leave(code: int) -> NoReturn:
    """End at once: everything is written, and the network threads of a framework that is taken apart can still abort the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
