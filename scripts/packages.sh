# shellcheck shell=sh
# Functions that install system packages with the package manager of the machine; sourced by the other scripts.
#
# Messages go to standard error; standard output of a script is its result.

say() { printf '%s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# Print the package manager of this machine, or nothing.
package_manager() {
    for manager in apt-get dnf yum apk zypper pacman brew; do
        if command -v "$manager" >/dev/null 2>&1; then
            printf '%s\n' "$manager"
            return
        fi
    done
}

# Run a command as root: directly, or through sudo, which may prompt only in a terminal.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif ! command -v sudo >/dev/null 2>&1; then
        say "not root, and there is no sudo"
        return 1
    elif [ -t 0 ] && [ -z "${CI:-}" ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

# install_package MANAGER NAME: install without prompts, quiet unless it fails.
install_package() {
    case $1 in
        apt-get) as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$2" ;;
        dnf | yum) as_root "$1" install -y -q "$2" ;;
        apk) as_root apk add --no-cache "$2" ;;
        zypper) as_root zypper --non-interactive install --no-recommends "$2" ;;
        pacman) as_root pacman -S --noconfirm --needed "$2" ;;
        brew) brew install --quiet "$2" ;;
    esac </dev/null >&2
}

# refresh_packages MANAGER: update the package index, if the manager does not do so by itself.
refresh_packages() {
    case $1 in
        apt-get) as_root apt-get update -q ;;
        pacman) as_root pacman -Sy --noconfirm ;;
    esac </dev/null >&2
}

# install_first_of MANAGER NAME...: install the first of these packages that can be installed.
install_first_of() {
    manager=$1
    shift
    refresh_packages "$manager" || say "$manager could not refresh its index; trying with the one it has"
    for name in "$@"; do
        say "installing $name with $manager"
        if install_package "$manager" "$name"; then
            return 0
        fi
    done
    return 1
}
