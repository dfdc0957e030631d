# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Damaged answers of nvidia-smi: what is read of a GPU is what was said of it, or nothing, or the damage is told."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _nvidia_smi, _smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._pci import address_of
from fixtures import smi
from hypothesis import example, given, settings
from hypothesis import strategies as st

GPUS = st.integers(0, 16)


def address(number: int) -> str:
    return f"0000:{0x10 + number:02x}:00.0"


def report(gpus: int) -> str:
    """Return a report in which every value tells whose it is, one element a line."""
    entries = [
        f"""<gpu id="0000{address(n)}">
<product_name>NVIDIA Model {n}</product_name>
<mig_mode>
<current_mig>Enabled</current_mig>
</mig_mode>
<mig_devices>
<mig_device>
<index>0</index>
<gpu_instance_id>{n}</gpu_instance_id>
<compute_instance_id>0</compute_instance_id>
<fb_memory_usage>
<total>{100 + n} MiB</total>
</fb_memory_usage>
</mig_device>
</mig_devices>
<uuid>GPU-{n}</uuid>
<minor_number>{n}</minor_number>
<fb_memory_usage>
<total>{1000 + n} MiB</total>
</fb_memory_usage>
<gpu_power_readings>
<current_power_limit>{300 + n}.00 W</current_power_limit>
</gpu_power_readings>
<supported_clocks>
<supported_mem_clock>
<value>{n} MHz</value>
</supported_mem_clock>
</supported_clocks>
</gpu>
"""
        for n in range(gpus)
    ]
    return f"<?xml version='1.0'?>\n<nvidia_smi_log>\n<attached_gpus>{gpus}</attached_gpus>\n{''.join(entries)}</nvidia_smi_log>\n"


def truth(number: int) -> dict[str, Any]:
    return {"model": f"NVIDIA Model {number}", "uuid": f"GPU-{number}", "minor": number, "memory_mib": 1000 + number, "power_limit_w": 300.0 + number}


def untrue(text: str, gpus: int) -> list[str]:
    """Return what a report is read as that it does not say, unless the reader says that it is damaged."""
    found = _nvidia_smi.read_xml(text)
    addresses = [address_of(gpu["id"]) for gpu in found.gpus]
    wrong = [one for one in addresses if one not in [address(n) for n in range(gpus)]]
    for one, gpu, mig in zip(addresses, found.gpus, found.mig, strict=True):
        number = int(one[5:7], 16) - 0x10
        facts = _smi_facts.gpu_facts(gpu, mig)
        wrong += [f"{one}: {key} is {facts[key]}" for key, value in truth(number).items() if facts[key] not in (None, value)]
        wrong += [f"{one}: MIG {device}" for device in facts["mig"] if device["gpu_instance"] not in (None, number)]
    return [] if found.damage else wrong


@pytest.mark.parametrize("gpus", [0, 1, 8, 16])
def test_a_whole_report(gpus: int) -> None:
    found = _nvidia_smi.read_xml(report(gpus))
    assert (found.damage, len(found.gpus)) == (None, gpus)
    assert untrue(report(gpus), gpus) == []
    for number, (gpu, mig) in enumerate(zip(found.gpus, found.mig, strict=True)):
        facts = _smi_facts.gpu_facts(gpu, mig)
        assert {key: facts[key] for key in truth(number)} == truth(number)
        assert [device["memory_mib"] for device in facts["mig"]] == [100 + number]


@settings(max_examples=300, deadline=None)
@given(GPUS, st.data())
def test_a_damaged_report(gpus: int, data: st.DataObject) -> None:
    """Cut, with lost, repeated, glued or moved lines: it loses facts, or says that it is damaged."""
    text = report(gpus)
    lines = text.splitlines()
    kind = data.draw(st.sampled_from(["cut", "lose", "lose many", "repeat", "glue", "move", "behead"]))
    at = data.draw(st.integers(0, len(lines) - 1))
    if kind == "cut":
        damaged = text[: data.draw(st.integers(0, len(text)))]
    elif kind == "behead":
        damaged = text[data.draw(st.integers(0, len(text))) :]
    else:
        if kind == "lose":
            del lines[at]
        elif kind == "lose many":
            del lines[at : at + data.draw(st.integers(1, 40))]
        elif kind == "repeat":
            lines.insert(at, lines[at])
        elif kind == "glue" and at:
            lines[at - 1 : at + 1] = [lines[at - 1] + lines[at]]
        elif kind == "move":
            lines.insert(data.draw(st.integers(0, len(lines) - 1)), lines.pop(at))
        damaged = "\n".join(lines)
    if kind == "move" and "<gpu " not in lines[at]:
        # A value that stands in the entry of another GPU is that GPU's; of what is no value nothing may be believed.
        assert len(_nvidia_smi.read_xml(damaged).gpus) <= gpus
    else:
        assert untrue(damaged, gpus) == []


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 16), st.sampled_from(["utf-16", "utf-16-le", "latin-1", "cp1252", "utf-32"]), st.binary(max_size=6), st.integers(0, 4000))
def test_wrong_encodings(gpus: int, encoding: str, rubbish: bytes, at: int) -> None:
    """What comes out of a pipe is taken for UTF-8, whatever it is."""
    for data in (report(gpus).encode(encoding), report(gpus).encode()[:at] + rubbish + report(gpus).encode()[at:]):
        text = data.decode("utf-8", "replace")
        found = _nvidia_smi.read_xml(text)
        assert len(found.gpus) <= gpus + rubbish.count(b"<gpu")
        _nvidia_smi.read_nvlink(text)


def status(gpus: int, links: int) -> list[str]:
    """Return the lines of nvlink -s, each rate telling whose it is."""
    return [
        line for n in range(gpus)
        for line in (f"GPU {n}: NVIDIA Model {n} (UUID: GPU-{n})", *(f"\t Link {link}: {n + 1}.{link:03} GB/s" for link in range(links)))
    ]  # fmt: skip


def peers(gpus: int, links: int) -> list[str]:
    """Return the lines of nvlink -R; each end tells whose it is."""
    return [
        line for n in range(gpus)
        for line in (f"GPU {n}: NVIDIA Model {n} (UUID: GPU-{n})",
                     *(f"\t Link {link}: Remote Device 00000000:{n + 1:02x}:{link:02x}.0: Link {link}" for link in range(links)))
    ]  # fmt: skip


def damage(lines: list[str], data: st.DataObject) -> str:
    """Cut, lose, repeat or glue."""
    lines = list(lines)
    kind = data.draw(st.sampled_from(["cut", "lose", "repeat", "glue", "none"]))
    at = data.draw(st.integers(0, max(0, len(lines) - 1)))
    if kind == "cut":
        text = "\n".join(lines)
        return text[: data.draw(st.integers(0, len(text)))]
    if kind == "lose":
        del lines[at : at + 1]
    elif kind == "repeat":
        lines[at:at] = lines[at : at + 1]
    elif kind == "glue" and at:
        lines[at - 1 : at + 1] = ["".join(lines[at - 1 : at + 1])]
    return "\n".join(lines)


@settings(max_examples=300, deadline=None)
@given(GPUS, st.integers(1, 18), st.data())
def test_damaged_links(gpus: int, links: int, data: st.DataObject) -> None:
    for entry in _nvidia_smi.read_nvlink(damage(status(gpus, links), data)).values():
        number = int(entry["uuid"][4:] or -1)
        assert number < gpus
        assert len(entry["links"]) <= links
        for link in entry["links"] if entry["whole"] else []:
            # The end of a cut text may be the beginning of a number.
            said = f"{number + 1}.{link['link']:03}"
            assert link["rate_gbs"] is None or said.startswith(f"{link['rate_gbs']:g}"[:1])
            assert int(link["rate_gbs"] or number + 1) in (number + 1, int(str(number + 1)[:1]))


@settings(max_examples=300, deadline=None)
@given(GPUS, st.integers(1, 6), st.data())
def test_damaged_ends_of_links(gpus: int, links: int, data: st.DataObject) -> None:
    for uuid, ends in _nvidia_smi.read_peers(damage(peers(gpus, links), data)).items():
        assert {link: end for link, end in ends.items() if end != f"0000:{int(uuid[4:]) + 1:02x}:{link:02x}.0"} == {}


def test_a_lost_title_gives_no_gpu_the_links_of_another() -> None:
    lines = status(3, 2)
    del lines[3]
    found = _nvidia_smi.read_nvlink("\n".join(lines))
    assert {index: (entry["whole"], len(entry["links"])) for index, entry in found.items()} == {0: (False, 2), 2: (True, 2)}
    silent = "GPU 0: A (UUID: GPU-0)\nNVML: all links are inActive\n\t Link 0: 25 GB/s\n"
    assert _nvidia_smi.read_nvlink(silent)[0]["whole"] is False


def test_a_lost_title_gives_no_gpu_more_ends_than_its_own() -> None:
    lines = [line for place, line in enumerate(peers(2, 2)) if place not in (2, 3)]
    assert _nvidia_smi.read_peers("\n".join(lines)) == {"GPU-0": {0: "0000:01:00.0"}}


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>", True),
        ("NVML: Unable to retrieve NVLink information as all links are inActive", True),
        ("\t Link 0: 26.562 GB/s\t Link 1: 26.562 GB/s", False),
        ("\t Link 0: 26.562 G", False),
        ("\t Link 0", False),
    ],
)
def test_lines_that_are_no_links(text: str, whole: bool) -> None:
    assert _nvidia_smi.read_nvlink(f"GPU 0: A (UUID: GPU-0)\n{text}\n")[0]["whole"] is whole


def test_how_a_gpu_is_divided() -> None:
    found = _nvidia_smi.read_geometry(smi.GPU_INSTANCES, smi.COMPUTE_INSTANCES)
    assert found is not None
    assert [(entry["id"], entry["start"], entry["size"]) for entry in found[0]] == [(1, 4, 4), (2, 0, 4)]
    older = _nvidia_smi.read_geometry(smi.GPU_INSTANCES, smi.OLDER_COMPUTE_INSTANCES)
    assert older is not None
    assert older[0][1]["compute_instances"] == [{"id": 5, "profile": "1c.3g.40gb", "profile_id": 0, "start": None, "size": None}]
    assert _nvidia_smi.read_geometry("", "") == {}


@settings(max_examples=200, deadline=None)
@given(st.data())
@example(None)
def test_a_damaged_geometry_is_none_or_less_but_never_another(data: st.DataObject | None) -> None:
    """A cell that is lost or glued makes a row that cannot be read, and with it the whole."""
    rows = smi.GPU_INSTANCES.splitlines()
    if data is None:
        assert _nvidia_smi.read_geometry(smi.GPU_INSTANCES, smi.COMPUTE_INSTANCES.replace("  2       MIG 1c", "  7       MIG 1c")) is None
        return
    row = data.draw(st.sampled_from([5, 7]))
    words = rows[row].split()
    how = data.draw(st.sampled_from(["lose", "glue"]))
    # The last bar tells nothing, glued or not.
    place = data.draw(st.integers(1, len(words) - (2 if how == "lose" else 3)))
    words[place : place + 1 + (how == "glue")] = [] if how == "lose" else ["".join(words[place : place + 2])]
    rows[row] = " ".join(words)
    assert _nvidia_smi.read_geometry("\n".join(rows), "") is None


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 16), st.randoms(use_true_random=False))
def test_a_list_in_any_order(gpus: int, chance: random.Random) -> None:
    lines = [f"GPU {n}: NVIDIA Model {n} (UUID: GPU-{n})" for n in range(gpus)]
    chance.shuffle(lines)
    found, problems = _nvidia_smi.read_list("\n".join(lines))
    assert {entry["index"]: entry["uuid"] for entry in found} == {n: f"GPU-{n}" for n in range(gpus)}
    assert problems == ([] if gpus else ["no GPU in the text"])
