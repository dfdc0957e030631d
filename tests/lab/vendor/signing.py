# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's keys: made once a cache, so that fingerprints stay; each use has its own short-lived gpg home and leaves no agent."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.paths import LabError


@dataclass(frozen=True)
class SigningKey:
    """A key on disk: `secret` stays in the cache, `public` (armoured) is what the site offers."""

    secret: Path
    public: Path
    fingerprint: str

    def clearsign(self, text: bytes) -> bytes:
        """Return the text with a signature around it, as InRelease has it."""
        return self._sign(text, "--clear-sign")

    def detached(self, text: bytes) -> bytes:
        """Return the signature alone, as Release.gpg has it."""
        return self._sign(text, "--armor", "--detach-sign")

    @contextmanager
    def packages(self) -> Iterator[Callable[[bytes], bytes]]:
        """Give what signs one package after another, binary as RPM has it."""
        with gpg_home() as home:
            gpg(home, "--import", str(self.secret))
            yield lambda data: gpg(home, "--digest-algo", "SHA256", "--local-user", self.fingerprint, "--detach-sign", stdin=data)

    def _sign(self, text: bytes, *how: str) -> bytes:
        with gpg_home() as home:
            gpg(home, "--import", str(self.secret))
            return gpg(home, "--digest-algo", "SHA512", "--local-user", self.fingerprint, *how, stdin=text)


def obtain(folder: Path, name: str, owner: str) -> SigningKey:
    """Return a key of the cache, made when it is not there yet."""
    secret, public, mark = (folder / f"{name}{end}" for end in (".secret.asc", ".pub.asc", ".fingerprint"))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists():
            with gpg_home() as home:
                gpg(home, "--passphrase", "", "--quick-generate-key", owner, "rsa3072", "sign", "never")
                listing = gpg(home, "--with-colons", "--list-keys").decode().splitlines()
                fingerprint = next(line.split(":")[9] for line in listing if line.startswith("fpr:"))
                with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
                    stream.write(gpg(home, "--armor", "--export-secret-keys", fingerprint))
                public.write_bytes(gpg(home, "--armor", "--export", fingerprint))
            mark.write_text(fingerprint)
    return SigningKey(secret, public, mark.read_text())


@contextmanager
def gpg_home() -> Iterator[Path]:
    """Give a fresh gpg home; its agent ends and the home goes with the block."""
    # Below /tmp whatever TMPDIR says: an agent's socket path must stay under 108 bytes.
    home = Path(tempfile.mkdtemp(prefix="lab-gpg-", dir="/tmp"))
    try:
        yield home
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True, check=False)
        shutil.rmtree(home, ignore_errors=True)


def gpg(home: Path, *args: str, stdin: bytes = b"") -> bytes:
    """Run gpg in a home and return what it printed."""
    line = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", *args]
    try:
        return subprocess.run(line, input=stdin, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise LabError("gpg is missing; install it with: apt-get install gnupg") from None
    except subprocess.CalledProcessError as error:
        raise LabError(f"gpg {' '.join(args)}: {error.stderr.decode(errors='replace').strip()}") from None
