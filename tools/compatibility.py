# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/compatibility.md: the catalog as tables that a person can read, with its sources at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SUPPORT = {"LTSB": "long-term", "PB": "production", "NFB": "new feature"}
SOFTWARE = {"driver": "driver", "container_toolkit": "container toolkit", "nccl": "NCCL", "cudnn": "cuDNN", "dcgm": "DCGM", "pytorch": "PyTorch"}
Entry = dict[str, Any]


def table(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table; a bar in a cell would end it."""
    lines = [list(titles)]
    lines.append(["---"] * len(lines[0]))
    lines += [["" if cell is None else str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(words: Iterable[object]) -> str:
    """Return words as code, with commas between."""
    return ", ".join(f"`{word}`" for word in words)


class Sources:
    """Numbers the sources in the order in which they are quoted."""

    def __init__(self) -> None:
        """Start without any."""
        self.known: dict[str, int] = {}

    def __call__(self, entry: Entry) -> str:
        """Return the mark of an entry's source."""
        text = f"{entry['source']} (read {entry['date']})"
        number = self.known.setdefault(text, len(self.known) + 1)
        return f"[{number}]" + (" unverified" if entry.get("unverified") else "")

    def section(self) -> str:
        """Return the list of them."""
        lines = [f"{number}. {text}\n" for text, number in self.known.items()]
        return "## Sources\n\nUnverified is what nobody has seen twice; it is never chosen where nobody asked for it.\n\n" + "".join(lines)


def page(known: dict[str, Any], note: str) -> str:
    """Return the page."""
    sources = Sources()
    sections = (platforms, drivers, packages, archives, bad, gpus, cuda, pytorch, libraries, containers, dcgm)
    parts = [section(known, sources) for section in sections]
    head = f"# Compatibility: what goes with what\n\n{note}\n"
    head += "The resolver decides from these tables and from nothing else. A combination that they do not carry is refused before any host changes.\n"
    return "\n".join((head, *parts, sources.section()))


def platforms(known: dict[str, Any], sources: Sources) -> str:
    """Return the distributions, the keys of their repositories, and those that are refused."""
    rows = [
        (
            f"{entry['distribution']} {entry['version']}", ", ".join(entry["architectures"]), _range(entry),
            f"`{entry['directory']}`", f"`{entry['key_fingerprint'] or entry['key_file']}`",
            "yes" if not entry.get("unmanaged") else f"no: {entry['unmanaged']}", sources(entry),
        )
        for entry in known["platforms"].values()
    ]  # fmt: skip
    refused = [
        (", ".join([*entry["distributions"], *(f"like {one}" for one in entry.get("like", []) if one not in entry["distributions"])]),
         ", ".join(entry.get("versions") or ["all others"]), entry["reason"], sources(entry))
        for entry in known["unsupported_platforms"]
    ]  # fmt: skip
    relatives = [entry for entry in known["platforms"].values() if "relatives" in entry]
    revoked = [(f"`{entry['key_fingerprint']}`", entry["revoked"], sources(entry)) for entry in known["revoked_keys"]]
    weak = [
        (f"`{entry['key_fingerprint']}`", entry["verifier"], entry["since"], entry["reason"], sources(entry)) for entry in known["weak_keys"]
    ]  # fmt: skip
    return (
        "## Distributions\n\n"
        + table(("distribution", "architectures", "driver branches", "folder", "key", "managed", "source"), rows)
        + "".join(f"\n{entry['distribution']} {entry['version']} stands for {', '.join(entry['relatives'])} too.\n" for entry in relatives)
        + "\nRefused, with the reason:\n\n"
        + table(("distribution", "versions", "reason", "source"), refused)
        + "\nKeys that are no longer trusted:\n\n"
        + table(("key", "since", "source"), revoked)
        + "\nKeys whose signatures a host's verifier takes no more, which is a refusal there:\n\n"
        + table(("key", "verifier", "since", "reason", "source"), weak)
    )


def _range(entry: Entry) -> str:
    low, high = entry.get("minimum_driver_branch"), entry.get("maximum_driver_branch")
    return f"from {low}" if low else f"up to {high}" if high else "all"


def drivers(known: dict[str, Any], sources: Sources) -> str:
    """Return the branches of NVIDIA's repository."""
    rows = [
        (
            entry["branch"], SUPPORT[entry["type"]], entry["first"], entry["end_of_life"] or "not published", entry["cuda"],
            ", ".join([entry["default_flavour"], *(one for one in entry["flavours"] if one != entry["default_flavour"])]),
            f"{entry['oldest_architecture']} to {entry['newest_architecture']}", ", ".join(entry["versions"]),
            ", ".join(entry["packaged"]) or "nowhere by this release", sources(entry),
        )
        for entry in known["driver_branches"]
    ]  # fmt: skip
    modules = "kernel modules, the vendor's choice first"
    titles = ("branch", "support", "from", "until", "CUDA", modules, "GPUs", "versions", "installable on", "source")
    return (
        "## Drivers\n\n"
        "`gpu_stack_driver: auto` takes a branch that is in support: long-term before production, never one of new features, never one that is\n"
        "unverified while there is another. Open kernel modules are preferred wherever they drive all GPUs of a host.\n\n" + table(titles, rows)
    )


def packages(known: dict[str, Any], sources: Sources) -> str:
    """Return the names of packages by family and branch, and how they are numbered."""
    rows = [
        (
            family, _branches(rule), code(rule["user_space"]), code(rule["kernel_open"]), code(rule["kernel_proprietary"]),
            code(rule["persistence"]), sources(rule),
        )
        for family, rules in known["driver_packages"].items()
        for rule in rules
    ]  # fmt: skip
    companions = [
        (manager, _branches(rule), *_given(rule, None, "fabric_manager", "nscq", "imex", "nvsdm"), sources(rule))
        for manager, rules in known["driver_companions"].items()
        for rule in rules
    ]
    numbering = [
        (family, rule["first"], rule["last"], *_given(rule, "as everything", "package", "companion"), sources(rule))
        for family, rules in known["driver_numbering"].items()
        for rule in rules
    ]
    return (
        "### Names of their packages\n\n`{branch}` stands for the branch.\n\n"
        + table(("family", "branches", "user space", "open modules", "proprietary modules", "persistence daemon", "source"), rows)
        + "\nWhat goes in lockstep with the driver where the GPUs need it:\n\n"
        + table(("package manager", "branches", "fabric manager", "NSCQ", "IMEX", "NVSDM", "source"), companions)
        + "\nHow they are numbered where it is not as everything else of the platform:\n\n"
        + table(("family", "from", "to", "packages", "companions", "source"), numbering)
    )


def _given(rule: Entry, otherwise: str | None, *fields: str) -> list[str | None]:
    return [f"`{rule[field]}`" if field in rule else otherwise for field in fields]


def _branches(rule: Entry) -> str:
    low, high = rule["branches"]
    return str(low) if low == high else f"{low} to {high}"


def archives(known: dict[str, Any], sources: Sources) -> str:
    """Return the drivers of the distributions, and modules that are signed."""
    rows = [
        (
            name, ", ".join(release["version"] for release in entry["releases"]) or f"those of {', '.join(map(str, entry['branches']))}",
            ", ".join(entry["flavours"]), sources(entry),
        )
        for name, entry in known["distribution_drivers"].items()
    ]  # fmt: skip
    signed = [
        (
            ", ".join(entry["platforms"]), entry["supplier"], entry["flavour"], ", ".join(map(str, entry["branches"])),
            f"`{entry['name']}`", sources(entry),
        )
        for entry in known["signed_modules"]
    ]  # fmt: skip
    return (
        "### The distribution's archive\n\n`nvidia_driver_source: distro`:\n\n"
        + table(("platform", "versions", "kernel modules", "source"), rows)
        + "\nPrebuilt modules that load under Secure Boot:\n\n"
        + table(("platforms", "from", "kernel modules", "branches", "name", "source"), signed)
    )


def bad(known: dict[str, Any], sources: Sources) -> str:
    """Return what not to install."""
    rows = [
        (
            SOFTWARE[entry["component"]],
            entry["first"] if entry["first"] == entry["last"] else f"{entry['first']} to {entry['last']}",
            entry["first_good"] or "not known", ", ".join([*entry.get("architectures", ()), *entry.get("flavours", ())]) or "all",
            entry["effect"], sources(entry),
        )
        for entry in known["known_bad"]
    ]  # fmt: skip
    return "## Versions known to be bad\n\n" + table(("software", "versions", "first good", "hosts with", "what happens", "source"), rows)


def gpus(known: dict[str, Any], sources: Sources) -> str:
    """Return generations, what links GPUs, and models by PCI id."""
    generations = [
        (
            entry["name"], ", ".join(entry["flavours"]), entry["compute_capability"], entry["last_branch"] or "none yet", entry["first_cuda"],
            entry["last_cuda"] or "none yet", sources(entry),
        )
        for entry in known["architectures"]
    ]  # fmt: skip
    fabrics = [
        (
            entry["name"], ", ".join(one.replace("_", " ") for one in entry["companions"]), code(entry["packages"]), code(entry["kernel_modules"]),
            entry["minimum_driver"] or "any", sources(entry),
        )
        for entry in known["fabrics"]
    ]  # fmt: skip
    rows = [
        (
            f"`{device}`", entry["model"], entry["architecture"], entry["compute_capability"], entry.get("minimum_driver", "any of its generation"),
            entry.get("fabric"), sources(entry),
        )
        for device, entry in known["gpus"].items()
    ]  # fmt: skip
    return (
        "## GPUs\n\n"
        + table(
            ("generation", "kernel modules that drive it", "compute capability from", "last branch", "CUDA from", "last CUDA", "source"), generations
        )
        + "\nWhat links GPUs, and what a host needs for it:\n\n"
        + table(("fabric", "in lockstep with the driver", "further packages", "kernel modules", "oldest driver", "source"), fabrics)
        + "\nModels. A device id that is not here counts as one of the generation that its range was given to.\n\n"
        + table(("PCI id", "model", "generation", "compute capability", "oldest driver", "fabric", "source"), rows)
    )


def cuda(known: dict[str, Any], sources: Sources) -> str:
    """Return CUDA's major versions and toolkits."""
    majors = [(entry["major"], entry["minimum_driver"], entry["oldest_capability"], sources(entry)) for entry in known["cuda_majors"]]
    toolkits = [(entry["version"], entry["full_driver"], sources(entry)) for entry in known["cuda_toolkits"]]
    return (
        "## CUDA\n\nThe oldest driver that runs anything of a major version (minor-version compatibility):\n\n"
        + table(("CUDA", "oldest driver", "compute capability from", "source"), majors)
        + "\nThe driver that knows all of a toolkit; a branch alone means any release of it:\n\n"
        + table(("toolkit", "driver", "source"), toolkits)
    )


def pytorch(known: dict[str, Any], sources: Sources) -> str:
    """Return releases and builds of PyTorch, and what conda has."""
    releases = [
        (
            entry["version"], entry["released"], f"{entry['python'][0]} to {entry['python'][-1]}",
            "; ".join(_build(tag, about) for tag, about in entry["builds"].items()), sources(entry),
        )
        for entry in known["pytorch"]
    ]  # fmt: skip
    builds = [
        (
            f"`{entry['tag']}`", entry["cuda"], entry["minimum_driver"], entry["full_driver"], ", ".join(entry["capabilities"]),
            ", ".join(entry.get("capabilities_sbsa", ["the same"])), sources(entry),
        )
        for entry in known["builds"]
    ]  # fmt: skip
    others = [
        (entry["version"], f"`{tag}`", ", ".join(made_for))
        for entry in known["pytorch"]
        for tag, made_for in entry.get("capabilities", {}).items()
    ]
    conda = [
        (f"`{entry['channel']}`", entry["last"] or "none yet", f"`{entry['packages']['gpu']}`", one["cuda"], f"`{one['build']}`",
         ", ".join(one["capabilities"]), sources(entry))
        for entry in known["conda_channels"]
        for one in entry["builds"]
    ]  # fmt: skip
    return (
        "## PyTorch\n\n"
        + table(("release", "of", "Python", "builds, the default first, with cuDNN and NCCL inside", "source"), releases)
        + "\nBuilds. Code runs on GPUs of the same major capability and not older; `+PTX` is compiled at start for newer ones too.\n\n"
        + table(("build", "CUDA", "oldest driver", "driver that knows all of it", "compute capabilities", "on Arm", "source"), builds)
        + "\nReleases whose builds were made for others:\n\n"
        + table(("release", "build", "compute capabilities"), others)
        + "\nFrom conda:\n\n"
        + table(("channel", "last release", "package", "CUDA", "build", "compute capabilities", "source"), conda)
    )


def _build(tag: str, about: Entry) -> str:
    inside = " and ".join(f"{SOFTWARE[name]} {about[name]}" for name in ("cudnn", "nccl") if about.get(name))
    return f"`{tag}`" + (f" ({inside})" if inside else "")


def libraries(known: dict[str, Any], sources: Sources) -> str:
    """Return cuDNN and NCCL."""
    cudnn = [(entry["version"], ", ".join(entry["cuda_majors"]), entry["oldest_capability"], sources(entry)) for entry in known["cudnn"]]
    nccl = [(entry["version"], sources(entry)) for entry in known["nccl"]]
    names = [
        (library, entry["package_manager"], f"`{entry['runtime']}`", f"`{entry['development']}`", f"`{entry['package_version']}`", sources(entry))
        for library, part in (("cuDNN", "cudnn_packages"), ("NCCL", "nccl_packages"))
        for entry in known[part]
    ]
    return (
        "## cuDNN and NCCL\n\nPyTorch brings its own; those of a host are for what is compiled there.\n\n"
        + table(("library", "package manager", "package", "to compile with", "version", "source"), names)
        + "\n"
        + table(("cuDNN", "for CUDA", "compute capability from", "source"), cudnn)
        + "\n"
        + table(("NCCL", "source"), nccl)
    )


def containers(known: dict[str, Any], sources: Sources) -> str:
    """Return the container toolkit."""
    about = known["container_toolkit"]
    rows = [(entry["version"], entry["released"] or "not known", sources(entry)) for entry in known["container_toolkit_releases"]]
    return (
        "## Container toolkit\n\n"
        f"In one version, pinned together: {code(about['packages'])}. Obsolete: {code(about['obsolete'])}.\n"
        f"Key: `{about['key_fingerprint']}`. CDI specifications are kept up to date since {about['cdi_since']}. {sources(about)}\n\n"
        + table(("release", "of", "source"), rows)
    )


def dcgm(known: dict[str, Any], sources: Sources) -> str:
    """Return DCGM, its flavours and its exporter."""
    releases = [(entry["version"], entry["released"] or "not known", sources(entry)) for entry in known["dcgm"]]
    names = [
        (entry["major"], f"`{entry['core']}`", f"`{entry['flavour']}`" if "flavour" in entry else None, code(entry.get("proprietary", ())),
         code(entry["conflicts"]), f"`{entry['package_version']}`", sources(entry))
        for entry in known["dcgm_packages"]
    ]  # fmt: skip
    flavours = [(f"driver {entry['minimum_driver']} or newer", f"cuda{entry['cuda']}", sources(entry)) for entry in known["dcgm_flavours"]]
    flavours += [(f"{entry['architecture']}, besides that of its driver", f"cuda{entry['cuda']}", sources(entry)) for entry in known["dcgm_also"]]
    exporter = [
        (entry["version"], f"`{entry['package']}`", entry["package_version"], f"`{entry['host_label']}`", sources(entry))
        for entry in known["dcgm_exporter"]
    ]
    return (
        "## DCGM\n\n"
        + table(("release", "of", "source"), releases)
        + "\n"
        + table(("major", "package", "flavour", "proprietary", "in the way of", "version", "source"), names)
        + "\n"
        + table(("host", "flavour", "source"), flavours)
        + "\nExporter:\n\n"
        + table(("release", "package", "version", "label of the host", "source"), exporter)
    )
