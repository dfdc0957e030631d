# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What runs under the Python of dnf itself, as a program of its own: it has dnf's bindings, and nothing of Ansible.

A request comes as JSON on standard input, the answer leaves as JSON on standard output: C({changes}), C({error}), or
C({locked}) where another dnf is at work.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import sys
import typing as t


class Refused(Exception):
    """What was asked for cannot be; the text says why."""


class Keys:
    """Which keys of repositories are trusted: of ours only the one with the right fingerprint, of others those that their owner configured."""

    def __init__(self, fingerprint: str | None) -> None:
        self.fingerprint = fingerprint

    def _confirm(self, _id: str, _userid: str, fingerprint: str, _url: str, _timestamp: int) -> bool:
        return self.trusts(fingerprint)

    def trusts(self, fingerprint: str) -> bool:
        return self.fingerprint is None or fingerprint.replace(" ", "").upper() == self.fingerprint


class Dnf:
    """A loaded base of dnf: the host's packages, and what the repositories offer."""

    def __init__(self, request: dict[str, t.Any]) -> None:
        self.request = request
        self.dnf = importlib.import_module("dnf")
        self.base = self.dnf.Base()
        self.keys: dict[str, Keys] = {}

    def load(self) -> None:
        """Read the configuration and the repositories; every repository has to answer."""
        conf, request = self.base.conf, self.request
        conf.read()
        conf.substitutions.update_from_etc(conf.installroot, varsdir=conf.varsdir)
        conf.releasever = conf.releasever or self.dnf.rpm.detect_releasever(conf.installroot)
        conf.exit_on_lock, conf.assumeyes, conf.assumeno = True, False, False
        if request["verb"] != "upgrade":
            # Nothing goes that nobody asked about, and no kernel makes room for another.
            conf.clean_requirements_on_remove, conf.installonly_limit, conf.install_weak_deps, conf.best = False, 0, False, True
        for name, value in request["settings"].items():
            setattr(conf, name, value)
        if not request["private"]:
            self.base.setup_loggers()
        # Locks of versions are the caller's, who moves them along, and nothing is written for a look; others may be needed to reach repositories.
        unwanted = () if request["verb"] == "upgrade" else ("versionlock",)
        self.base.init_plugins([*unwanted, *(("generate_completion_cache", "product-id") if request["private"] else ())])
        self.base.pre_configure_plugins()
        self.base.read_all_repos()
        self.base.configure_plugins()
        for repo in self.base.repos.iter_enabled():
            repo.skip_if_unavailable = False
            repo.metadata_expire = 0 if request["refresh"] else -1
            self.keys[repo.id] = Keys(request["fingerprints"].get(repo.id))
            repo._set_key_import(self.keys[repo.id])
        self.base.fill_sack(load_system_repo=not request["alone"])
        self.streams()

    def streams(self) -> None:
        """See that the wanted stream is the one that is enabled; where that is staged it is made so, for this process alone."""
        if not self.request["stream"]:
            return
        name, _colon, wanted = self.request["stream"].partition(":")
        container = self.base._moduleContainer
        known = sorted({module.getStream() for module in container.getModulePackages() if module.getName() == name})
        if wanted not in known:
            raise Refused("no repository has the stream %s:%s; there are %s" % (name, wanted, ", ".join(known) or "none of that module"))
        enabled = container.getEnabledStream(name)
        # What an upgrade does, it does with the stream that is enabled, whichever that is.
        if enabled == wanted or (self.request["alone"] and not enabled) or (self.request["verb"] == "upgrade" and not self.request["private"]):
            return
        if not self.request["staged"]:
            raise Refused(
                "refused: of the module %s %s is enabled, and the packages belong to the stream %s; /etc/dnf/modules.d/%s.module has to name that one"
                % (name, "the stream " + enabled if enabled else "no stream", wanted, name)
            )
        self.dnf.module.module_base.ModuleBase(self.base).enable(["%s:%s" % (name, wanted)])

    def mark(self) -> None:
        """Ask for every wanted package in its exact version."""
        wanted = sorted(self.request["wanted"].items())
        absent = [name + ("-" + version if version else "") for name, version in wanted if not self.want(name, version)]
        if absent:
            raise Refused("not in any repository: %s" % ", ".join(absent) + self.hidden(absent))
        for package in self.base.sack.query().installed().filter(name=self.request["remove"]):
            self.base.package_remove(package)

    def want(self, name: str, version: str) -> bool:
        """Ask for one package; tells whether there is one."""
        query = self.base.sack.query()
        if version:
            found = query.filter(name=name, evr=version, arch=[self.base.conf.basearch, "noarch"])
        else:
            found = self.dnf.subject.Subject(name).get_best_query(self.base.sack, with_provides=False, with_filenames=False)
            found = found.filter(arch=[self.base.conf.basearch, "noarch"])
            if found.installed():
                return True
            found = found.latest()
        present = query.installed().filter(name=name)
        if found.installed():
            # An interrupted transaction can leave two versions of one package.
            for package in present:
                if package not in found.installed():
                    self.base.package_remove(package)
            return True
        available = list(found.available())[:1]
        for package in available if version or not present else ():
            self.place(package, list(present))
        return bool(available)

    def place(self, package: t.Any, present: list[t.Any]) -> None:
        """Ask for a package in place of those of its name that are here."""
        if not present or self.is_multiple(package):
            self.base.package_install(package)
        elif max(present) > package:
            self.base.package_downgrade(package, strict=True)
        else:
            self.base.package_upgrade(package)

    def is_multiple(self, package: t.Any) -> bool:
        """Whether a package is one of which several versions are installed side by side, as those of kernels are."""
        return bool(self.base._get_installonly_query(self.base.sack.query().filter(pkg=[package])))

    def hidden(self, absent: list[str]) -> str:
        """An addition to a message, where module streams keep a package from being seen."""
        hawkey = importlib.import_module("hawkey")
        names = {"%s-%s" % (one.name, one.evr) for one in self.base.sack.query(flags=hawkey.IGNORE_MODULAR_EXCLUDES).available()}
        covered = [name for name in absent if name in names]
        return "; other module streams have %s" % ", ".join(covered) if covered else ""

    def resolve(self, erasing: bool = True) -> list[dict[str, t.Any]]:
        """What the transaction does, by name; of what is installed in several versions the name holds the version."""
        try:
            self.base.resolve(allow_erasing=erasing)
        except self.dnf.exceptions.DepsolveError as error:
            raise Refused("dnf finds no way: %s" % " ".join(str(error).split())) from None
        sets = (getattr(self.base.transaction, name, None) or () for name in ("install_set", "remove_set"))
        new, old = ({self.label(package): package for package in packages} for packages in sets)
        changes = []
        for name in sorted({*new, *old}):
            before: t.Any = old.get(name)
            after: t.Any = new.get(name) or self.remaining(before)
            if before is not None and after is not None and before.evr == after.evr:
                continue
            changes.append({
                "name": name, "from": before.evr if before else None, "to": after.evr if after else None,
                "action": "install" if before is None else "remove" if after is None else "change",
                "lower": bool(before and after and after.evr_lt(before)), "package": (after or before).name,
            })
        return changes

    def label(self, package: t.Any) -> str:
        """What a package is called in an answer."""
        if self.is_multiple(package):
            return "%s-%s" % (package.name, package.evr)
        return str(package.name if package.arch in (self.base.conf.basearch, "noarch") else "%s.%s" % (package.name, package.arch))

    def remaining(self, removed: t.Any) -> t.Any:
        """Another version of a package that stays when one goes, as after a transaction that was cut off."""
        if removed is None or self.is_multiple(removed):
            return None
        same = self.base.sack.query().installed().filter(name=removed.name, arch=removed.arch)
        return next((package for package in same if package.evr != removed.evr), None)

    def download(self, packages: list[t.Any]) -> None:
        """Bring packages onto the host and check each one's signature where its repository asks for that."""
        self.base.download_packages(packages)
        for package in packages:
            code, complaint = self.base.package_signature_check(package)
            if code == 1:
                self.base.package_import_key(package, fullaskcb=lambda key, keys=self.keys[package.repoid]: keys.trusts(key["fingerprint"]))
            elif code:
                raise Refused("the signature of %s is not to be trusted: %s" % (package, complaint))

    def collect(self) -> dict[str, t.Any]:
        """Copy the files of exact versions into a folder, whichever stream they belong to; C({lacking}) are those that no repository has."""
        hawkey = importlib.import_module("hawkey")
        every = self.base.sack.query(flags=hawkey.IGNORE_MODULAR_EXCLUDES).available()
        found, lacking = [], []  # type: list[t.Any], list[t.Any]
        for label, version in sorted(self.request["wanted"].items()):
            name, _dot, arch = label.rpartition(".")
            plain = label[:-len(version) - 1] if label.endswith("-" + version) else label
            own = every.filter(name=plain, evr=version, arch=[self.base.conf.basearch, "noarch"])
            some = list(own or every.filter(name=name, evr=version, arch=arch))[:1]
            (found if some else lacking).extend(some or [label])
        self.download(found)
        for package in found:
            shutil.copy(package.localPkg(), self.request["folder"])
        return {"changes": [], "lacking": lacking}

    def exchange(self) -> dict[str, t.Any]:
        """Install package files and remove packages in one transaction, with nothing but what is on this host."""
        base, request = self.base, self.request
        base.conf.read()
        base.conf.clean_requirements_on_remove, base.conf.installonly_limit, base.conf.exit_on_lock = False, 0, True
        # Neither what is locked or excluded elsewhere, nor what would ask a server, has a say in this.
        base.conf.installroot, base.conf.plugins, base.conf.disable_excludes = request["root"], False, ["all"]
        base.setup_loggers()
        base.fill_sack(load_system_repo=True, load_available_repos=False)
        for package in base.add_remote_rpms(request["files"], strict=True):
            present = list(base.sack.query().installed().filter(name=package.name, arch=[package.arch, "noarch"]))
            same = [other for other in present if other.evr == package.evr]
            others = [] if self.is_multiple(package) else [other for other in present if other.evr != package.evr]
            if same and others:
                # A transaction that was cut off: whether the scripts of the new one have run is not known.
                base.package_reinstall(package)
                for other in others:
                    base.package_remove(other)
            elif not same:
                self.place(package, others)
        for package in [one for one in base.sack.query().installed() if self.label(one) in request["remove"]]:
            base.package_remove(package)
        changes = self.resolve()
        unasked = [change["name"] for change in changes if change["action"] == "remove" and change["name"] not in request["remove"]]
        if unasked:
            raise Refused("refused: dnf would also remove %s" % ", ".join(unasked))
        if not request["dry"]:
            base.do_transaction()
        return {"changes": changes}

    def upgrade(self) -> dict[str, t.Any]:
        """What a full upgrade would do; C(locking) is whether the plugin that keeps locks takes part."""
        found: dict[str, t.Any] = {"changes": [], "locking": any(one.name == "versionlock" for one in self.base._plugins.plugins)}
        # What cannot be upgraded stops the whole of it, unless somebody says that the best is not needed.
        for best in (self.base.conf.best, False):
            self.base.reset(goal=True)
            self.base.conf.best = best
            self.base.upgrade_all()
            with contextlib.suppress(Refused):
                return {**found, "changes": self.resolve(erasing=False)}
        return found

    def run(self) -> dict[str, t.Any]:
        """Do what was asked for."""
        verb = self.request["verb"]
        if verb == "exchange":
            return self.exchange()
        self.load()
        if verb in ("load", "collect", "upgrade"):
            return {"changes": []} if verb == "load" else self.collect() if verb == "collect" else self.upgrade()
        self.mark()
        changes = self.resolve()
        if verb in ("fetch", "install"):
            if changes != self.request["expected"]:
                raise Refused("what dnf would do has changed since it was looked at; run again")
            self.download(list(self.base.transaction.install_set) if self.base.transaction else [])
        if verb == "install":
            self.base.do_transaction()
        return {"changes": changes}


def answer(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """The answer to a request."""
    work = Dnf(request)
    try:
        return work.run()
    except work.dnf.exceptions.LockError as error:
        return {"locked": " ".join(str(error).split())}
    except (Refused, OSError, work.dnf.exceptions.Error) as error:
        return {"error": " ".join(str(error).split())}
    finally:
        work.base.close()


def main() -> None:
    """Answer the one request."""
    request = json.load(sys.stdin)
    said = os.fdopen(os.dup(1), "w")
    # Whatever packages' scripts print must not get into the answer, nor fail when nobody reads it any more.
    os.dup2(2, 1)
    try:
        found = answer(request)
    except Exception as error:  # pylint: disable=broad-except
        found = {"error": "%s: %s" % (type(error).__name__, error)}
    said.write(json.dumps(found) + "\n")
    said.flush()


if __name__ == "__main__":
    main()
