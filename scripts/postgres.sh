#!/bin/sh
# Prints the folder of the PostgreSQL server programs for the tests; installs PostgreSQL if there is none.
#
# The tests start their own server from it, on loopback, in a temporary folder.
set -eu
. "$(dirname "$0")/packages.sh"

POSTGRES_FOLDERS=${POSTGRES_FOLDERS:-"/usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/libexec/postgresql*"}

find_programs() {
    found=$(command -v initdb || true)
    if [ -n "$found" ]; then
        dirname "$(readlink -f "$found")"
        return
    fi
    # shellcheck disable=SC2086  # the folders are patterns
    for folder in $POSTGRES_FOLDERS; do
        [ ! -x "$folder/initdb" ] || newest=$folder
    done
    printf '%s\n' "${newest:-}"
}

programs=$(find_programs)
if [ -z "$programs" ]; then
    manager=$(package_manager)
    [ -n "$manager" ] || fail "No PostgreSQL server found, and no package manager to install it." \
        "Install PostgreSQL 13 or newer and put its initdb on the PATH, then run this again."
    install_first_of "$manager" postgresql postgresql-server postgresql17 postgresql16 || fail \
        "No PostgreSQL server found, and $manager could not install one (its messages are above)." \
        "As root, install the package postgresql, then run this again."
    programs=$(find_programs)
    [ -n "$programs" ] || fail "$manager installed PostgreSQL, but its initdb was not found: put it on the PATH."
fi
printf '%s\n' "$programs"
