# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cache keeps is whole, and stays while somebody uses it; saved layers fit what they are put over."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab import cache, hardware, images, layers, prepare
from lab.paths import LabError

BASE = "debian12-0123456789abcdef"


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give empty places for layers and images, and an image whose content has a fixed name."""
    monkeypatch.setattr(layers, "SAVED", tmp_path / "layers")
    monkeypatch.setattr(images, "LAYERS", tmp_path / "images")
    (tmp_path / "layers").mkdir()
    (tmp_path / "images" / BASE).mkdir(parents=True)
    monkeypatch.setattr(images, "find", lambda name: SimpleNamespace(layer=lambda: tmp_path / "images" / f"{name}-0123456789abcdef"))
    return tmp_path / "layers"


def keep(tmp_path: Path, name: str, text: str, below: list[str] | None = None) -> Path:
    """Save a layer with one file."""
    upper = tmp_path / "upper"
    (upper / "etc").mkdir(parents=True)
    (upper / "etc/mark").write_text(text)
    about: dict[str, Any] = {"below": below or [], "profile": "none"}
    return layers.keep(upper, name, BASE, about)


def test_what_is_leased_is_not_removed(tmp_path: Path) -> None:
    """Only the last user's going frees a folder."""
    folder = tmp_path / "tree"
    folder.mkdir()
    first, second = cache.Lease(folder), cache.Lease(folder)
    first.release()
    assert not cache.remove_unused(folder)
    assert folder.is_dir()
    second.release()
    assert cache.remove_unused(folder)
    assert not folder.exists()
    with pytest.raises(LabError, match="not there"):
        cache.Lease(folder)


def test_a_lock_lets_one_in_at_a_time(tmp_path: Path) -> None:
    """The second builder waits for the first, and finds its work."""
    seen: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with cache.locked(tmp_path / "lock"):
            inside.set()
            leave.wait(10)
            seen.append("first")

    def second() -> None:
        with cache.locked(tmp_path / "lock"):
            seen.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(10)
    assert seen == ["first", "second"]


def test_a_lock_that_was_removed_while_we_waited_is_not_taken_for_the_lock(tmp_path: Path) -> None:
    """Who removes the file of a lock that it holds lets the waiting ones compete for the new file."""
    path = tmp_path / "lock"
    entered: list[str] = []

    def second() -> None:
        with cache.locked(path):
            entered.append("second")
            assert path.exists()

    waiter = threading.Thread(target=second)
    with cache.locked(path):
        waiter.start()
        time.sleep(0.2)
        path.unlink()
    waiter.join(10)
    assert entered == ["second"]


def test_rests_of_interrupted_work_go_and_work_in_progress_stays(tmp_path: Path) -> None:
    """A build that somebody is at is not a rest."""
    for name in (".dying-1-a", ".building-a-1", ".building-a-2", ".building-b-1"):
        (tmp_path / name).mkdir()
    with cache.locked(cache.build_lock(tmp_path / "a-2")):
        cache.remove_rests(tmp_path, "a-*")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [".building-a-2", ".building-b-1"]


def test_a_saved_layer_is_found_over_its_image_only(saved: Path, tmp_path: Path) -> None:
    """A layer is a difference to one content of one image."""
    keep(tmp_path, "torch", "one")
    assert layers.exists("torch", "debian12")
    assert not layers.exists("torch", "debian13")
    assert not layers.exists("other", "debian12")
    (lease,) = layers.obtain(("torch",), "debian12")
    assert (layers.lower(lease) / "etc/mark").read_text() == "one"
    assert layers.lease_of(layers.lower(lease)).folder == lease.folder


def test_layers_stack_in_the_order_in_which_they_were_saved(saved: Path, tmp_path: Path) -> None:
    """A layer over another one makes no sense without it."""
    keep(tmp_path, "driver", "driver")
    keep(tmp_path, "torch", "torch", ["driver"])
    stack = layers.obtain(("driver", "torch"), "debian12")
    assert [(layers.lower(lease) / "etc/mark").read_text() for lease in stack] == ["torch", "driver"]
    with pytest.raises(LabError, match="saved over"):
        layers.obtain(("torch",), "debian12")


def test_a_layer_is_replaced_unless_a_host_stands_on_it(saved: Path, tmp_path: Path) -> None:
    """Nothing is pulled away under a running host, and a failed save leaves the old layer."""
    keep(tmp_path, "torch", "one")
    (lease,) = layers.obtain(("torch",), "debian12")
    with pytest.raises(LabError, match="in use"):
        keep(tmp_path, "torch", "two")
    assert (layers.lower(lease) / "etc/mark").read_text() == "one"
    lease.release()
    layers.keep(tmp_path / "upper", "torch", BASE, {"below": [], "profile": "none"})
    (lease,) = layers.obtain(("torch",), "debian12")
    assert (layers.lower(lease) / "etc/mark").read_text() == "two"
    assert json.loads((lease.folder / layers.ABOUT).read_text())["profile"] == "none"


def test_a_layer_over_another_state_of_its_image_has_to_be_made_anew(saved: Path, tmp_path: Path) -> None:
    """The message says why the layer that is there does not do."""
    folder = keep(tmp_path, "torch", "one")
    folder.rename(saved / "torch@debian12-ffffffffffffffff")
    with pytest.raises(LabError, match="made anew"):
        layers.obtain(("torch",), "debian12")
    layers.remove_orphans()
    assert not list(saved.glob("torch@*"))


def test_a_half_saved_layer_does_not_count(saved: Path, tmp_path: Path) -> None:
    """A layer counts when its description stands beside it, which is written last."""
    (saved / f"torch@{BASE}" / layers.UPPER).mkdir(parents=True)
    assert not layers.exists("torch", "debian12")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_layer_names_are_plain(saved: Path, name: str) -> None:
    """A name becomes a folder's name."""
    with pytest.raises(LabError, match="layer name"):
        layers.place(name, BASE)


def test_old_states_go_when_nobody_has_used_them_for_a_day(tmp_path: Path, saved: Path) -> None:
    """Two checkouts that share a cache do not take each other's images away, and the layers over a removed image go with it."""
    old, other, current = (images.LAYERS / f"debian13-{name}" for name in ("old", "other", "current"))
    for folder in (old, other, current):
        folder.mkdir()
        cache.Lease(folder).release()
    (saved / f"torch@{old.name}").mkdir()
    long_ago = time.time() - 2 * images.KEPT_SECONDS
    for folder in (old, current):
        os.utime(folder.with_name(f".{folder.name}.lease"), (long_ago, long_ago))
    images.remove_old(current, "debian13-*")
    assert sorted(path.name for path in images.LAYERS.glob("debian13-*")) == ["debian13-current", "debian13-other"]
    assert not list(saved.glob("torch@*"))


def test_an_image_is_named_by_everything_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another simulator, certificate, source or face makes another image; the slow tree depends on the sources only."""
    monkeypatch.setattr(images, "sources", lambda suite: f"source of {suite}")
    image = images.Image("face", "bookworm", {"etc/os-release": "ID=face"})
    tree, layer = image.tree(), image.layer()
    assert (image.tree(), image.layer()) == (tree, layer)
    monkeypatch.setattr(hardware, "content_key", lambda: "other")
    assert image.tree() == tree
    assert image.layer() != layer
    other = image.layer()
    monkeypatch.setattr(prepare, "certificates", lambda: [tmp_path / "ca.crt"])
    (tmp_path / "ca.crt").write_text("certificate")
    assert image.layer() != other
    assert images.Image("face", "bookworm", {}).layer() != image.layer()
    monkeypatch.setattr(images, "sources", "elsewhere in {}".format)
    assert image.tree() != tree
