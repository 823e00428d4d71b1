#!/bin/sh
# Creates .venv from requirements.lock; does nothing if it is up to date.
#
# The stamp is written last and identifies the lock and the folder: an environment that was interrupted,
# created from another lock or moved is created again, never updated. The package itself is reinstalled
# in editable mode whenever its metadata has changed, which takes a second.
set -eu
cd "$(dirname "$0")/.."
. scripts/packages.sh

OLDEST="3, 11"
BUSY=.venv.making

dependencies_key() { { cat requirements.lock scripts/bootstrap.sh; pwd -P; } | cksum; }
package_key() { cksum <pyproject.toml; }
stamped() { [ "$(cat ".venv/.$1" 2>/dev/null)" = "$("$1_key")" ]; }
up_to_date() { [ -x .venv/bin/python ] && stamped dependencies && stamped package; }

# Print the first interpreter that is new enough; broken shims do not run and are skipped.
find_python() {
    for name in "${PYTHON:-}" python3.11 python3.12 python3.13 python3.14 python3 python; do
        [ -n "$name" ] || continue
        if "$name" -c "import sys; sys.exit(sys.version_info < ($OLDEST))" >/dev/null 2>&1 </dev/null; then
            printf '%s\n' "$name"
            return
        fi
    done
}

# Debian and its derivatives ship Python without the module that installs pip into an environment.
ensure_venv() {
    if "$1" -c "import ensurepip, venv" >/dev/null 2>&1; then return; fi
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(package_manager)" = apt-get ]; then
        install_first_of apt-get "$package" python3-venv || say "apt-get could not install it"
    fi
    "$1" -c "import ensurepip, venv" >/dev/null 2>&1 || fail "$1 cannot create virtual environments" \
        "(it has no ensurepip). As root, install $package, or set PYTHON to another Python 3.11 or newer."
}

# If two run at once, the second waits for the first. The lock is a symbolic link to the process id of its
# holder, because creating a link is atomic everywhere; the lock of a dead process is removed.
take_lock() {
    until ln -s "$$" "$BUSY" 2>/dev/null; do
        holder=$(readlink "$BUSY" || true)
        if [ -n "$holder" ] && ! kill -0 "$holder" 2>/dev/null; then
            rm -f "$BUSY"
        else
            sleep 1
        fi
    done
    trap 'rm -f "$BUSY"' EXIT
    trap 'exit 1' HUP INT TERM
}

pip() { .venv/bin/python -m pip --disable-pip-version-check --no-input "$@" </dev/null >&2; }

if up_to_date; then exit 0; fi
take_lock

if ! { [ -x .venv/bin/python ] && stamped dependencies; }; then
    python=$(find_python)
    [ -n "$python" ] || fail "No Python 3.11 or newer on the PATH: install one, or set PYTHON to its path."
    ensure_venv "$python"
    say "creating .venv from requirements.lock with $("$python" --version 2>&1)"
    rm -rf .venv
    "$python" -m venv .venv
    # The lock is complete, so nothing is resolved; each file must match a hash in it.
    pip install -qq --no-deps --require-hashes -r requirements.lock
    dependencies_key >.venv/.dependencies
fi
if ! stamped package; then
    # The build backend is in the lock, so this needs no network.
    pip install -qq --no-deps --no-index --no-build-isolation --editable .
    package_key >.venv/.package
fi
