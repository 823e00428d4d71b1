#!/bin/sh
# Prints the file of PostgreSQL's JDBC driver for the tests and benchmarks, and installs it if there is none.
#
# Used as POSTGRES_JDBC="$(scripts/jdbc.sh)". Nothing else needs it: Slackwater reads PostgreSQL without it.
set -eu
. "$(dirname "$0")/packages.sh"

JDBC_PLACES=${JDBC_PLACES:-"/usr/share/java/postgresql.jar /usr/share/java/postgresql-jdbc.jar
    /usr/share/java/postgresql-jdbc/postgresql.jar"}

find_driver() {
    for place in $JDBC_PLACES; do
        [ ! -f "$place" ] || { printf '%s\n' "$place"; return; }
    done
}

driver=$(find_driver)
if [ -z "$driver" ]; then
    manager=$(package_manager)
    [ -n "$manager" ] || fail "No JDBC driver of PostgreSQL, and no package manager that could install it." \
        "Set POSTGRES_JDBC to the file of one, then run this again."
    install_first_of "$manager" libpostgresql-jdbc-java postgresql-jdbc || fail \
        "No JDBC driver of PostgreSQL, and $manager could not install one (its messages are above)." \
        "As root, install libpostgresql-jdbc-java or postgresql-jdbc, then run this again."
    driver=$(find_driver)
    [ -n "$driver" ] || fail "$manager installed a JDBC driver of PostgreSQL, but its file was not found:" \
        "set POSTGRES_JDBC to it, then run this again."
fi
printf '%s\n' "$driver"
