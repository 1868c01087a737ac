#!/usr/bin/env bash
# Installs what the benches measure against, where it is missing: a Postgres server with psql, nginx
# with nchan, and GoAccess, from the system's packages.
set -euo pipefail

missing=()
have() { command -v "$1" >/dev/null 2>&1; }
have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
have psql || missing+=(postgresql-client)
have nginx || compgen -G '/usr/sbin/nginx' >/dev/null || missing+=(nginx-light)
compgen -G '/usr/lib/nginx/modules/ngx_nchan_module.so' >/dev/null || missing+=(libnginx-mod-nchan)
have goaccess || missing+=(goaccess)
have ps || missing+=(procps)
if [ ${#missing[@]} -gt 0 ]; then
  if ! have apt-get; then
    echo "install these first: ${missing[*]}" >&2
    exit 1
  fi
  sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo)
  # Debian starts what it installs, unless this says no; the benches bring up their own.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap '"${sudo[@]}" rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
    "${sudo[@]}" chmod +x "$policy"
  fi
  export DEBIAN_FRONTEND=noninteractive
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
