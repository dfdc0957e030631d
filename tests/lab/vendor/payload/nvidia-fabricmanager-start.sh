#!/bin/bash
# Starts and stops the fabric manager (the vendor's package does the same, and on fifth-generation NVLink starts NVLSM first).
set -eu

mode=start
config=/usr/share/nvidia/nvswitch/fabricmanager.cfg
pid_file=/var/run/nvidia-fabricmanager/nv-fabricmanager.pid
while [ $# -gt 0 ]; do
    case "$1" in
        --mode | -m) mode="$2"; shift 2 ;;
        --fm-config-file) config="$2"; shift 2 ;;
        --fm-pid-file) pid_file="$2"; shift 2 ;;
        *) echo "unknown argument: $1" >&2; exit 1 ;;
    esac
done

if [ "$mode" = stop ]; then
    if [ -r "$pid_file" ]; then
        kill "$(cat "$pid_file")" 2>/dev/null || true
        rm -f "$pid_file"
    fi
    exit 0
fi
mkdir -p "$(dirname "$pid_file")"
exec /usr/bin/nv-fabricmanager -c "$config"
