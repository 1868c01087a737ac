#!/usr/bin/env bash
# Runs a command with PAGETIDE_TEST_POSTGRES naming a fresh Postgres, which ends with it.
#
# The server listens on a Unix socket alone, with fsync on, as it would be in earnest. Its folder is
# in memory where there is room: the tests are about what is committed, not about disks.
set -euo pipefail

bin=$(dirname "$(command -v initdb || ls -d /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)")
parent=${TMPDIR:-/tmp}
room=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1 || true)
if [ "${room:-0}" -gt 2000000 ]; then
  parent=/dev/shm
fi
folder=$(mktemp -d "$parent/pagetide-test.XXXXXX")
as=()
if [ "$(id -u)" = 0 ]; then
  # Postgres refuses to run as root.
  id -u postgres >/dev/null 2>&1 || useradd --system postgres
  chown postgres "$folder"
  as=(setpriv --reuid=postgres --regid="$(id -g postgres)" --clear-groups)
fi

stop() {
  (cd / && "${as[@]}" "$bin/pg_ctl" -D "$folder/data" -m immediate -w stop >/dev/null 2>&1) || true
  rm -rf "$folder"
}
trap stop EXIT

(
  cd /
  "${as[@]}" "$bin/initdb" -D "$folder/data" -U postgres --auth=trust --encoding=UTF8 --locale=C >/dev/null
  "${as[@]}" "$bin/pg_ctl" -D "$folder/data" -l "$folder/log" -w start >/dev/null -o "\
    -c listen_addresses='' -c unix_socket_directories='$folder' -c max_connections=400 \
    -c log_min_messages=fatal"
)
export PAGETIDE_TEST_POSTGRES="postgres:///postgres?host=$folder&user=postgres"
"$@"
