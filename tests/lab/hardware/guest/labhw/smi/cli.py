# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of nvidia-smi, and the reasons for which it fails."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, field

from .. import machine as machines
from ..daemon import library_version, module_version
from ..machine import Entry, Machine
from ..state import holders, log, read
from . import mig, query, report, settings, table, topology
from .readings import Driver, Process, Readings, persistent, processes, read_gpu, smi_address

# Exit codes of nvidia-smi's manual.
INVALID, NO_DEVICE, NO_DRIVER, NO_LIBRARY, MISMATCH, OTHER = 2, 6, 9, 12, 18, 255
VALUE_OPTIONS = {
    "-i": "chosen", "--id": "chosen", "-pm": "persistence", "--persistence-mode": "persistence", "-pl": "power_limit", "--power-limit": "power_limit",
    "-c": "compute_mode", "--compute-mode": "compute_mode", "-mig": "mig", "--multi-instance-gpu": "mig", "-e": "ecc", "--ecc-config": "ecc",
    "--query-gpu": "gpu_fields", "--query-compute-apps": "app_fields", "--format": "format", "-f": "file", "--filename": "file",
    "-d": "display", "--display": "display", "-am": "accounting", "--accounting-mode": "accounting",
    "-lgc": "locked", "--lock-gpu-clocks": "locked", "-lmc": "locked_memory", "--lock-memory-clocks": "locked_memory",
    "-lmcd": "deferred", "--lock-memory-clocks-deferred": "deferred", "-ac": "application", "--applications-clocks": "application",
}  # fmt: skip
FLAGS = {"-q": "query", "--query": "query", "-x": "xml", "--xml-format": "xml", "-L": "list", "--list-gpus": "list", "-a": "query",
         "-rgc": "reset_locked", "--reset-gpu-clocks": "reset_locked", "-rmc": "reset_locked_memory", "--reset-memory-clocks": "reset_locked_memory",
         "-rac": "reset_application", "--reset-applications-clocks": "reset_application",
         "-r": "reset", "--gpu-reset": "reset", "-h": "help", "--help": "help", "--version": "version"}  # fmt: skip


class Failure(Exception):
    """An end with a message on standard output, as nvidia-smi has it, and an exit code."""

    def __init__(self, text: str, code: int) -> None:
        """Keep both."""
        super().__init__(text)
        self.code = code


@dataclass
class Request:
    """What was asked."""

    values: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)


def main(words: list[str]) -> int:
    """Answer, and return the exit code."""
    try:
        text = answer(words)
    except Failure as failure:
        print(failure)
        return failure.code
    sys.stdout.write(text)
    return 0


def hang() -> None:
    """Answer nothing and heed no polite signal, as a program that waits inside the driver."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        signal.pause()


def parse(words: list[str]) -> Request:
    """Read options, in the form "-i 0", "--id=0" or "-i0"-less as nvidia-smi takes them."""
    request = Request()
    rest = iter(words)
    for word in rest:
        name, equals, given = word.partition("=")
        if name in VALUE_OPTIONS:
            request.values[VALUE_OPTIONS[name]] = given if equals else next(rest, "")
        elif name in FLAGS:
            request.flags.add(FLAGS[name])
        else:
            raise Failure(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\nOption {word} is not recognized.", INVALID)
    return request


def driver_or_failure() -> Driver:
    """Return the driver, when a program can speak with it."""
    library, module = library_version(), module_version()
    if library is None:
        raise Failure(
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly "
            "installed and present in your system.\nPlease also try adding directory that contains libnvidia-ml.so to your system PATH.\n",
            NO_LIBRARY,
        )
    if module is None:
        raise Failure(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is "
            "installed and running.\n",
            NO_DRIVER,
        )
    if library != module:
        log(f"NVRM: API mismatch: the client has the version {library}, but\nNVRM: this kernel module has the version {module}.  Please\n"
            "NVRM: make sure that this kernel module and all NVIDIA driver\nNVRM: components have the same version.", 3)  # fmt: skip
        short = ".".join(library.split(".")[:2])
        raise Failure(f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}\n", MISMATCH)
    return Driver(module)


def choose(machine: Machine, driver: Driver, wanted: str | None) -> list[Entry]:
    """Return the GPUs that are asked for by number, UUID or address; a dead one among them ends the answer."""
    if not machine.gpus:
        raise Failure("No devices were found", NO_DEVICE)
    chosen = []
    for word in wanted.split(",") if wanted else [str(gpu["index"]) for gpu in machine.gpus]:
        names = {name: gpu for gpu in machine.gpus for name in (str(gpu["index"]), gpu["uuid"], gpu["serial"], gpu["address"])}
        names.update({smi_address(gpu["address"]): gpu for gpu in machine.gpus})
        if word not in names:
            raise Failure(f"No devices were found matching {word}." if driver.branch >= 560 else "No devices were found", NO_DEVICE)
        gpu = names[word]
        if gpu["address"] in machine.dead:
            number = f"{gpu['index']}: " if driver.branch >= 560 else ""
            raise Failure(f"Unable to determine the device handle for GPU{number}{gpu['address'].upper()}: Unknown Error", OTHER)
        chosen.append(gpu)
    return chosen


def answer(words: list[str]) -> str:
    """Return the text of an answer."""
    machine = machines.load()
    if machine.has("smi-hang"):
        hang()
    if words[:1] in (["topo"], ["nvlink"]):
        return links(machine, driver_or_failure(), words)
    if words[:1] == ["mig"]:
        return divide(machine, driver_or_failure(), words[1:])
    request = parse(words)
    if "help" in request.flags:
        return "NVIDIA System Management Interface\n\nnvidia-smi [OPTION1 [ARG1]] [OPTION2 [ARG2]] ...\n"
    driver = driver_or_failure()
    if "version" in request.flags:
        return (f"NVIDIA-SMI version  : {driver.version}\nNVML version        : {driver.version.rpartition('.')[0]}\n"
                f"DRIVER version      : {driver.version}\nCUDA Version        : {driver.cuda}\n")  # fmt: skip
    gpus = choose(machine, driver, request.values.get("chosen"))
    for option in settings.ACTIONS:
        if option in request.values:
            if os.geteuid():
                raise Failure("Unable to set: Insufficient Permissions\nTerminating early due to previous errors.", 4)
            try:
                return settings.change(option, request.values[option], gpus)
            except settings.BadValue as error:
                raise Failure(f"{error}\nTerminating early due to previous errors.", INVALID) from None
    for option, name in settings.RESETS.items():
        if option in request.flags:
            return settings.reset(name, gpus)
    state = read()
    if "list" in request.flags:
        return "".join(listed(gpu, state["settings"].get(gpu["address"], {})) for gpu in gpus)
    held = holders()
    jobs, daemon = processes(held), persistent(held)
    readings = [read_gpu(machine, state, driver, gpu, jobs, daemon) for gpu in gpus]
    return render(request, driver, len(machine.gpus), readings, jobs)


def render(request: Request, driver: Driver, count: int, readings: list[Readings], jobs: list[Process]) -> str:
    """Return the answer in the form that was asked for."""
    form = request.values.get("format", "").split(",")
    queried = [name for name in ("gpu_fields", "app_fields") if name in request.values]
    if queried and form[0] != "csv":
        raise Failure('"--format=" switch is missing. It is required for query. Please run "nvidia-smi -h" for help.', INVALID)
    try:
        if "gpu_fields" in request.values:
            text = query.gpu_csv(readings, request.values["gpu_fields"], form)
        elif "app_fields" in request.values:
            text = query.app_csv(readings, jobs, request.values["app_fields"], form)
        elif "query" in request.flags:
            text = (report.as_xml if "xml" in request.flags else report.as_text)(driver, readings, count, jobs)
        else:
            text = table.table(driver, readings, jobs)
    except query.UnknownField as error:
        raise Failure(f'Field "{error}" is not a valid field to query.\n', INVALID) from None
    if "file" in request.values:
        with open(request.values["file"], "w") as file:
            file.write(text)
        return ""
    return text


def listed(gpu: Entry, kept: Entry) -> str:
    """Return a GPU's lines of -L."""
    text = f"GPU {gpu['index']}: {gpu['spec']['name']} (UUID: {gpu['uuid']})\n"
    return text + "".join(f"  MIG {one['profile']:<12}Device {one['index']:>2}: (UUID: {one['uuid']})\n" for one in mig.devices(gpu, kept))


def divide(machine: Machine, driver: Driver, words: list[str]) -> str:
    """Return the answer of the mig subcommand, which is root's alone."""
    gpus = choose(machine, driver, words[words.index("-i") + 1] if "-i" in words[:-1] else None)
    if os.geteuid():
        raise Failure("Insufficient Permissions", 4)
    try:
        return mig.main(words, read(), gpus)
    except mig.Refused as refused:
        raise Failure(str(refused), refused.code) from None
    except settings.BadValue as error:
        raise Failure(str(error), OTHER) from None


def links(machine: Machine, driver: Driver, words: list[str]) -> str:
    """Return the answer of the topo and nvlink subcommands."""
    options = words[1:]
    wanted = options[options.index("-i") + 1] if "-i" in options[:-1] else None
    gpus = choose(machine, driver, wanted)
    numbers = [int(str(gpu["index"])) for gpu in gpus]
    if words[0] == "topo" and options[:1] in (["-m"], ["--matrix"]):
        return topology.matrix(machine, driver)
    if words[0] == "topo" and options[:1] == ["-mp"]:
        return topology.matrix(machine, driver, nvlink=False)
    if words[0] == "nvlink" and {"-s", "--status"} & set(options):
        split = {address for address, own in read()["settings"].items() if own.get("mig") == "Enabled"}
        return topology.nvlink_status(machine, driver, numbers, split)
    if words[0] == "nvlink" and {"-R", "--remotelinkinfo"} & set(options):
        return topology.nvlink_peers(machine, numbers)
    raise Failure(f"Invalid combination of input arguments. Please run 'nvidia-smi {words[0]} -h' for help.", INVALID)
