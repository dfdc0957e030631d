# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi mig: GPUs in MIG mode are divided into GPU instances, and those into compute instances, until the driver is unloaded."""

from __future__ import annotations

import uuid
from typing import Any

from ..machine import Entry
from ..state import State, changing
from .settings import BadValue

# GPU instance profiles: id -> (compute slices, memory slices of eight, first slices that it may start at).
PROFILES = {
    19: (1, 1, (0, 1, 2, 3, 4, 5, 6)), 15: (1, 2, (0, 2, 4, 6)), 14: (2, 2, (0, 2, 4)), 9: (3, 4, (0, 4)), 5: (4, 4, (0,)), 0: (7, 8, (0,)),
}  # fmt: skip
# Compute instance profiles: id -> compute slices.
COMPUTE = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}
# Memory slices -> number of the first GPU instance of that size.
FIRST_ID = {8: 0, 4: 1, 2: 3, 1: 7}
SLICES = 7
NOTHING = 6

Instance = dict[str, Any]


class Refused(Exception):
    """An end with a message and an exit code of its own."""

    def __init__(self, text: str, code: int = NOTHING) -> None:
        """Keep both."""
        super().__init__(text)
        self.code = code


def divided(gpu: Entry, settings: Entry) -> list[Instance]:
    """Return the GPU instances of a GPU."""
    on = gpu["spec"]["mig"] and settings.get("mig") == "Enabled"
    return list(settings.get("mig_instances", [])) if on else []


def memory(gpu: Entry, instance: Instance) -> int:
    """Return MiB of a GPU instance."""
    return int(gpu["spec"]["memory_mib"]) * int(instance["size"]) // 8


def name(gpu: Entry, instance: Instance, slices: int | None = None) -> str:
    """Return a profile's name; that of a compute instance says its slices when it has not all of them."""
    own = PROFILES[instance["profile"]][0]
    whole = f"{own}g.{round(memory(gpu, instance) / 1024)}gb"
    return whole if slices in (None, own) else f"{slices}c.{whole}"


def devices(gpu: Entry, settings: Entry) -> list[dict[str, str]]:
    """Return the MIG devices, each a compute instance, as the report and -L have them."""
    found: list[dict[str, str]] = []
    for instance in divided(gpu, settings):
        for compute in instance["compute"]:
            place = f"{gpu['uuid']}/{instance['id']}/{compute['id']}"
            slices = COMPUTE[compute["profile"]]
            found.append({
                "index": str(len(found)), "gpu_instance": str(instance["id"]), "compute_instance": str(compute["id"]),
                "profile": name(gpu, instance, slices), "uuid": f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, place)}",
                "memory": f"{memory(gpu, instance)} MiB", "multiprocessors": str(16 * slices),
            })  # fmt: skip
    return found


def main(words: list[str], state: State, gpus: list[Entry]) -> str:
    """Answer one request about the GPUs that were chosen."""
    enabled = [gpu for gpu in gpus if gpu["spec"]["mig"] and state["settings"].get(gpu["address"], {}).get("mig") == "Enabled"]
    if not enabled:
        raise Refused("No MIG-enabled devices found.")
    given = {word: words[place + 1] if words[place + 1 :] and not words[place + 1].startswith("-") else "" for place, word in enumerate(words)}
    if "-lgi" in given:
        return gpu_instances(state, enabled)
    if "-lci" in given:
        return compute_instances(state, enabled)
    for option, change in (("-cgi", create), ("-cci", create_compute), ("-dci", destroy_compute), ("-dgi", destroy)):
        if option in given:
            with changing() as now:
                return "".join(change(gpu, now["settings"][gpu["address"]], given) for gpu in enabled)
    raise Refused("Invalid combination of input arguments. Please run 'nvidia-smi mig -h' for help.", 2)


def table(title: str, heads: list[str], rows: list[str], empty: str) -> str:
    """Return rows between lines, as wide as they are."""
    if not rows:
        raise Refused(f"No {empty} found: Not Found")
    width = max(len(row) for row in [title, *heads, *rows]) + 1
    line = "+" + "-" * width + "+\n"
    text = line + "".join(f"|{head:<{width}}|\n" for head in [title, *heads]) + "|" + "=" * width + "|\n"
    return text + "".join(f"|{row:<{width}}|\n{line}" for row in rows)


def gpu_instances(state: State, gpus: list[Entry]) -> str:
    """Return mig -lgi."""
    rows = [
        f"{gpu['index']:>4}  MIG {name(gpu, instance):<16}{instance['profile']:>4}{instance['id']:>9}{instance['start']:>11}:{instance['size']}     "
        for gpu in gpus for instance in divided(gpu, state["settings"][gpu["address"]])
    ]  # fmt: skip
    heads = [" GPU   Name             Profile  Instance   Placement  ", "                          ID       ID       Start:Size "]
    return table(" GPU instances:", heads, rows, "GPU instances")


def compute_instances(state: State, gpus: list[Entry]) -> str:
    """Return mig -lci."""
    rows = [
        f"{gpu['index']:>4}{instance['id']:>7}       MIG {name(gpu, instance, COMPUTE[compute['profile']]):<16}{compute['profile']:>4}"
        f"{compute['id']:>10}{compute['start']:>11}:{COMPUTE[compute['profile']]}     "
        for gpu in gpus for instance in divided(gpu, state["settings"][gpu["address"]]) for compute in instance["compute"]
    ]  # fmt: skip
    heads = [" GPU     GPU       Name             Profile   Instance   Placement  ",
             "       Instance                       ID        ID       Start:Size ", "         ID"]  # fmt: skip
    return table(" Compute instances:", heads, rows, "compute instances")


def create(gpu: Entry, settings: Entry, given: dict[str, str]) -> str:
    """Make GPU instances by profile id or name, in the places that are free; with -C each gets one compute instance of its whole size."""
    text = ""
    instances = settings.setdefault("mig_instances", [])
    for word in given["-cgi"].split(","):
        wanted, _, place = word.partition(":")
        profile = next((key for key, (_, size, _) in PROFILES.items() if wanted in (str(key), name(gpu, {"profile": key, "size": size}))), None)
        if profile is None:
            raise BadValue(f"Unable to create a GPU instance on GPU {gpu['index']:>2} using profile {wanted}: Invalid Argument")
        slices, size, starts = PROFILES[profile]
        taken = {slot for other in instances for slot in range(other["start"], other["start"] + other["size"])}
        free = [start for start in starts if not taken & set(range(start, start + size)) and place in ("", str(start))]
        if not free or slices + sum(PROFILES[other["profile"]][0] for other in instances) > SLICES:
            raise BadValue(f"Unable to create a GPU instance on GPU {gpu['index']:>2} using profile {profile}: Insufficient Resources")
        made: Instance = {"id": FIRST_ID[size] + free[0] // size, "profile": profile, "start": free[0], "size": size, "compute": []}
        instances.append(made)
        said = f"GPU instance ID {made['id']:>2} on GPU {gpu['index']:>2} using profile MIG {name(gpu, made)} (ID {profile:>2})"
        text += f"Successfully created {said}\n"
        if "-C" in given:
            whole = next(key for key, count in COMPUTE.items() if count == slices)
            text += compute_in(gpu, made, whole)
    return text


def compute_in(gpu: Entry, instance: Instance, profile: int) -> str:
    """Make a compute instance behind those that a GPU instance has."""
    used = sum(COMPUTE[other["profile"]] for other in instance["compute"])
    if used + COMPUTE[profile] > PROFILES[instance["profile"]][0]:
        raise BadValue(f"Unable to create a compute instance on GPU {gpu['index']:>2} GPU instance ID {instance['id']:>2}: Insufficient Resources")
    made = {"id": len(instance["compute"]), "profile": profile, "start": used}
    instance["compute"].append(made)
    return (f"Successfully created compute instance ID {made['id']:>2} on GPU {gpu['index']:>2} GPU instance ID {instance['id']:>2} "
            f"using profile MIG {name(gpu, instance, COMPUTE[profile])} (ID {profile:>2})\n")  # fmt: skip


def chosen(settings: Entry, given: dict[str, str]) -> list[Instance]:
    """Return the GPU instances that -gi names; all without it."""
    wanted = given.get("-gi", "").split(",") if given.get("-gi") else None
    found = [entry for entry in settings.get("mig_instances", []) if wanted is None or str(entry["id"]) in wanted]
    if not found:
        raise Refused("No GPU instances found: Not Found")
    return found


def create_compute(gpu: Entry, settings: Entry, given: dict[str, str]) -> str:
    """Make compute instances by profile id."""
    words = given["-cci"].split(",")
    if any(word not in map(str, COMPUTE) for word in words):
        raise BadValue(f"Unable to create a compute instance using profile {given['-cci']}: Invalid Argument")
    return "".join(compute_in(gpu, instance, int(word)) for instance in chosen(settings, given) for word in words)


def destroy_compute(gpu: Entry, settings: Entry, given: dict[str, str]) -> str:
    """Take away all compute instances of the GPU instances."""
    text = ""
    for instance in chosen(settings, given):
        for compute in instance["compute"]:
            text += f"Successfully destroyed compute instance ID {compute['id']:>2} from GPU {gpu['index']:>2} GPU instance ID {instance['id']:>2}\n"
        instance["compute"] = []
    return text


def destroy(gpu: Entry, settings: Entry, given: dict[str, str]) -> str:
    """Take away GPU instances that have no compute instance any more."""
    text = ""
    for instance in chosen(settings, given):
        if instance["compute"]:
            raise Refused(f"Unable to destroy GPU instance ID {instance['id']:>2} from GPU {gpu['index']:>2}: In use by another client", 19)
        settings["mig_instances"].remove(instance)
        text += f"Successfully destroyed GPU instance ID {instance['id']:>2} from GPU {gpu['index']:>2}\n"
    return text
