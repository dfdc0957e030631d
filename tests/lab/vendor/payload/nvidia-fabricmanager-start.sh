#!/bin/bash
# Starts and stops the fabric manager, as the vendor's package does; where adapters lead switches of the fifth generation, the subnet manager comes first.
set -eu

mode=start
config=/usr/share/nvidia/nvswitch/fabricmanager.cfg
pid_file=/var/run/nvidia-fabricmanager/nv-fabricmanager.pid
nvlsm=/opt/nvidia/nvlsm/sbin/nvlsm
nvlsm_pid_file=/var/run/nvidia-fabricmanager/nvlsm.pid
while [ $# -gt 0 ]; do
    case "$1" in
        --mode | -m) mode="$2"; shift 2 ;;
        --fm-config-file) config="$2"; shift 2 ;;
        --fm-pid-file) pid_file="$2"; shift 2 ;;
        *) echo "unknown argument: $1" >&2; exit 1 ;;
    esac
done

if [ "$mode" = stop ]; then
    for file in "$pid_file" "$nvlsm_pid_file"; do
        if [ -r "$file" ]; then
            kill "$(cat "$file")" 2>/dev/null || true
            rm -f "$file"
        fi
    done
    exit 0
fi
mkdir -p "$(dirname "$pid_file")"
if cat /sys/class/infiniband/*/device/vpd 2>/dev/null | grep -aq SW_MNG; then
    if [ ! -x "$nvlsm" ]; then
        echo "the NVLink switches of this host need nvlsm, which is not installed" >&2
        exit 1
    fi
    "$nvlsm" -F /usr/share/nvidia/nvlsm/nvlsm.conf -B --pid_file "$nvlsm_pid_file"
fi
exec /usr/bin/nv-fabricmanager -c "$config"
