#!/usr/bin/env bash
# Installs what the tests need besides cargo, where it is missing: a Postgres server with psql,
# awk, python3 with the rules of time zones, curl, GoAccess, and a browser with its driver from the
# system's packages, Schemathesis, axe-core, and cargo-nextest.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
have() { command -v "$1" >/dev/null 2>&1; }
have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
have psql || missing+=(postgresql-client)
have awk || missing+=(mawk)
have python3 || missing+=(python3)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
[ -e /usr/share/zoneinfo/Europe/Berlin ] || missing+=(tzdata)
have curl || missing+=(curl)
have ps || missing+=(procps)
have goaccess || missing+=(goaccess)
have chromium || missing+=(chromium)
have chromedriver || missing+=(chromium-driver)
have npm || missing+=(npm)
if [ ${#missing[@]} -gt 0 ]; then
  if ! have apt-get; then
    echo "install these first: ${missing[*]}" >&2
    exit 1
  fi
  sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo)
  # Debian starts a cluster of its own at the installation; the tests bring theirs.
  export DEBIAN_FRONTEND=noninteractive
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
have cargo-nextest || cargo install --locked cargo-nextest

# Schemathesis, in an environment of its own. It is made anew when the versions change.
wanted=tests/schemathesis/requirements.txt
venv=tests/schemathesis/.venv
if ! cmp -s "$wanted" "$venv/installed.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$venv/installed.txt"
fi

# axe-core, which tests load into pages. It is fetched anew when its version changes.
wanted=tests/browser/package-lock.json
installed=tests/browser/node_modules/installed.json
if ! cmp -s "$wanted" "$installed"; then
  npm ci --prefix tests/browser --ignore-scripts --no-audit --no-fund --loglevel=error
  cp "$wanted" "$installed"
fi
