# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""CUDA toolkits, cuDNN and NCCL as they lie on the host: versions from their own files, makers from the package manager."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _conf, _software
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

    Packages = t.Optional[t.Dict[str, _software.Package]]
    Found = t.List[t.Dict[str, t.Any]]

TOOLKIT = later(r"cuda-(\d+)(?:\.(\d+))?(?:\.\d+)?$")
LINK = later(r"cuda(?:-\d+)?$")
COMPAT = later(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)?)$")
ARCHIVE = later(r"nvidia-cuda-(?:toolkit|dev)$|libcudart\d+(?:\.\d+)?$")
CUDNN = later(r"(?:lib)?cudnn\d|nvidia-cudnn$")
CUDNN_FOR = later(r"libcudnn\d+-cuda-(\d+)$")
NCCL = later(r"lib(?:64)?nccl\d*$")
HEADER = later(r"cudnn(?:_version)?(?:_v\d+)?\.h$")
SONAME = later(r"lib(cudnn\w*|nccl)\.so\.\d+$")
FULL = later(r"\.so\.(\d+\.\d+(?:\.\d+)*)$")
PLUGIN = later(r"libnccl-(?:net|tuner|profiler|env)[\w-]*\.so$|libnccl-(?:net|tuner|profiler|env)[\w-]*\.so\.\d+$")
INCLUDES = ("/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu", "/usr/local/include")
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64")
# Where clouds and HPC-X put NCCL's plugins.
PLUGINS = (
    "/opt/amazon/ofi-nccl/lib", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", "/opt/amazon/ofi-nccl/lib64", "/opt/aws-ofi-nccl/lib",
    "/opt/hpcx/nccl_rdma_sharp_plugin/lib", "/usr/local/gib/lib64", "/usr/local/fastrak/lib64", "/var/lib/tcpxo/lib64", "/usr/local/nvidia/lib64",
)


class Files:
    """Folders are listed once; the names in them are asked for by several questions."""

    def __init__(self, system: System, mounts: _conf.Mounts, toolkits: t.List[str]) -> None:
        self.system = system
        self.toolkits = toolkits
        self.includes = [*INCLUDES, *(path + "/include" for path in toolkits)]
        self.libraries: dict[str, list[str]] = {}
        linked = []
        for name in system.names("/etc/ld.so.conf.d"):
            for line in (system.read("/etc/ld.so.conf.d/" + name, 65536, True) or "").splitlines():
                folder = line.split("#")[0].strip().rstrip("/")
                if folder.startswith("/") and not mounts.far(folder):
                    linked.append(folder)
        seen = set()
        for folder in [*LIBRARIES, *(path + "/lib64" for path in toolkits), *PLUGINS, *linked]:
            # The loader is told of /usr/local/cuda-13/targets/x86_64-linux/lib, which is lib64 of a toolkit.
            real = system.real(folder)
            if real not in seen and not folder.startswith("/lib"):
                seen.add(real)
                self.libraries[folder] = [name for name in system.names(folder) if name.startswith(("libcudnn", "libnccl"))]

    def sonames(self, stem: str) -> t.Iterator[tuple[str, str, str | None]]:
        """Folder, path and version of each library that programs load under a name that begins with C(stem)."""
        for folder, names in self.libraries.items():
            for name in names:
                match = SONAME.match(name)
                if match and match.group(1).startswith(stem):
                    full = FULL.search(_conf.follow(self.system, folder + "/" + name))
                    yield folder, folder + "/" + name, full.group(1) if full else None

    def toolkit_of(self, path: str) -> str | None:
        return next((toolkit for toolkit in self.toolkits if path.startswith(toolkit + "/")), None)


def installed(packages: Packages, pattern: t.Pattern[str]) -> dict[str, _software.Package]:
    return {name: package for name, package in (packages or {}).items() if package.version and pattern.match(name)}


def maker(found: dict[str, _software.Package]) -> str:
    """C(nvidia) or C(distro): who made packages that both of them have under the same names."""
    theirs = any(re.search(r"@nvidia\.com|^NVIDIA\b", package.maintainer) or "+cuda" in (package.version or "") for package in found.values())
    return "nvidia" if theirs else "distro"


def owner(owners: t.Iterable[str | None]) -> str | None:
    """One word for a whole component: C(absent), the only owner, C(mixed); None as soon as one is not known."""
    found = list(owners)
    if None in found:
        return None
    return found[0] if len(set(found)) == 1 else "mixed" if found else "absent"


def _version(system: System, path: str) -> tuple[str | None, str | None]:
    """Versions of a toolkit and of its compiler, from the files that it brings (C(version.txt) up to 11.0)."""
    text = system.read(path + "/version.json")
    if text:
        try:
            parts = json.loads(text)
            told = [part.get("version") if isinstance(part, dict) else None for part in (parts.get("cuda"), parts.get("cuda_nvcc"))]
            if told[0]:
                return told[0], told[1]
        except (ValueError, AttributeError):
            system.problem("%s/version.json is no JSON object" % path)
    match = re.search(r"CUDA Version (\d+(?:\.\d+)+)", system.read(path + "/version.txt", 4096, True) or "")
    if match:
        return match.group(1), None
    match = re.search(r"^#define\s+CUDART_VERSION\s+(\d+)", system.read(path + "/include/cuda_runtime_api.h", 65536, True) or "", re.M)
    return ("%d.%d" % (int(match.group(1)) // 1000, int(match.group(1)) % 1000 // 10) if match else None), None


def toolkits(system: System, packages: Packages, mounts: _conf.Mounts) -> Found:
    """Toolkits in /usr/local, whatever /usr/local/cuda leads to, and the distribution's own in /usr."""
    names = system.names("/usr/local")
    links: dict[str, list[str]] = {}
    paths = []
    for name in names:
        path = "/usr/local/" + name
        if not TOOLKIT.match(name) and not LINK.match(name):
            continue
        if system.link(path) is not None:
            links.setdefault(_conf.follow(system, path), []).append(path)
        else:
            paths.append(path)
    for end, sources in links.items():
        if mounts.far(end):
            system.problem("%s leads to %s, which lies on %s and was not looked into" % (sources[0], end, mounts.far(end)))
        elif not system.exists(end):
            system.problem("%s leads to %s, which is not there" % (" and ".join(sources), end))
        elif end not in paths:
            paths.append(end)
    found = []
    for path in paths:
        match = TOOLKIT.search(path.rsplit("/", 1)[1])
        version, nvcc = _version(system, path)
        version = version or ("%s.%s" % (match.group(1), match.group(2)) if match and match.group(2) else match.group(1) if match else None)
        compiler = system.exists(path + "/bin/nvcc")
        suffix = "-".join((version or "").split(".")[:2])
        made = installed(packages, re.compile(r"cuda-.*-%s$" % suffix)) if suffix else {}
        compat = [entry.group(1) for entry in map(COMPAT.match, system.names(path + "/compat")) if entry]
        found.append({
            "path": path,
            "version": version,
            "nvcc": (nvcc or _software.upstream(made["cuda-nvcc-" + suffix].version if "cuda-nvcc-" + suffix in made else None) or version)
            if compiler else None,
            "links": sorted(links.get(path, [])),
            "compat": compat[0] if compat else None,
            "owner": None if packages is None else maker(made) if made
            else "runfile" if system.exists(path + "/bin/cuda-uninstaller") else "unpackaged",
        })
    archive = installed(packages, ARCHIVE)
    if archive and maker(archive) == "distro":
        told = str(archive[sorted(archive)[-1]].version)
        # 11.8.89~11.8.0-5~deb12u1: version of the part, and after the tilde that of the whole.
        whole = re.match(r"(?:\d+:)?(\d+(?:\.\d+)+)(?:~(\d+(?:\.\d+)+))?", told)
        compiler = "nvidia-cuda-toolkit" in archive
        found.append({
            "path": "/usr", "version": (whole.group(2) or whole.group(1)) if whole else told, "nvcc": whole.group(1) if whole and compiler else None,
            "links": [], "compat": None, "owner": "distro",
        })
    return found


def _owner(files: Files, path: str, packages: Packages, pattern: t.Pattern[str]) -> str | None:
    """Owner of a header or a library; packages never put theirs into a toolkit."""
    if packages is None:
        return None
    made = installed(packages, pattern)
    return maker(made) if made and not files.toolkit_of(path) and not path.startswith("/usr/local/") else "tarball"


def cudnn(files: Files, packages: Packages) -> dict[str, Found]:
    """C({headers, libraries}); parts of different versions are a problem, because a program may load any of them."""
    system = files.system
    headers: Found = []
    seen = set()
    for folder in files.includes:
        for name in system.names(folder):
            path = folder + "/" + name
            if not HEADER.match(name) or _conf.follow(system, path) in seen:
                continue
            seen.add(_conf.follow(system, path))
            version = _conf.defines(system.read(path, 262144) or "", "CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL")
            if version:
                headers.append({"path": path, "version": version, "owner": _owner(files, path, packages, CUDNN)})
            elif "_version" in name:
                system.problem("%s defines no version of cuDNN" % path)
    libraries: Found = []
    parts: dict[str, set[str]] = {}
    made = installed(packages, CUDNN)
    majors = {match.group(1) for match in map(CUDNN_FOR.match, made) if match}
    majors |= {match.group(1) for match in (re.search(r"\+cuda(\d+)", package.version or "") for package in made.values()) if match}
    for folder, path, version in files.sonames("cudnn"):
        if version:
            parts.setdefault(folder, set()).add(version)
        if path.rsplit("/", 1)[1].startswith("libcudnn.so."):
            toolkit = TOOLKIT.search(files.toolkit_of(path) or "")
            who = _owner(files, path, packages, CUDNN)
            mine = {toolkit.group(1)} if toolkit else majors if who == "nvidia" else set()
            libraries.append({"path": path, "version": version, "cuda": int(min(mine)) if len(mine) == 1 else None, "owner": who})
    for folder, versions in parts.items():
        if len(versions) > 1:
            system.problem("the libraries of cuDNN in %s are of different versions: %s" % (folder, ", ".join(sorted(versions))))
    _differ(system, "cuDNN", headers, libraries)
    return {"headers": headers, "libraries": libraries}


def nccl(files: Files, packages: Packages) -> dict[str, t.Any]:
    """C({headers, libraries, plugins}) of the host itself; PyTorch brings its own NCCL."""
    system = files.system
    headers: Found = []
    for folder in files.includes:
        text = system.read(folder + "/nccl.h", 65536, True)
        if text is not None:
            version = _conf.defines(text, "NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")
            headers.append({"path": folder + "/nccl.h", "version": version, "owner": _owner(files, folder + "/nccl.h", packages, NCCL)})
    libraries: Found = []
    told = " ".join(package.version or "" for package in installed(packages, NCCL).values())
    match = re.search(r"\+cuda(\d+\.\d+)", told)
    for _folder, path, version in files.sonames("nccl"):
        who = _owner(files, path, packages, NCCL)
        libraries.append({"path": path, "version": version, "cuda": match.group(1) if match and who == "nvidia" else None, "owner": who})
    _differ(system, "NCCL", headers, libraries)
    plugins = {_conf.follow(system, folder + "/" + name): folder + "/" + name
               for folder, names in files.libraries.items() for name in reversed(names) if PLUGIN.match(name)}
    return {"headers": headers, "libraries": libraries, "plugins": sorted(plugins.values())}


def _differ(system: System, what: str, headers: Found, libraries: Found) -> None:
    versions = {entry["version"] for entry in libraries if entry["version"]}
    for header in headers:
        if versions and header["version"] and header["version"] not in versions:
            seen = (header["path"], header["version"], what, ", ".join(sorted(versions)))
            system.problem("%s is of version %s, but the libraries of %s are of %s" % seen)
