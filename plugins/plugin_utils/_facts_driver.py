# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Fields of C(ansible_facts.gpu_fleet): the driver. Each is (path, types, meaning), as C(_facts_schema) reads it."""

from __future__ import annotations

FIELDS: tuple[tuple[str, str, str], ...] = (
    ("driver.packages", "null", "not known"),
    ("driver.packages[].name", "str", "packages of the driver and of what must have its version"),
    ("driver.packages[].version", "str, null", "null when not wholly installed"),
    ("driver.packages[].held", "bool", ""),
    ("driver.owner", "str, null", "`absent`, `nvidia`, `distro`, `runfile`, `gpu-operator`; null when packages are not known"),
    ("driver.flavour", "str, null", "`open`, `proprietary`"),
    ("driver.on_disk.<kernel>.version", "str, null", "of the module that depmod knows for this kernel"),
    ("driver.on_disk.<kernel>.flavour", "str, null", ""),
    ("driver.on_disk.<kernel>.path", "str", ""),
    ("driver.loaded", "null", "not loaded; else the fields below"),
    ("driver.loaded.version", "str, null", ""),
    ("driver.loaded.flavour", "str, null", ""),
    ("driver.loaded_modules[]", "str", "`nvidia`, `nvidia_uvm`, `gdrdrv`"),
    ("driver.user_space", "str, null", "version of `libnvidia-ml.so.1`"),
    ("driver.nouveau_loaded", "bool", ""),
    ("driver.fabric_manager", "null", "not installed; else the fields below"),
    ("driver.fabric_manager.version", "str, null", ""),
    ("driver.fabric_manager.active", "bool, null", ""),
    ("driver.persistence", "null", "the unit does not exist"),
    ("driver.persistence.active", "bool", ""),
    ("driver.holders", "null", "not known, as for an observer without root"),
    ("driver.holders[].pid", "int", "process with a device of the driver open"),
    ("driver.holders[].name", "str, null", ""),
    ("driver.holders[].unit", "str, null", "systemd unit it belongs to"),
    ("driver.holders[].uid", "int, null", "user it runs as"),
    ("driver.holders[].job", "null", "not known; else the fields below"),
    ("driver.holders[].job.kind", "str", "whose work it is: `slurm`, `pod`, `container`, `session`, `unit`"),
    ("driver.holders[].job.id", "str", "number of the Slurm job, UID of the pod, first twelve digits of the container, name of session or unit"),
    ("driver.holders[].job.step", "str, null", "step of the Slurm job"),
    ("driver.holders[].devices[]", "str", ""),
    ("driver.reboot_reasons[].id", "str", "`asked_by_packages`, `newer_kernel`, `other_module_loaded`, `nouveau_loaded`"),
    ("driver.reboot_reasons[].seen", "str", ""),
    ("volatile", "null", "the driver did not answer"),
    ("volatile.<address>.power_limit_w", "float, null", "settings that a reload loses"),
    ("volatile.<address>.mig", "str, null", ""),
    ("volatile.<address>.compute_mode", "str, null", ""),
    ("busy", "null", "not known: to be treated as busy"),
    ("busy.jobs[].pid", "int", "holders that are no service of the driver itself, Slurm jobs, and pods that were given GPUs"),
    ("busy.jobs[].name", "str, null", ""),
    ("busy.jobs[].unit", "str, null", ""),
    ("busy.jobs[].uid", "int, null", ""),
    ("busy.jobs[].job", "null", "not known; else the fields below"),
    ("busy.jobs[].job.kind", "str", "as of holders"),
    ("busy.jobs[].job.id", "str", ""),
    ("busy.jobs[].job.step", "str, null", ""),
    ("busy.jobs[].devices[]", "str", "none where a job runs that has no GPU open yet"),
    ("busy.holders", "int", "number of all holders"),
)
