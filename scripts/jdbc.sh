#!/bin/sh
# Prints the path of the PostgreSQL JDBC driver for tests and benchmarks; installs it if there is none.
#
# Used as POSTGRES_JDBC="$(scripts/jdbc.sh)". Slackwater itself reads PostgreSQL without it.
set -eu
. "$(dirname "$0")/packages.sh"

JDBC_FILES=${JDBC_FILES:-"/usr/share/java/postgresql.jar /usr/share/java/postgresql-jdbc.jar
    /usr/share/java/postgresql-jdbc/postgresql.jar"}

find_driver() {
    for file in $JDBC_FILES; do
        [ ! -f "$file" ] || { printf '%s\n' "$file"; return; }
    done
}

driver=$(find_driver)
if [ -z "$driver" ]; then
    manager=$(package_manager)
    [ -n "$manager" ] || fail "No PostgreSQL JDBC driver found, and no package manager to install it." \
        "Set POSTGRES_JDBC to the path of one, then run this again."
    install_first_of "$manager" libpostgresql-jdbc-java postgresql-jdbc || fail \
        "No PostgreSQL JDBC driver found, and $manager could not install one (its messages are above)." \
        "As root, install libpostgresql-jdbc-java or postgresql-jdbc, then run this again."
    driver=$(find_driver)
    [ -n "$driver" ] || fail "$manager installed a PostgreSQL JDBC driver, but its file was not found:" \
        "set POSTGRES_JDBC to it, then run this again."
fi
printf '%s\n' "$driver"
