# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What only the driver knows of its GPUs, as nvidia-smi tells it; part of the group C(driver)."""

from __future__ import annotations

import importlib.util
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _nvidia_smi, _smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._later import later
from ansible_collections.gpu.fleet.plugins.module_utils._pci import address_of

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._observe import Observation

    # By address: what the report says of a GPU, and of its MIG devices.
    Told = t.Dict[str, t.Tuple[t.Dict[str, str], t.List[t.Dict[str, str]]]]

# Fields of a GPU that stay null unless the driver answers.
FIELDS = (*_smi_facts.gpu_facts({}, []), "memory_numa_node", "nvlinks")
LINKS = "nvidia-smi nvlink"
# What nvidia-smi says when a GPU in MIG mode is not divided yet, with an exit status of its own.
UNDIVIDED = later(r"No (?:GPU|compute) instances found|No MIG-enabled devices found", re.I)


def start(seen: Observation) -> None:
    """Ask nvidia-smi, and NVML where it can be had. Without a loaded driver they have nothing to say, and asking may load one."""
    if seen.system.exists("/sys/module/nvidia") or seen.system.exists("/sys/module/nvidia_current"):
        seen.ask("nvidia-smi", ["nvidia-smi", "-q", "-x"])
        seen.ask(LINKS, ["nvidia-smi", "nvlink", "-s"])
        if has_pynvml():
            from ansible_collections.gpu.fleet.plugins.module_utils import _nvml

            nvml = _nvml.command()
            if nvml:
                seen.ask("NVML", nvml)


def has_pynvml() -> bool:
    """Whether this Python has C(pynvml), without which all about NVML is not even loaded."""
    try:
        return importlib.util.find_spec("pynvml") is not None
    except (ImportError, ValueError):
        return False


def collect(seen: Observation) -> None:
    """Fill in C(FIELDS) of each GPU, C(volatile), and the NVLinks of each pair. What hangs in one step costs no other step its answer."""
    told: Told = {}
    gpus: dict[str, dict[str, t.Any]] = {}
    divided: dict[str, list[dict[str, t.Any]]] = {}
    with seen.probe("nvidia-smi"):
        told = report(seen)
        gpus = known_gpus(seen, told)
    with seen.probe(LINKS):
        name_links(seen, gpus)
        ask_peers(seen, gpus)
    with seen.probe("nvidia-smi mig"):
        divided = geometry(seen, gpus)
    with seen.probe("NVML"):
        ask_nvml(seen, gpus)
    with seen.probe(LINKS):
        count_links(seen, gpus)
        if told:
            seen.facts["volatile"] = {
                address: _smi_facts.volatile(told[address][0], divided.get(gpu["uuid"]) if gpu["mig_mode"] == "enabled" else [])
                for address, gpu in gpus.items()
            }


def report(seen: Observation) -> Told:
    """The entries of nvidia-smi's report by address; the first of two for one address."""
    answer = seen.answer("nvidia-smi")
    found = _nvidia_smi.read_xml(answer.out) if answer is not None and answer.out else None
    if found is None or (answer is not None and answer.rc != 0 and not found.gpus):
        return {}
    if found.damage:
        seen.system.problem("the report is damaged: %s" % found.damage, "nvidia-smi")
    told: Told = {}
    for gpu, mig in zip(found.gpus, found.mig):
        told.setdefault(address_of(gpu["id"]), (gpu, mig))
    return told


def known_gpus(seen: Observation, told: Told) -> dict[str, dict[str, t.Any]]:
    """The GPUs that both PCI bus and driver know, with what the driver says of them. Neither may invent a GPU for the other."""
    gpus = {gpu["address"]: gpu for gpu in seen.facts["gpus"] or []}
    for address, gpu in gpus.items():
        gpu["memory_numa_node"] = memory_node(seen, address)
    if told and seen.facts["gpus"] is not None:
        for address in sorted(set(told) - set(gpus)):
            seen.system.problem("the driver names %s, which is not on the PCI bus" % address, "nvidia-smi")
        for address in sorted(set(gpus) - set(told)):
            seen.system.problem("%s is on the PCI bus but the driver does not name it" % address, "nvidia-smi")
    both = {address: gpu for address, gpu in gpus.items() if address in told}
    for address, gpu in both.items():
        gpu.update(_smi_facts.gpu_facts(*told[address]))
        compare_links(seen, gpu)
    return both


def memory_node(seen: Observation, address: str) -> int | None:
    """NUMA node that the GPU's own memory is, on machines where CPU and GPU share one address space."""
    status = seen.system.read("/proc/driver/nvidia/gpus/%s/numa_status" % address, 4096, True)
    node = re.search(r"Node:\s*(\d{1,5})", status or "")
    return int(node.group(1)) if node else None


def compare_links(seen: Observation, gpu: dict[str, t.Any]) -> None:
    """PCIe as the driver sees it against sysfs. Speeds change from moment to moment; the driver's maxima may be the slot's, and so less."""
    driver, kernel = gpu["pcie_driver"] or {}, gpu["pcie"]
    for what, key, other, allowed in (
        ("lanes", "width", "width", False),
        ("lanes at most", "max_width", "max_width", True),
        ("as highest generation", "max_generation", "max_generation", True),
        ("as highest generation of the GPU", "device_max_generation", "max_generation", False),
    ):
        one, two = driver.get(key), kernel[other]
        if one is not None and two is not None and (one > two or (one < two and not allowed)):
            seen.system.problem("%s has %d PCIe %s for the driver and %d for the kernel" % (gpu["address"], one, what, two), "nvidia-smi")


def name_links(seen: Observation, gpus: dict[str, dict[str, t.Any]]) -> None:
    """Fill in C(nvlinks); a GPU alone without active links among its siblings is a problem, a machine without NVLink has none at all."""
    answer = seen.answer(LINKS)
    told = {entry["uuid"]: entry for entry in _nvidia_smi.read_nvlink(answer.out if answer else "").values()}
    some_active = any(link["active"] for entry in told.values() for link in entry["links"])
    for address, gpu in gpus.items():
        about = told.get(gpu["uuid"])
        if about and not about["whole"]:
            seen.system.problem("what is said of the NVLinks of %s is damaged" % address, LINKS)
            about = None
        gpu["nvlinks"] = [dict(link, peer=None, peer_type=None) for link in about["links"]] if about else None
        # A GPU in MIG mode has no NVLink to use, and says so.
        if about and some_active and gpu["mig_mode"] != "enabled" and not any(link["active"] for link in about["links"]):
            seen.system.problem("%s has no active NVLink: %s" % (address, about["message"] or "all are inactive"), LINKS)


def geometry(seen: Observation, gpus: dict[str, dict[str, t.Any]]) -> dict[str, list[dict[str, t.Any]]]:
    """How GPUs in MIG mode are divided, by UUID, those of whom it is known; names their MIG devices. Asked for only where there is one."""
    if not any(gpu["mig_mode"] == "enabled" for gpu in gpus.values()):
        return {}
    questions = {"list": ("-L",), "gpu": ("mig", "-lgi"), "compute": ("mig", "-lci")}
    for words in questions.values():
        seen.ask("nvidia-smi " + " ".join(words), ["nvidia-smi", *words])
    answers = {name: seen.answer("nvidia-smi " + " ".join(words), UNDIVIDED) for name, words in questions.items()}
    texts = {name: answer.out if answer else "" for name, answer in answers.items()}
    if any(answer is None or (answer.rc != 0 and not UNDIVIDED.search(answer.out)) for answer in answers.values()):
        return {}
    listed, problems = _nvidia_smi.read_list(texts["list"])
    divided = _nvidia_smi.read_geometry(texts["gpu"], texts["compute"])
    if problems or divided is None:
        seen.system.problem("what is said of MIG devices is damaged%s" % (": " + problems[0] if problems else ""), "nvidia-smi mig")
        return {}
    found = {entry["uuid"]: divided.get(entry["index"], []) for entry in listed}
    names = {entry["uuid"]: {mig["index"]: mig for mig in entry["mig"]} for entry in listed}
    for address, gpu in gpus.items():
        instances = {(entry["id"], part["id"]) for entry in found.get(gpu["uuid"], []) for part in entry["compute_instances"]}
        if {(device["gpu_instance"], device["compute_instance"]) for device in gpu["mig"]} != instances:
            seen.system.problem("the MIG devices of %s are not those of its geometry" % address, "nvidia-smi mig")
            found.pop(gpu["uuid"], None)
        for device in gpu["mig"]:
            device.update({key: names.get(gpu["uuid"], {}).get(device["index"], {}).get(key) for key in ("profile", "uuid")})
    return found


def is_switched(seen: Observation, gpus: dict[str, dict[str, t.Any]]) -> bool:
    """Whether NVLinks lead to NVSwitches; those of other machines, or of no PCI bus, are known by what the driver says of them."""
    return (
        bool(seen.facts["nvswitches"])
        or any((gpu["fabric"] or {}).get("state") == "Completed" for gpu in gpus.values())
        or any(link["peer_type"] == "switch" for gpu in gpus.values() for link in gpu["nvlinks"] or [])
    )


def ask_peers(seen: Observation, gpus: dict[str, dict[str, t.Any]]) -> None:
    """Ask what is at the other end of each link. Few machines have links without a switch, so none other pays for the question."""
    links = [(gpu, link) for gpu in gpus.values() for link in gpu["nvlinks"] or []]
    if is_switched(seen, gpus) or not any(link["active"] for _gpu, link in links):
        return
    seen.ask(LINKS + " -R", ["nvidia-smi", "nvlink", "-R"])
    answer = seen.answer(LINKS + " -R")
    peers = _nvidia_smi.read_peers(answer.out if answer else "")
    for gpu, link in links:
        link["peer"] = peers.get(gpu["uuid"], {}).get(link["link"])
        link["peer_type"] = "gpu" if link["peer"] in gpus else None


def ask_nvml(seen: Observation, gpus: dict[str, dict[str, t.Any]]) -> None:
    """Fill in nulls from NVML where it was asked."""
    answer = seen.answer("NVML")
    if answer is None or answer.rc != 0:
        return
    from ansible_collections.gpu.fleet.plugins.module_utils import _nvml

    try:
        told = _nvml.read(answer.out)
    except ValueError as error:
        seen.system.problem(str(error), "NVML")
        return
    for clash in _nvml.merge(gpus, (seen.facts["topology"] or {}).get("gpu_gpu") or {}, told):
        seen.system.problem(clash, "NVML")


def count_links(seen: Observation, gpus: dict[str, dict[str, t.Any]]) -> None:
    """Behind NVSwitches every GPU reaches every other one over all of its active links; elsewhere each link leads to one of them."""
    switched = is_switched(seen, gpus)
    active = {
        address: [link for link in gpu["nvlinks"] if link["active"]] for address, gpu in gpus.items() if gpu["nvlinks"] is not None
    }
    # Where no link of a GPU is known to lead to another one here, a switch that the host cannot see may be in between.
    unknown = {
        address for address, links in active.items()
        if not switched and links and not (all(link["peer"] for link in links) and any(link["peer"] in gpus for link in links))
    }
    for one, row in ((seen.facts["topology"] or {}).get("gpu_gpu") or {}).items():
        for two, entry in row.items():
            if one not in active or two not in active:
                continue
            if switched or not active[one] or not active[two]:
                entry["nvlinks"] = min(len(active[one]), len(active[two]))
            elif unknown & {one, two}:
                continue
            else:
                entry["nvlinks"] = sum(link["peer"] == two for link in active[one])
            entry["source"] += ", nvidia-smi"
    if unknown:
        seen.system.problem("which GPUs the NVLinks lead to is not known on this machine", LINKS)
