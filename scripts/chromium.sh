#!/bin/sh
# Prints the Chromium for the browser tests; installs it if there is none.
set -eu
. "$(dirname "$0")/packages.sh"

find_browser() {
    for name in chromium chromium-browser google-chrome; do
        found=$(command -v "$name" || true)
        [ -z "$found" ] || { printf '%s\n' "$found"; return; }
    done
}

browser=$(find_browser)
if [ -z "$browser" ]; then
    manager=$(package_manager)
    [ -n "$manager" ] || fail "No Chromium found, and no package manager to install it." \
        "Install Chromium and put it on the PATH, then run this again."
    install_first_of "$manager" chromium chromium-browser || fail \
        "No Chromium found, and $manager could not install it (its messages are above)." \
        "As root, install the package chromium, then run this again."
    browser=$(find_browser)
    [ -n "$browser" ] || fail "$manager installed Chromium, but it was not found: put it on the PATH."
fi
printf '%s\n' "$browser"
