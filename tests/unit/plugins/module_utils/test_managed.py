# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _managed, _python_env
from ansible_collections.gpu.fleet.plugins.module_utils._software import Package
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given
from hypothesis import strategies as st

# Made for this test with GnuPG 2.2, which also said the fingerprints.
FINGERPRINTS = ["0183E6744609F6583C3DA46FB1422C5F8C2A1E33", "710141C433F1865DE7B5AA2ACE9490A4F7909FA8"]
BODY = """
mDMEaw0OHhYJKwYBBAHaRw8BAQdAFmM4x1O4D49g8fcgvdLITcxrCt4AM6Aoy/55
qiMEULe0G1Rlc3QgT25lIDx0ZXN0QGV4YW1wbGUub3JnPoiQBBMWCAA4FiEEAYPm
dEYJ9lg8PaRvsUIsX4wqHjMFAmsNDh4CGwEFCwkIBwIGFQoJCAsCBBYCAwECHgEC
F4AACgkQsUIsX4wqHjNN+wEAw+YMIXwtdYtMHNIYkuZcK/t1QJfF7wWskK7yNwjy
eAsBAPzzmlSOZ8QJ3sX4HElpuAyEv7ruVuYFoKm9KKAXkNMHmDMEaw0OHhYJKwYB
BAHaRw8BAQdA4wL80z1qLD4lPXeqzvcQidIpnJHVDYG1N5vRkp7M98m0G1Rlc3Qg
VHdvIDx0ZXN0QGV4YW1wbGUub3JnPoiQBBMWCAA4FiEEcQFBxDPxhl3ntaoqzpSQ
pPeQn6gFAmsNDh4CGwEFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQzpSQpPeQ
n6hX9gD9HvTBYc5jOs6/v9IA/7FHxzOJrl7iaTdMFs71wHD59o8A/jEPOsrf3W5x
o+SnTW54/RJZHWDRCOZPbj+vQepeqc0O
"""
BINARY = base64.b64decode(BODY)
ARMORED = f"-----BEGIN PGP PUBLIC KEY BLOCK-----\nComment: two\n{BODY}=+392\n-----END PGP PUBLIC KEY BLOCK-----\n".encode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(BINARY, FINGERPRINTS, id="binary"),
        pytest.param(ARMORED, FINGERPRINTS, id="armored"),
        pytest.param(ARMORED.replace(b"\n", b"\r\n"), FINGERPRINTS, id="line ends of Windows"),
        pytest.param(b"A key:\n" + ARMORED + ARMORED, FINGERPRINTS, id="twice, with text before"),
        pytest.param(ARMORED.replace(b"mDME", b"m!ME"), [], id="armor that is no base64"),
        pytest.param(BINARY[:300], [], id="cut in the second key"),
        pytest.param(BINARY[:20], [], id="cut in the first key"),
        pytest.param(b"", [], id="empty"),
        pytest.param(b"<html>404</html>", [], id="an error page"),
        # The same key packet under the new form of header.
        pytest.param(b"\xc6" + BINARY[1:53], FINGERPRINTS[:1], id="new packet header"),
        pytest.param(b"\xc6\xff\0\0\0" + BINARY[1:53], FINGERPRINTS[:1], id="new packet header, long length"),
    ],
)
def test_fingerprints(data: bytes, expected: list[str]) -> None:
    assert _managed.fingerprints(data) == expected


@given(st.binary(max_size=300), st.integers(0, len(BINARY)))
def test_damaged_keyrings_never_raise(rubbish: bytes, at: int) -> None:
    for data in (rubbish, BINARY[:at] + rubbish, b"\xc6" + rubbish, ARMORED[:at] + rubbish):
        assert all(len(entry) in (40, 64) for entry in _managed.fingerprints(data))


def states(tree: Tree, kind: str, name: str, **known: object) -> object:
    system = System(str(tree.root))
    packages = {"bash": Package("5.2-1", False, "installed", ""), "half": Package(None, False, "half-configured", "")}
    units = {"a.service": {"UnitFileState": "enabled", "ActiveState": "active"}, "b.service": {"LoadState": "not-found"}}
    given_states = {"packages": packages, "units": units, **known}
    found = _managed.states(system, [{"kind": kind, "id": name}], given_states["packages"], given_states["units"])  # type: ignore[arg-type]
    assert list(found) == [f"{kind}:{name}"]
    return found[f"{kind}:{name}"]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.file("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nfleet:x:998:998::/var/lib/fleet:/usr/sbin/nologin\nann:x:1000:1000::/home/ann:/bin/sh")
    made.file("/etc/group", "root:x:0:\n")
    made.file("/etc/x.conf", b"hello").chmod(0o640)
    return made


def test_files(tree: Tree) -> None:
    assert states(tree, "file", "/etc/x.conf") == {
        "state": "file",
        "mode": "0640",
        "owner": "root",
        "group": "root",
        "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    }
    assert states(tree, "file", "/etc/none") == {"state": "absent"}
    tree.link("/etc/link", "/etc/x.conf")
    link, folder = states(tree, "file", "/etc/link"), states(tree, "file", "/etc")
    assert isinstance(link, dict)
    assert isinstance(folder, dict)
    assert (link["state"], folder["state"]) == ("link", "directory")


def test_directories_and_keyrings(tree: Tree) -> None:
    folder = states(tree, "directory", "/etc")
    assert isinstance(folder, dict)
    assert (folder["state"], folder["owner"]) == ("directory", "root")
    tree.file("/etc/key.asc", ARMORED).chmod(0o644)
    assert states(tree, "keyring", "/etc/key.asc") == {
        "state": "file", "mode": "0644", "owner": "root", "group": "root", "fingerprints": FINGERPRINTS,
    }
    assert states(tree, "keyring", "/etc/none.asc") == {"state": "absent"}


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("package", "bash", {"version": "5.2-1"}),
        ("package", "half", {"version": None}),
        ("package", "none", {"version": None}),
        ("unit", "a.service", {"enabled": True, "active": True}),
        ("unit", "b.service", {"enabled": False, "active": False}),
        ("unit", "not asked", None),
        ("user", "fleet", {"state": "present", "system": True, "home": "/var/lib/fleet", "shell": "/usr/sbin/nologin"}),
        ("user", "ann", {"state": "present", "system": False, "home": "/home/ann", "shell": "/bin/sh"}),
        ("user", "bob", {"state": "absent"}),
        ("module", "nvidia-uvm", {"version": None}),
        ("python_environment", "/opt/none", {"state": "absent", "packages": {}}),
    ],
)
def test_other_kinds(tree: Tree, kind: str, name: str, expected: object) -> None:
    assert states(tree, kind, name) == expected


def test_holds() -> None:
    states_of = {"held": ("1", True, "installed"), "free": ("1", False, "installed"), "gone": (None, True, "unpacked")}
    packages = {name: Package(*state, "") for name, state in states_of.items()}
    assert [_managed.hold_state(packages, name)["held"] for name in ("held", "free", "gone", "none")] == [True, False, False, False]


def test_sources_and_the_keys_that_are_trusted_for_all_of_them(tree: Tree) -> None:
    place = "developer.download.nvidia.com/compute/cuda/repos/"
    assert states(tree, "source", place) == {"files": []}
    tree.file("/etc/apt/sources.list", f"deb https://{place}debian12/x86_64 /\n")
    tree.file("/etc/apt/sources.list.d/a.sources", f"Types: deb\nURIs: http://{place}debian12/x86_64/\nSuites: /\n")
    tree.file("/etc/apt/sources.list.d/b.list", "deb http://archive.example/debian bookworm main\n")
    tree.file("/etc/apt/sources.list.d/c.list.save", f"deb http://{place}debian12/x86_64/ /\n")
    assert states(tree, "source", place) == {"files": ["/etc/apt/sources.list", "/etc/apt/sources.list.d/a.sources"]}
    assert states(tree, "source", "mirror.example/compute/cuda/repos/") == {"files": []}
    tree.file("/etc/apt/trusted.gpg", BINARY)
    tree.file("/etc/apt/trusted.gpg.d/a.asc", ARMORED)
    tree.file("/etc/apt/trusted.gpg.d/a.asc~", ARMORED)
    tree.file("/etc/apt/trusted.gpg.d/b.gpg", b"")
    assert states(tree, "trusted_key", FINGERPRINTS[1]) == {
        "state": "needed",
        "files": ["/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d/a.asc"],
        "needed_by": ["http://archive.example/debian bookworm", f"http://{place}debian12/x86_64/ /", f"https://{place}debian12/x86_64 /"],
        "spare": [],
    }
    assert states(tree, "trusted_key", "AB" * 20) == {"state": "absent", "files": [], "needed_by": [], "spare": []}


def test_unknown_is_null_and_not_absent(tree: Tree) -> None:
    assert states(tree, "package", "bash", packages=None) is None
    assert states(tree, "hold", "bash", packages=None) is None
    assert states(tree, "unit", "a.service", units=None) is None


def test_loaded_module(tree: Tree) -> None:
    tree.file("/sys/module/nvidia_uvm/version", "580.178.04")
    assert states(tree, "module", "nvidia-uvm") == {"version": "580.178.04"}


def environment(tree: Tree) -> str:
    tree.file("/opt/env/bin/python", "#!/bin/sh").chmod(0o755)
    tree.file("/opt/env/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2")
    site = "/opt/env/lib/python3.11/site-packages"
    tree.file(f"{site}/torch-2.13.0+cpu.dist-info/METADATA", "")
    tree.file(f"{site}/typing_extensions-4.15.0.dist-info/METADATA", "")
    tree.file(f"{site}/torch/__init__.py", "")
    tree.file(f"{site}/torch/version.py", "__all__ = []\n__version__ = '2.13.0+cpu'\ndebug = False\ncuda: Optional[str] = None\n")
    return site


def test_python_environment(tree: Tree) -> None:
    site = environment(tree)
    system = System(str(tree.root))
    assert _python_env.scan(system, "/opt/env") == {
        "path": "/opt/env",
        "python": "3.11.2",
        "torch": "2.13.0+cpu",
        "cuda": None,
        "packages": {"torch": "2.13.0+cpu", "typing-extensions": "4.15.0"},
    }
    assert states(tree, "python_environment", "/opt/env") == {"state": "present", "packages": {"torch": "2.13.0+cpu"}}
    tree.file(f"{site}/torch/version.py", "__version__ = '2.12.0+cu130'\ncuda: Optional[str] = '13.0'\n")
    found = _python_env.scan(system, "/opt/env")
    assert found is not None
    assert (found["torch"], found["cuda"]) == ("2.12.0+cu130", "13.0")


def test_an_environment_without_torchs_files_has_no_torch(tree: Tree) -> None:
    site = environment(tree)
    (tree.root / site.lstrip("/") / "torch/__init__.py").unlink()
    assert states(tree, "python_environment", "/opt/env") == {"state": "present", "packages": {}}


def test_a_torch_without_its_record_is_not_installed(tree: Tree) -> None:
    site = environment(tree)
    (tree.root / site.lstrip("/") / "torch-2.13.0+cpu.dist-info/METADATA").unlink()
    (tree.root / site.lstrip("/") / "torch-2.13.0+cpu.dist-info").rmdir()
    assert states(tree, "python_environment", "/opt/env") == {"state": "present", "packages": {}}


def test_an_environment_without_an_interpreter_is_absent(tree: Tree) -> None:
    environment(tree)
    (tree.root / "opt/env/bin/python").chmod(0o644)
    assert states(tree, "python_environment", "/opt/env") == {"state": "absent", "packages": {}}
