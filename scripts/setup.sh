#!/usr/bin/env bash
# Makes .venv with everything the project and its tests need. On Debian as root, missing Debian packages are
# installed; without root it says which ones are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

need=()
command -v "$python" >/dev/null || need+=(python3)
command -v git >/dev/null || need+=(git)
"$python" -c 'import ensurepip, venv' 2>/dev/null || need+=(python3-venv)
if ((${#need[@]})); then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "Installing Debian packages: ${need[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
  else
    echo "Missing: ${need[*]}. As root on Debian: apt-get install ${need[*]}" >&2
    exit 1
  fi
fi
"$python" - <<'PY' || { echo "Python 3.11 or newer is needed; set PYTHON to one." >&2; exit 1; }
import sys
sys.exit(sys.version_info < (3, 11))
PY

echo "Making .venv"
"$python" -m venv .venv
echo "Installing coderig and its libraries"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
