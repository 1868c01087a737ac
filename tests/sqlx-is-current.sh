#!/usr/bin/env bash
# Checks that .sqlx holds exactly the statements of the code, as a freshly migrated database
# describes them; with --write, makes it so. Runs below tests/with-postgres.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

psql -q -v ON_ERROR_STOP=1 "$PAGETIDE_TEST_POSTGRES" -c 'CREATE DATABASE sqlx'
export DATABASE_URL=${PAGETIDE_TEST_POSTGRES/'///postgres?'/'///sqlx?'}
for migration in migrations/*.sql; do
  psql -q -v ON_ERROR_STOP=1 "$DATABASE_URL" -f "$migration"
done
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
# The macros write one file a statement as they are expanded, so this crate alone is built anew.
touch src/lib.rs
SQLX_OFFLINE_DIR=$fresh cargo check --quiet
if [ "${1:-}" = --write ]; then
  rm -rf .sqlx
  cp -r "$fresh" .sqlx
  chmod 755 .sqlx
elif ! diff -r .sqlx "$fresh"; then
  echo '.sqlx is out of date: make sqlx' >&2
  exit 1
fi
