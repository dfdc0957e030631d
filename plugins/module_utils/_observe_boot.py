# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The group C(driver), second part: what is pending, what the next boot brings, who owns what, and what may change it unasked."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import (
    _boot,
    _dkms_status,
    _driver,
    _kernels,
    _modprobe,
    _nic_settings,
    _owners,
    _pins,
    _reboot,
)

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._observe import Observation

NIC = "mlxconfig "


def start(seen: Observation) -> None:
    """Start what takes its time: dnf reads its whole database, adapters answer slowly."""
    seen.unit_names += _pins.UNITS
    if (seen.facts["host"] or {}).get("package_manager") == "dnf":
        seen.ask("dnf", _reboot.DNF)
    with seen.probe("mlxconfig"):
        for address, argv in _nic_settings.questions(seen.system, seen.runner).items():
            seen.ask(NIC + address, argv)


def collect(seen: Observation) -> None:
    """Complete C(driver), and fill in C(owners) and C(updates)."""
    system, driver = seen.system, seen.facts["driver"]
    with seen.probe("dkms"):
        driver["dkms"] = _dkms_status.scan(system)
        driver["dkms_key"] = _dkms_status.key(system)
    with seen.probe("mlxconfig"):
        _adapters(seen, driver)
    with seen.probe("modprobe"):
        driver["gsp_firmware"] = _driver.gsp_firmware(system)
        rules = _modprobe.rules(system)
        driver["module_options"] = _modprobe.options(system, rules)
        driver["kept_out"] = sorted(rules.kept_out & {"nvidia", *_modprobe.RIVALS})
    with seen.probe("boot"):
        _boots(seen, driver)
    with seen.probe("owners"):
        seen.own(
            driver=driver["owner"], rdma=_owners.rdma(system, seen.packages), fabric_manager=_owners.fabric_manager(system, seen.packages)
        )
    with seen.probe("updates"):
        seen.facts["updates"] = _pins.scan(system, seen.packages, seen.units)


def _adapters(seen: Observation, driver: dict[str, t.Any]) -> None:
    """The settings that wait, by adapter; null where nobody could be asked."""
    names = [name for name in seen.children if name.startswith(NIC)]
    answers = {name[len(NIC):]: seen.answer(name) for name in names}
    driver["nic_settings"] = {
        address: _nic_settings.parse(answer.out) for address, answer in answers.items() if answer is not None and answer.rc == 0
    } if names else None


def _boots(seen: Observation, driver: dict[str, t.Any]) -> None:
    """The next boot, and what is there for each kernel; then what is pending."""
    system, kernel = seen.system, seen.kernel
    kernels = _kernels.installed(system)
    following = _boot.next_boot(system, kernel, kernels)
    driver["kernel_options"] = _boot.kernel_options(system, following)
    disk = driver["on_disk"]
    driver["next_boot"] = {
        "kernel": following["kernel"], "source": following["source"], "once": following["once"],
        "module": (disk.get(following["kernel"]) or {}).get("version"),
    }
    driver["kernels"] = {
        name: {
            "installed": name in kernels,
            "headers": system.exists("/lib/modules/%s/build/Makefile" % name),
            "initramfs": _boot.initramfs(system, name, (disk.get(name) or {}).get("path")),
        }
        for name in sorted({name for name in [kernel, following["kernel"], *kernels] if name})
    }
    answer = seen.runner.result(seen.children["dnf"]) if "dnf" in seen.children else None
    asked, wrong = _reboot.asked_by_dnf(answer)
    if wrong:
        system.problem(wrong, "dnf needs-restarting")
    driver["reboot_reasons"] = _reboot.reasons(system, kernel, kernels, driver, asked)
