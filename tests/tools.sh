#!/usr/bin/env bash
# Brings what the tests need beside Python packages: a browser, and a Slurm of their own on this host.
# Needs root and apt; without them it says what will be skipped. In CI (CI is set) nothing may be
# missing.
set -euo pipefail
missing=()
command -v chromium >/dev/null || missing+=(chromium)
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  "$(dirname "$0")/slurm/start.sh"
  [ ${#missing[@]} -eq 0 ] && exit 0
  echo "installing ${missing[*]}"
  apt-get -q -o DPkg::Lock::Timeout=600 update >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}" >/dev/null
elif missing+=(Slurm) && [ -n "${CI:-}" ]; then
  echo "missing: ${missing[*]}; root and apt are needed to install them" >&2
  exit 1
else
  echo "missing: ${missing[*]}; the tests that need them are skipped (installing them needs root and apt)"
fi
