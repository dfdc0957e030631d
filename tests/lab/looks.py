# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others have left on a host before anybody manages it: DGX OS, a cloud's image, runfiles, an older RDMA stack, Kubernetes' GPU operator.

Files and packages are put where those put them. Drivers come from the vendor's site, and those of a runfile lose their packages afterwards: what is
left is what a runfile leaves, files that no package knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.paths import SITE_NAME, LabError

if TYPE_CHECKING:
    from lab.client import Lab

VERSION = "580.159.04"
# Finds the distribution's folder of the site, and how compute packages are called there.
NAMES = rf"""
set -e
. /etc/os-release
site=http://{SITE_NAME}/compute/cuda/repos/$ID$(echo "$VERSION_ID" | tr -d .)/x86_64/
case $ID in
ubuntu) names="nvidia-utils-580 libnvidia-compute-580 libnvidia-decode-580 libnvidia-cfg1-580 nvidia-dkms-580-open nvidia-kernel-source-580-open
               nvidia-kernel-common-580 nvidia-firmware-580 nvidia-persistenced nvidia-modprobe" ;;
*) names="nvidia-driver-cuda libcuda1 libnvidia-cfg1 libnvidia-ml1 libnvidia-ptxjitcompiler1 nvidia-opencl-icd nvidia-modprobe
          nvidia-kernel-open-dkms nvidia-kernel-support firmware-nvidia-gsp nvidia-persistenced" ;;
esac
if ls /sys/bus/pci/devices/*/device | xargs grep -lq 0x22a3; then names="$names nvidia-fabricmanager"; fi
"""
INSTALL = rf"""
echo "deb [trusted=yes] $site /" >/etc/apt/sources.list.d/look.list
only="-o Dir::Etc::sourcelist=/etc/apt/sources.list.d/look.list -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0"
apt-get -q update $only >/dev/null
wanted=""
for name in $names; do
    wanted="$wanted $name=$(apt-cache madison $name | awk '$3 ~ /^{VERSION}-/ {{print $3; exit}}')"
done
DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends --allow-downgrades install $wanted >/dev/null
rm /etc/apt/sources.list.d/look.list
"""
# The files of the driver without what dpkg knows of them, as nvidia-installer leaves them.
UNPACKAGE = r"""
mkdir -p /tmp/kept
dpkg -L $names | sort -u | while read -r path; do
    if [ -f "$path" ] || [ -L "$path" ]; then case $path in /usr/share/doc/*) ;; *) echo "$path" ;; esac; fi
done >/tmp/kept.list
find /lib/modules /usr/lib/modules -name 'nvidia*.ko*' 2>/dev/null >>/tmp/kept.list || true
tar --create --file=/tmp/kept.tar --absolute-names --files-from=/tmp/kept.list
systemctl stop nvidia-persistenced nvidia-fabricmanager 2>/dev/null || true
DEBIAN_FRONTEND=noninteractive dpkg --purge --force-all $names >/dev/null 2>&1
tar --extract --file=/tmp/kept.tar --absolute-names
rm -rf /tmp/kept /tmp/kept.tar /tmp/kept.list
for release in /lib/modules/*; do depmod "$(basename "$release")"; done
ldconfig
printf '#!/bin/sh\nexec echo "Uninstallation of the NVIDIA driver is complete."\n' >/usr/bin/nvidia-uninstall
ln -sf nvidia-uninstall /usr/bin/nvidia-installer
chmod 755 /usr/bin/nvidia-uninstall
echo "nvidia-installer log file '/var/log/nvidia-installer.log'" >/var/log/nvidia-installer.log
systemctl daemon-reload
"""
# A service that was installed before there was a module has failed, as its package started it at once. The simulated fabric manager has the
# version of its package: one without stays down.
LOAD = """
modprobe nvidia
modprobe nvidia-uvm
systemctl reset-failed nvidia-persistenced 2>/dev/null || true
systemctl start nvidia-persistenced
if dpkg -s nvidia-fabricmanager >/dev/null 2>&1; then systemctl start nvidia-fabricmanager; fi
"""
# A package with nothing in it but its name.
EMPTY = r"""
for given in $empty; do
    name=${given%%=*}
    root=/tmp/empty/$name
    mkdir -p "$root/DEBIAN"
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: %s\nDescription: x\n' "$name" "${given#*=}" "$maker" >"$root/DEBIAN/control"
    dpkg-deb --build --root-owner-group -Znone "$root" "$root.deb" >/dev/null
    dpkg --install --force-depends "$root.deb" >/dev/null
done
rm -rf /tmp/empty
"""
DGX = r"""
maker="DGX Support <dgx@nvidia.com>"
empty="dgx-release=7.0.2 nvidia-acs-disable=24.12.1 nvsm=25.01.1 nvidia-mlnx-config=25.01.1"
cat >/etc/dgx-release <<'END'
DGX_NAME="DGX Server"
DGX_PRETTY_NAME="NVIDIA DGX Server"
DGX_SWBUILD_DATE="2025-02-18-11-35-52"
DGX_SWBUILD_VERSION="7.0.2"
DGX_COMMIT_ID="2f18a7b"
DGX_PLATFORM="DGX Server for DGX H100"
DGX_SERIAL_NUMBER="1660224000042"
END
mkdir -p /etc/nvidia
echo '{"acs": "disabled"}' >/etc/nvidia/nvsm.json
"""
AZURE = r"""
mkdir -p /opt/azurehpc
echo '{"NVIDIA": "580.159.04", "CUDA": "12.8", "NCCL": "2.26.2", "DCGM": "3.3.9"}' >/opt/azurehpc/component_versions.txt
printf 'NCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml\n' >/etc/nccl.conf
"""
OFED = r"""
maker="OFED <linux@mellanox.com>"
empty="mlnx-ofed-kernel-utils=24.10.0.7.0 mlnx-ofed-kernel-dkms=24.10.0.7.0 ofed-scripts=24.10.0.7.0"
printf '#!/bin/sh\necho OFED-internal-24.10-0.7.0:\n' >/usr/bin/ofed_info
chmod 755 /usr/bin/ofed_info
mkdir -p /usr/local/cuda-12.8/bin
echo '{"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}' >/usr/local/cuda-12.8/version.json
printf '#!/bin/sh\n' >/usr/local/cuda-12.8/bin/cuda-uninstaller
chmod 755 /usr/local/cuda-12.8/bin/cuda-uninstaller
ln -sfn cuda-12.8 /usr/local/cuda
printf 'NCCL_SOCKET_IFNAME=eth0\nNCCL_ALGO=Ring\n' >/etc/nccl.conf
"""
OPERATOR = r"""
mkdir -p /run/nvidia/driver/usr/bin /run/nvidia/driver/usr/lib/x86_64-linux-gnu /run/nvidia/validations /run/nvidia/toolkit
touch /run/nvidia/validations/driver-ready /run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04
ln -sf libnvidia-ml.so.580.159.04 /run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
mkdir -p /usr/local/nvidia/toolkit/.config/nvidia-container-runtime /etc/containerd/conf.d
printf '#!/bin/sh\n' >/usr/local/nvidia/toolkit/nvidia-container-runtime
chmod 755 /usr/local/nvidia/toolkit/nvidia-container-runtime
printf '[nvidia-container-runtime]\nmode = "cdi"\n' >/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml
cat >/etc/containerd/conf.d/99-nvidia.toml <<'END'
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
END
"""


@dataclass(frozen=True)
class Look:
    """What a host can wear; `steps` are parts of one shell script."""

    about: str
    steps: tuple[str, ...]


LOOKS = {
    "dgx-os": Look("NVIDIA's own system for its servers: packages of the driver, and of the system", (NAMES, INSTALL, DGX, EMPTY, LOAD)),
    "cloud-image": Look("an image for high-performance computing whose driver came out of a runfile", (NAMES, INSTALL, UNPACKAGE, AZURE, LOAD)),
    "runfile-ofed": Look("a driver and a CUDA toolkit out of runfiles, beside Mellanox's OFED", (NAMES, INSTALL, UNPACKAGE, OFED, EMPTY, LOAD)),
    "gpu-operator": Look("a driver container and a toolkit of Kubernetes' GPU operator; gone with the next boot but for the toolkit", (OPERATOR,)),
}


def wear(lab: Lab, host: str, name: str) -> None:
    """Give a running host a look."""
    if name not in LOOKS:
        raise LabError(f"look {name!r}: choose from {', '.join(LOOKS)}")
    done = lab.run(host, "set -e\n" + "".join(LOOKS[name].steps))
    if done.returncode:
        raise LabError(f"{host} cannot wear {name}: {(done.stderr or done.stdout).strip()[-2000:]}")


def overview() -> str:
    """Return the help text on looks."""
    return "\n".join(["looks:", *(f"  {name:14} {look.about}" for name, look in LOOKS.items())])
