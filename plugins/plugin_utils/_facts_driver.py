# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Fields of C(ansible_facts.gpu_fleet): the driver. Each is (path, types, meaning), as C(_facts_schema) reads it."""

from __future__ import annotations

INITRAMFS = (
    "files of `/etc/modprobe.d`, the folder itself, and where the driver was asked for in the initramfs its module, that were modified after it. "
    "Dates are compared and nothing is unpacked: a package's file that carries the date of its making is not noticed, but its folder is"
)
REASONS = (
    "what is pending until a reboot or a reload: `asked_by_packages`, `asked_by_dnf`, `newer_kernel`, `other_module_loaded`, `other_user_space`, "
    "`pending_module_options`, `pending_kernel_options`, `pending_nic_settings`, `nouveau_loaded`, `nova_core_loaded`, `nova_drm_loaded`. "
    "Whether it takes the one, the other, or neither is not said here. Packages that ask are rare on minimal images; their silence means nothing"
)
UNKNOWN = "not known: `problems` says why"

FIELDS: tuple[tuple[str, str, str], ...] = (
    ("driver.packages", "null", "not known"),
    ("driver.packages[].name", "str", "packages of the driver and of what must have its version"),
    ("driver.packages[].version", "str, null", "null when not wholly installed"),
    ("driver.packages[].held", "bool", ""),
    ("driver.owner", "str, null", "`absent`, `nvidia`, `distro`, `runfile`, `image`, `gpu-operator`; null when packages are not known"),
    ("driver.flavour", "str, null", "`open`, `proprietary`"),
    ("driver.on_disk.<kernel>.version", "str, null", "of the module that depmod knows for this kernel"),
    ("driver.on_disk.<kernel>.flavour", "str, null", ""),
    ("driver.on_disk.<kernel>.path", "str", ""),
    ("driver.on_disk.<kernel>.signer", "str, null", "who signed it; null for an unsigned module"),
    ("driver.loaded", "null", "not loaded; else the fields below"),
    ("driver.loaded.version", "str, null", ""),
    ("driver.loaded.flavour", "str, null", ""),
    ("driver.loaded_modules[]", "str", "`nvidia`, `nvidia_uvm`, `gdrdrv`"),
    ("driver.user_space", "str, null", "version of `libnvidia-ml.so.1`"),
    ("driver.libcuda", "str, null", "version of `libcuda.so.1`"),
    ("driver.gsp_firmware[]", "str", "driver versions whose firmware is below `/lib/firmware/nvidia`; a module loads that of its own version only"),
    ("driver.nouveau_loaded", "bool", ""),
    ("driver.rivals[].module", "str", "`nouveau`, `nova_core`, `nova_drm`: other drivers for the GPUs that are loaded or bound"),
    ("driver.rivals[].bound[]", "str", "PCI addresses"),
    ("driver.kept_out[]", "str", "of `nvidia` and its rivals: modules that modprobe's files or the kernel's command line keep from being loaded"),
    ("driver.module_options", "null", UNKNOWN),
    ("driver.module_options[].module", "str", "options for modules of the driver: of each the one that modprobe takes last"),
    ("driver.module_options[].option", "str", ""),
    ("driver.module_options[].value", "str", "as it is written"),
    ("driver.module_options[].file", "str", "`/proc/cmdline` is the kernel's command line"),
    ("driver.module_options[].running", "str, null", "what the loaded module has; null when it is not loaded or does not say"),
    ("driver.kernel_options", "null", UNKNOWN),
    ("driver.kernel_options.running[]", "str", "words of the kernel's command line"),
    ("driver.kernel_options.next_boot", "null", "not known, as without a boot loader's menu"),
    ("driver.kernel_options.next_boot[]", "str", "what the menu's entry for the next boot has"),
    ("driver.kernel_options.configured", "null", "no `/etc/default/grub`, or GRUB does not make its menu from it"),
    ("driver.kernel_options.configured[]", "str", "what `/etc/default/grub` and its folder ask for; in the menu only once that was written anew"),
    ("driver.kernels", "null", UNKNOWN),
    ("driver.kernels.<kernel>.installed", "bool", "has an image to boot; listed are these, the running one, and the next one"),
    ("driver.kernels.<kernel>.headers", "bool", "a module could be built for it"),
    ("driver.kernels.<kernel>.initramfs", "null", "none under the names that distributions use; else the fields below"),
    ("driver.kernels.<kernel>.initramfs.path", "str", ""),
    ("driver.kernels.<kernel>.initramfs.older_than[]", "str", INITRAMFS),
    ("driver.next_boot", "null", UNKNOWN),
    ("driver.next_boot.kernel", "str, null", "release; null when it is not known"),
    ("driver.next_boot.source", "str, null", "where that stands: GRUB's `grub.cfg`, the folder of entries, or `newest` where there is no menu"),
    ("driver.next_boot.once", "bool", "chosen for the next boot alone, as by `grub-reboot`"),
    ("driver.next_boot.module", "str, null", "version of the driver's module for that kernel; null when it has none"),
    ("driver.dkms", "null", "dkms did not answer; an empty list where it is not installed"),
    ("driver.dkms[].module", "str", "all of dkms's modules"),
    ("driver.dkms[].version", "str", ""),
    ("driver.dkms[].kernel", "str, null", "null for a source that was never built"),
    ("driver.dkms[].architecture", "str, null", ""),
    ("driver.dkms[].state", "str", "`added`, `built`, `installed`, `installed-weak`, `broken`"),
    ("driver.dkms[].notes[]", "str", "such as `WARNING! Diff between built and installed module!`, `original_module exists`"),
    ("driver.dkms_key", "null", "dkms has no key to sign with; else the fields below"),
    ("driver.dkms_key.path", "str", "its certificate"),
    ("driver.dkms_key.enrolled", "bool, null", "whether shim's list of the owner's keys has it; null where the firmware has no such variables"),
    ("driver.fabric_manager", "null", "not installed; else the fields below"),
    ("driver.fabric_manager.version", "str, null", ""),
    ("driver.fabric_manager.active", "bool, null", ""),
    ("driver.persistence", "null", "the unit does not exist"),
    ("driver.persistence.active", "bool", ""),
    ("driver.holders", "null", "not known, as for an observer without root"),
    ("driver.holders[].pid", "int", "process with a device of the driver open"),
    ("driver.holders[].name", "str, null", ""),
    ("driver.holders[].unit", "str, null", "systemd unit it belongs to"),
    ("driver.holders[].devices[]", "str", ""),
    ("driver.nic_settings", "null", "no tool of the adapters' vendor (`mlxconfig`, `mstconfig`) is installed, or no adapter"),
    ("driver.nic_settings.<address>[].name", "str", "settings of the adapter that its next start will change"),
    ("driver.nic_settings.<address>[].current", "str", ""),
    ("driver.nic_settings.<address>[].next_boot", "str", ""),
    ("driver.reboot_reasons", "null", "not known, which is not the same as none"),
    ("driver.reboot_reasons[].id", "str", REASONS),
    ("driver.reboot_reasons[].seen", "str", "both sides of the difference"),
    ("owners.driver", "str, null", "as `driver.owner`"),
    ("owners.rdma", "str, null", "`doca`, `mlnx_ofed`, `inbox`, `absent`"),
    ("owners.fabric_manager", "str, null", "`nvidia`, `distro`, `runfile`, `absent`"),
    ("updates.holds", "null", "packages are not known"),
    ("updates.holds[]", "str", "packages on hold, of any kind"),
    ("updates.pins[].file", "str", "apt's preferences that concern GPU packages, by name or by where they come from"),
    ("updates.pins[].packages", "str", ""),
    ("updates.pins[].pin", "str", ""),
    ("updates.pins[].priority", "int, null", ""),
    ("updates.versionlock[]", "str", "dnf's locks as they are written"),
    ("updates.automatic[].tool", "str", "`unattended-upgrades`, `dnf-automatic`: those installed"),
    ("updates.automatic[].enabled", "bool, null", "by its settings and its timer"),
    ("updates.automatic[].excludes[]", "str", "expressions of `Package-Blacklist`, or dnf's patterns"),
    ("updates.automatic[].origins[]", "str", "where `unattended-upgrades` takes upgrades from"),
    ("updates.automatic[].exposed", "null", "packages are not known"),
    ("updates.automatic[].exposed[]", "str", "installed GPU packages, neither held, locked nor excluded; what the origins offer is not looked into"),
    ("volatile", "null", "the driver did not answer"),
    ("volatile.<address>.power_limit_w", "float, null", "settings that a reload loses"),
    ("volatile.<address>.mig", "str, null", ""),
    ("volatile.<address>.compute_mode", "str, null", ""),
    ("busy", "null", "not known: to be treated as busy"),
    ("busy.jobs[].pid", "int", "holders that are no service of the driver itself"),
    ("busy.jobs[].name", "str, null", ""),
    ("busy.jobs[].unit", "str, null", ""),
    ("busy.jobs[].devices[]", "str", ""),
    ("busy.holders", "int", "number of all holders"),
)
