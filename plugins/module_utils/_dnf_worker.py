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

import importlib
import json
import os
import sys
import typing as t

# Plugins that write on the host what they see.
WRITING = ("generate_completion_cache", "product-id")


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
        release = self.dnf.rpm.detect_releasever(conf.installroot)
        if release and not conf.releasever:
            conf.releasever = release
        # Nothing goes that nobody asked about, and no kernel makes room for another.
        conf.clean_requirements_on_remove, conf.installonly_limit, conf.install_weak_deps = False, 0, False
        conf.best, conf.exit_on_lock, conf.assumeyes, conf.assumeno = True, True, False, False
        for name, value in request["settings"].items():
            setattr(conf, name, value)
        if not request["private"]:
            self.base.setup_loggers()
        # Locks of versions are the caller's, who moves them along; other plugins (entitlements) may be needed to reach repositories.
        self.base.init_plugins(["versionlock", *(WRITING if request["private"] else ())])
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
        """See that the wanted stream is the one that is enabled; in private it is made so, for this process alone."""
        if not self.request["stream"]:
            return
        name, _colon, wanted = self.request["stream"].partition(":")
        container = self.base._moduleContainer
        if wanted not in {module.getStream() for module in container.getModulePackages() if module.getName() == name}:
            known = sorted({module.getStream() for module in container.getModulePackages() if module.getName() == name})
            raise Refused("no repository has the stream %s:%s; there are %s" % (name, wanted, ", ".join(known) or "none of that module"))
        enabled = container.getEnabledStream(name)
        if enabled == wanted or (self.request["alone"] and not enabled):
            return
        if not self.request["private"]:
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
        available = list(found.available())
        if not available:
            return False
        package = available[0]
        if present and not version:
            return True
        if present and max(present) > package:
            self.base.package_downgrade(package, strict=True)
        elif present:
            self.base.package_upgrade(package)
        else:
            self.base.package_install(package)
        return True

    def hidden(self, absent: list[str]) -> str:
        """An addition to a message, where module streams keep a package from being seen."""
        hawkey = importlib.import_module("hawkey")
        every = self.base.sack.query(flags=hawkey.IGNORE_MODULAR_EXCLUDES).available()
        names = {"%s-%s" % (package.name, package.evr) for package in every}
        covered = [name for name in absent if name in names]
        return "; other module streams have %s" % ", ".join(covered) if covered else ""

    def resolve(self) -> list[dict[str, t.Any]]:
        """What the transaction does, by name."""
        try:
            self.base.resolve(allow_erasing=True)
        except self.dnf.exceptions.DepsolveError as error:
            raise Refused("dnf finds no way: %s" % " ".join(str(error).split())) from None
        transaction = self.base.transaction or ()
        basearch = self.base.conf.basearch
        new: dict[str, t.Any] = {}
        old: dict[str, t.Any] = {}
        for sort, packages in ((new, getattr(transaction, "install_set", ())), (old, getattr(transaction, "remove_set", ()))):
            for package in packages:
                sort[package.name if package.arch in (basearch, "noarch") else "%s.%s" % (package.name, package.arch)] = package
        changes = []
        for name in sorted({*new, *old}):
            before, after = old.get(name), new.get(name) or self.remaining(old.get(name))
            if before is not None and after is not None and before.evr == after.evr:
                continue
            changes.append({
                "name": name, "from": before.evr if before else None, "to": after.evr if after else None,
                "action": "install" if before is None else "remove" if after is None else "change",
                "lower": bool(before and after and after.evr_lt(before)),
            })
        return changes

    def remaining(self, removed: t.Any) -> t.Any:
        """Another version of a package that stays when one goes, as after a transaction that was cut off."""
        if removed is None:
            return None
        same = self.base.sack.query().installed().filter(name=removed.name, arch=removed.arch)
        return next((package for package in same if package.evr != removed.evr), None)

    def download(self) -> None:
        """Bring the packages onto the host and check each one's signature where its repository asks for that."""
        packages = list(self.base.transaction.install_set) if self.base.transaction else []
        self.base.download_packages(packages)
        for package in packages:
            code, complaint = self.base.package_signature_check(package)
            if code == 1:
                keys = self.keys[package.repoid]
                self.base.package_import_key(package, fullaskcb=lambda key, keys=keys: keys.trusts(key["fingerprint"]))
            elif code:
                raise Refused("the signature of %s is not to be trusted: %s" % (package, complaint))

    def run(self) -> dict[str, t.Any]:
        """Do what was asked for."""
        self.load()
        if self.request["alone"]:
            return {"changes": []}
        self.mark()
        changes = self.resolve()
        verb = self.request["verb"]
        if verb in ("fetch", "install"):
            if changes != self.request["expected"]:
                raise Refused("what dnf would do has changed since it was looked at; run again")
            self.download()
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
    said.write(json.dumps(found))
    said.flush()


if __name__ == "__main__":
    main()
