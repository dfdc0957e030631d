# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What a change of the driver needs of the host's package manager, be it apt or dnf."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import (
    _apt,
    _apt_back,
    _archives,
    _dnf,
    _dnf_back,
    _host,
    _lock_list,
    _locks,
    _rpm_archives,
    _software,
)
from ansible_collections.gpu.fleet.plugins.module_utils._system import System

Failed = _apt.Failed
Change = _apt.Change
Request = t.Dict[str, t.Any]
LOOK_SECONDS = 60.0


class Found(t.NamedTuple):
    """What a simulation says, and who can fetch the files that it speaks of."""

    changes: t.List[Change]
    source: t.Any


class AptManager:
    """apt and dpkg."""

    def archives(self, folder: str) -> _archives.Archives:
        """The store of package files."""
        return _archives.Archives(folder)

    def missing(self, wanted: dict[str, str]) -> list[str]:
        """Names of wanted packages that are not installed in the wanted version."""
        return _apt.missing(wanted)

    def selections(self) -> t.Mapping[str, tuple[str, bool]]:
        """Version and hold of each package that is wholly installed."""
        return _apt.selections()

    def held(self, names: t.Iterable[str]) -> list[str]:
        """Those of the packages that are on hold."""
        return _apt.held(names)

    def hold(self, names: t.Iterable[str], lock_timeout: int) -> None:
        """Put packages on hold that are installed and are not."""
        _apt.hold(names, lock_timeout)

    def unpacked(self) -> set[str]:
        """Names of the packages of which more than settings is here, be they half installed."""
        return _apt.unpacked()

    def cut_off(self) -> bool:
        """Whether a run of the package manager had no end."""
        return _apt.cut_off()

    def locks(self) -> dict[str, str]:
        """Our locks of versions that go with the packages; apt has its pins in a file."""
        return {}

    def lock(self, locks: dict[str, str]) -> None:
        """Have these locks and no others."""

    def exact(self, _packages: dict[str, str]) -> dict[str, str]:
        """Locks for those of the packages that belong to a driver."""
        return {}

    def foresee(self, request: Request, repository: t.Any, lock_timeout: int) -> list[Change]:
        """What a change would do, before anything of it is set up on the host."""
        # The engine has no Ansible, and needs none of this.
        from ansible_collections.gpu.fleet.plugins.module_utils import _apt_private

        with _apt_private.PrivateApt(repository, lock_timeout) as apt:
            apt.update()
            changes = apt.simulate(request["packages"], request["may_remove"], request["absent"])
        _apt.judge(changes, request["packages"], request["may_remove"])
        return changes

    @contextlib.contextmanager
    def ready(self, request: Request, lock_timeout: int) -> t.Iterator[Found]:
        """Simulate a change on the host as it is set up; the files can be fetched as long as the context lasts."""
        apt = _apt.Apt(lock_timeout)
        apt.repair()
        apt.update()
        changes = apt.simulate(request["packages"], request["may_remove"], request["absent"])
        _apt.judge(changes, request["packages"], request["may_remove"])
        yield Found(changes, apt)

    def foresee_back(self, archives: _archives.Archives, wanted: Request, before: Request, source: t.Any) -> None:
        """See, on the host as it will be after a change, that the files that are kept lead back; raises Failed."""
        _apt_back.foresee(archives, wanted, before, source)

    def see_back(self, archives: _archives.Archives, former: Request, lock_timeout: int) -> None:
        """See the same on the host as it is."""
        _apt_back.see(archives, former, _apt.Apt(lock_timeout))

    def exchange(self, files: list[str], gone: list[str], afresh: list[str] | None, lock_timeout: int) -> None:
        """Install package files and remove packages; C(afresh) are those that come from another supplier, None where it is the same one."""
        apt = _apt.Apt(lock_timeout)
        apt.repair()
        apt.exchange(files, gone, afresh)


class DnfManager(AptManager):
    """dnf and rpm."""

    def archives(self, folder: str) -> _archives.Archives:
        return _rpm_archives.RpmArchives(folder)

    def missing(self, wanted: dict[str, str]) -> list[str]:
        return _dnf.missing(wanted)

    def selections(self) -> t.Mapping[str, tuple[str, bool]]:
        return {name: (evr, False) for name, evr, _full in _dnf.installed()}

    def held(self, _names: t.Iterable[str]) -> list[str]:
        return []

    def hold(self, _names: t.Iterable[str], _lock_timeout: int) -> None:
        # What keeps packages here are its locks.
        pass

    def unpacked(self) -> set[str]:
        return set(_dnf.versions())

    def cut_off(self) -> bool:
        # What a killed rpm leaves are two versions of one package, which count as missing.
        return False

    def locks(self) -> dict[str, str]:
        return _locks.ours(_lock_list.read())

    def lock(self, locks: dict[str, str]) -> None:
        _lock_list.put(locks)

    def exact(self, _packages: dict[str, str]) -> dict[str, str]:
        return {name: _locks.line(name, version) for name, version in _packages.items() if _software.is_driver(name)}

    def foresee(self, request: Request, repository: t.Any, lock_timeout: int) -> list[Change]:
        with _dnf.Dnf(repository, lock_timeout, private=True) as dnf:
            return _dnf.judge(dnf.simulate(request["packages"], request["absent"]), request["packages"], request["may_remove"])

    @contextlib.contextmanager
    def ready(self, request: Request, lock_timeout: int) -> t.Iterator[Found]:
        with _dnf.Dnf(request["repository"], lock_timeout, private=False, staged=True) as dnf:
            yield Found(_dnf.judge(dnf.simulate(request["packages"], request["absent"]), request["packages"], request["may_remove"]), dnf)

    def foresee_back(self, archives: _archives.Archives, wanted: Request, before: Request, source: t.Any) -> None:
        _dnf_back.foresee(archives, wanted, before, source)

    def see_back(self, archives: _archives.Archives, former: Request, lock_timeout: int) -> None:
        with _dnf.Dnf(None, lock_timeout, private=False) as dnf:
            dnf.exchange(archives.paths(former["archives"]), sorted(self.unpacked() & set(former["absent"])), dry=True)

    def exchange(self, files: list[str], gone: list[str], _afresh: list[str] | None, lock_timeout: int) -> None:
        # rpm has no second way to replace a package, and a plan asks for none.
        doubtful = _dnf_back.cut_off(files)
        if doubtful:
            _dnf_back.rpm(*_dnf_back.WORDS, "--erase", *doubtful)
        with _dnf.Dnf(None, lock_timeout, private=False) as dnf:
            dnf.exchange(files, gone)


APT = AptManager()


def here(root: str = "/") -> AptManager:
    """The package manager of this host."""
    return DnfManager() if _host.package_manager(System(root, LOOK_SECONDS)) == "dnf" else AptManager()
