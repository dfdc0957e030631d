# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The order of a change of driver, and the way back. What the steps do to a host is in C(_driver_steps); this file knows no host.

A transaction goes forward through STEPS towards C(wanted). When a step fails it turns and goes through the same steps towards C(before), what
was there at the start. It ends as C(done), as C(rolled_back) or, when the way back fails too, as C(needs_attention). Where only a boot helps it
ends for now as C(waiting_for_reboot) and goes on in the next boot. Every step can be done again: one that was cut off is.

The record::

  schema, id         version of this form; name of the transaction
  status             running, waiting_for_reboot, done, rolled_back, needs_attention
  direction, step    forward or back; the step that is under way, or that failed
  reason             why it turned, for people; null while all is well
  waits_for          what only a boot can do; null while it does not wait
  failed_step        the step that made it turn
  mode               reload (the module is taken out) or reboot
  undoes             id of the change whose way back this one is; null for one that goes somewhere new
  may_reboot         whether the operator agreed to a reboot
  boot_id            boot in which the steps so far were done
  asked_in           boot that was to end in a reboot; null before one was asked for
  wanted, before     states of a host, in the words of _driver_steps
  settings           programs that give the GPUs their volatile settings back
  services           units that ran before and are to run again
  own                units that may be stopped, whether they ran before or have come to run since; null in a record of an earlier release
  history            {step, direction, outcome, at}, seconds since the epoch
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._record import SCHEMA, Record, Store

STEPS = ("quiesce", "unload", "packages", "build", "boot", "load", "start", "settings", "verify")
FORWARD, BACK = "forward", "back"
RUNNING, WAITING, DONE, ROLLED_BACK, NEEDS_ATTENTION = "running", "waiting_for_reboot", "done", "rolled_back", "needs_attention"
UNFINISHED = (RUNNING, WAITING)
MOST_HISTORY = 200


class StepFailed(Exception):
    """A step could not be done; its text is for the operator."""


class Refused(Exception):
    """The transaction cannot begin; nothing was changed."""


class Steps(t.Protocol):
    """What a transaction needs of a host; each method but the first two raises StepFailed."""

    def boot_id(self) -> str: ...

    def stale(self, state: t.Dict[str, t.Any]) -> t.Optional[str]:
        """What is loaded and is not the state's driver, or None: then no boot is needed."""

    def quiesce(self, own: t.List[str]) -> None: ...

    def unload(self) -> None: ...

    def packages(self, state: t.Dict[str, t.Any], other: t.Dict[str, t.Any]) -> None: ...

    def hold(self, state: t.Dict[str, t.Any]) -> None: ...

    def build(self, state: t.Dict[str, t.Any]) -> None: ...

    def load(self, state: t.Dict[str, t.Any]) -> None: ...

    def start(self, state: t.Dict[str, t.Any], services: t.List[str], own: t.List[str]) -> None: ...

    def settings(self, commands: t.List[t.List[str]]) -> None: ...

    def verify(self, state: t.Dict[str, t.Any]) -> None: ...


def new(
    name: str, request: t.Dict[str, t.Any], wanted: t.Dict[str, t.Any], before: t.Dict[str, t.Any], services: t.List[str],
    undoes: t.Optional[str] = None,
) -> Record:
    """The record of a transaction that is about to begin; of the request count C(mode), C(may_reboot), C(settings), and C(own)."""
    return {
        "schema": SCHEMA,
        "id": name,
        "status": RUNNING,
        "direction": FORWARD,
        "step": STEPS[0],
        **dict.fromkeys(("reason", "failed_step", "waits_for", "boot_id", "asked_in")),
        "undoes": undoes,
        "mode": request["mode"],
        "may_reboot": request["may_reboot"],
        "wanted": wanted,
        "before": before,
        "settings": request["settings"],
        "services": services,
        "own": request.get("own", services),
        "history": [],
    }


def own(record: Record) -> t.List[str]:
    """The units that may be stopped, in this order."""
    found: t.List[str] = record.get("own") or record["services"]
    return found


class Transaction:
    """One transaction under way."""

    def __init__(self, store: Store, host: Steps, record: Record) -> None:
        self.store = store
        self.host = host
        self.record = record
        # Set from outside, by a shutdown: the present step is finished, and the next boot goes on.
        self.stopping = False

    @property
    def target(self) -> t.Dict[str, t.Any]:
        """The state that the transaction is on its way to."""
        found: t.Dict[str, t.Any] = self.record["wanted" if self.record["direction"] == FORWARD else "before"]
        return found

    @property
    def origin(self) -> t.Dict[str, t.Any]:
        found: t.Dict[str, t.Any] = self.record["before" if self.record["direction"] == FORWARD else "wanted"]
        return found

    def run(self) -> Record:
        """Go on from where the record says until the transaction ends or waits for a boot."""
        record, boot = self.record, self.host.boot_id()
        self.note("resumed" if record["history"] else "begun")
        if record["status"] == RUNNING and record["boot_id"] not in (None, boot):
            # A boot that nobody asked for: services run again, the old module may be loaded, settings are lost.
            record["step"] = STEPS[0]
        record.update(status=RUNNING, boot_id=boot)
        while self.record["status"] == RUNNING and not self.stopping:
            # Announced before it is done: whoever finds this record does the step again.
            self.store.write(self.record)
            try:
                waits = self.act(self.record["step"])
            except Exception as error:  # pylint: disable=broad-except
                # Also what nobody foresaw: a full disk, a program that is gone. The host must not stay between two drivers.
                self.fail(str(error) if isinstance(error, StepFailed) else "%s: %s" % (type(error).__name__, error))
                continue
            if waits:
                self.record.update(status=WAITING, asked_in=boot, waits_for=waits)
                self.note("waits for a boot: " + waits)
            else:
                self.record["waits_for"] = None
                self.note("done")
                self.advance()
        self.store.write(self.record)
        return self.record

    def note(self, outcome: str) -> None:
        record = self.record
        entry = {"step": record["step"], "direction": record["direction"], "outcome": outcome, "at": round(time.time(), 1)}
        record["history"] = [*record["history"][-MOST_HISTORY:], entry]

    def advance(self) -> None:
        """The next step, or the end."""
        position = STEPS.index(self.record["step"]) + 1
        if position < len(STEPS):
            self.record["step"] = STEPS[position]
        else:
            self.record["status"] = DONE if self.record["direction"] == FORWARD else ROLLED_BACK

    def fail(self, reason: str) -> None:
        """Turn back, or give up where the way back has failed."""
        record = self.record
        self.note("failed: " + reason)
        if record["direction"] == BACK:
            record["status"] = NEEDS_ATTENTION
            record["reason"] = "%s; the way back failed at %s: %s" % (record["reason"], record["step"], reason)
            return
        record.update(direction=BACK, failed_step=record["step"], reason="%s failed: %s" % (record["step"], reason), asked_in=None, mode="reload")
        # What could not be stopped keeps its driver, as long as nothing else has changed; before a boot that nobody asked for it may have.
        untouched = all(STEPS.index(entry["step"]) < STEPS.index("packages") for entry in record["history"])
        record["step"] = "start" if record["failed_step"] == "quiesce" and untouched else STEPS[0]

    def moves(self) -> bool:
        """Whether another driver comes, or only something that the present one lacks, which no service has to stop for."""
        wanted, before = self.record["wanted"], self.record["before"]
        if wanted["version"] != before["version"] or before["flavour"] not in (None, wanted["flavour"]):
            return True
        return self.host.stale(self.target) is not None

    def act(self, step: str) -> str | None:
        """Do one step; a text says that a boot is needed first, and why."""
        record, host = self.record, self.host
        if step == "quiesce":
            if self.moves():
                host.quiesce(own(record))
        elif step == "unload":
            self.unload()
        elif step == "packages":
            host.packages(self.target, self.origin)
            host.hold(self.target)
        elif step == "build":
            host.build(self.target)
        elif step == "boot":
            return self.boot()
        elif step == "load":
            host.load(self.target)
        elif step == "start":
            host.start(self.target, record["services"], own(record))
        elif step == "settings":
            host.settings(record["settings"])
        else:
            host.verify(self.target)
        return None

    def unload(self) -> None:
        """Take the module out unless the boot to come does it, or it is the right one already."""
        record = self.record
        if record["mode"] == "reboot" or not self.host.stale(self.target):
            return
        try:
            self.host.unload()
        except StepFailed:
            if record["direction"] == FORWARD or not record["may_reboot"]:
                raise
            record["mode"] = "reboot"

    def boot(self) -> str | None:
        """Why a boot has to come first; raises StepFailed when one came and did not help."""
        stale = self.host.stale(self.target)
        if stale is None:
            return None
        if self.record["asked_in"] not in (None, self.record["boot_id"]):
            raise StepFailed("%s is loaded, also after a boot" % stale)
        if not self.record["may_reboot"]:
            raise StepFailed("%s is loaded and cannot be taken out, and a reboot was not agreed to" % stale)
        return "%s is loaded until the host boots" % stale
