# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maintainer scripts: the same steps that Debian's helpers, and systemd's macros for RPM, put into the real packages."""

from __future__ import annotations

from lab.vendor.table import Package

CONFIGURING = '[ "$1" = "configure" ] || [ "$1" = "abort-upgrade" ] || [ "$1" = "abort-deconfigure" ] || [ "$1" = "abort-remove" ]'

ADD_USER = """\
if [ "$1" = "configure" ] && ! getent passwd {user} >/dev/null; then
    adduser --system --group --no-create-home --home /nonexistent --gecos "NVIDIA Persistence Daemon" {user} >/dev/null
fi
"""
ENABLE_UNIT = """\
if {configuring}; then
    deb-systemd-helper unmask '{unit}' >/dev/null || true
    if deb-systemd-helper --quiet was-enabled '{unit}'; then
        deb-systemd-helper enable '{unit}' >/dev/null || true
    else
        deb-systemd-helper update-state '{unit}' >/dev/null || true
    fi
fi
if {configuring}; then
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
        if [ -n "$2" ]; then
            action=restart
        else
            action=start
        fi
        deb-systemd-invoke $action '{unit}' >/dev/null || true
    fi
fi
"""
STOP_UNIT = """\
if [ -z "${{DPKG_ROOT:-}}" ] && [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop '{unit}' >/dev/null || true
fi
"""
FORGET_UNIT = """\
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
fi
if [ "$1" = "purge" ] && [ -x "/usr/bin/deb-systemd-helper" ]; then
    deb-systemd-helper purge '{unit}' >/dev/null || true
fi
"""
BUILD_MODULES = """\
if [ "$1" = "configure" ]; then
    if [ -f /usr/lib/dkms/common.postinst ]; then
        /usr/lib/dkms/common.postinst {module} {version} "" "" "$2"
    else
        echo "ERROR: DKMS version is too old and {module} was not built with legacy DKMS support." >&2
        exit 1
    fi
fi
"""
REMOVE_MODULES = """\
case "$1" in
    remove | upgrade | deconfigure)
        if [ "$(dkms status -m {module} -v {version})" ]; then
            dkms remove -m {module} -v {version} --all
        fi
        ;;
esac
"""


def maintainer_scripts(package: Package) -> dict[str, str]:
    """Return the maintainer scripts of a package by name."""
    parts: dict[str, list[str]] = {"postinst": [], "prerm": [], "postrm": []}
    if package.user:
        parts["postinst"].append(ADD_USER.format(user=package.user))
    if package.dkms:
        words = {"module": package.dkms, "version": package.release.version}
        parts["postinst"].append(BUILD_MODULES.format(**words))
        parts["prerm"].append(REMOVE_MODULES.format(**words))
    if package.service:
        words = {"unit": package.service, "configuring": CONFIGURING}
        parts["postinst"].append(ENABLE_UNIT.format(**words))
        parts["prerm"].append(STOP_UNIT.format(**words))
        parts["postrm"].append(FORGET_UNIT.format(**words))
    return {name: "#!/bin/sh\nset -e\n" + "".join(texts) for name, texts in parts.items() if texts}


ADD_USER_EL = """\
getent group {user} >/dev/null || groupadd -r {user}
getent passwd {user} >/dev/null || \\
    useradd -r -g {user} -d /var/run/{user} -s /sbin/nologin -c "NVIDIA persistenced" {user}
"""
# Whether a build failed nobody learns from the package: its failure is swallowed.
BUILD_EL = """\
dkms add -m {module} -v {version} -q || :
dkms build -m {module} -v {version} -q || :
dkms install -m {module} -v {version} -q --force || :
"""
REMOVE_EL = "dkms remove -m {module} -v {version} -q --all || :\n"
ENABLE_EL = """\
if [ $1 -eq 1 ] && [ -x /usr/bin/systemctl ]; then
    systemctl --no-reload preset {unit} || :
fi
"""
STOP_EL = """\
if [ $1 -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now {unit} || :
fi
"""
RESTART_EL = """\
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
if [ $1 -ge 1 ] && [ -d /run/systemd/system ]; then
    systemctl try-restart {unit} || :
fi
"""


def scriptlets(package: Package) -> dict[str, str]:
    """Return the scripts of an RPM package by when they run."""
    parts: dict[str, list[str]] = {"pre": [], "post": [], "preun": [], "postun": []}
    if package.user:
        parts["pre"].append(ADD_USER_EL.format(user=package.user))
    if any("library" in row for row in package.files):
        parts["post"].append("/sbin/ldconfig\n")
        parts["postun"].append("/sbin/ldconfig\n")
    if package.dkms:
        words = {"module": package.dkms, "version": package.release.version}
        parts["post"].append(BUILD_EL.format(**words))
        parts["preun"].append(REMOVE_EL.format(**words))
    if package.service:
        parts["post"].append(ENABLE_EL.format(unit=package.service))
        parts["preun"].append(STOP_EL.format(unit=package.service))
        parts["postun"].append(RESTART_EL.format(unit=package.service))
    return {name: "".join(texts) for name, texts in parts.items() if texts}
