#!/bin/sh
# Prints the JAVA_HOME of a Java that Spark can run on; installs one if there is none.
#
# Used as JAVA_HOME="$(scripts/java.sh)". Searches JAVA_HOME, the PATH and the usual system folders; a Java
# that is too old is skipped. If none is found, the package manager installs one.
set -eu
. "$(dirname "$0")/packages.sh"

OLDEST=17
JAVA_FOLDERS=${JAVA_FOLDERS:-"/usr/lib/jvm/* /usr/java/* /Library/Java/JavaVirtualMachines/*/Contents/Home"}

# home_of JAVA: print the home of this java executable if it is new enough, else nothing.
home_of() {
    settings=$("$1" -XshowSettings:properties -version 2>&1 </dev/null) || return 0
    version=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.specification\.version = //p')
    home=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.home = //p')
    # Java 8 calls itself 1.8
    number=${version#1.}
    case $number in
        '' | *[!0-9]*) return 0 ;;
    esac
    if [ "$number" -ge "$OLDEST" ]; then
        printf '%s\n' "$home"
    else
        say "skipping Java $version in $home: Spark needs $OLDEST or newer"
    fi
}

find_home() {
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)"; do
        [ -x "$java" ] || continue
        home=$(home_of "$java")
        [ -z "$home" ] || { printf '%s\n' "$home"; return; }
    done
    # Homebrew installs Java into a folder of its own
    brewed=$(if command -v brew >/dev/null 2>&1; then printf '%s/opt/openjdk*' "$(brew --prefix)"; fi)
    # shellcheck disable=SC2086  # the folders are patterns
    for folder in $JAVA_FOLDERS $brewed; do
        [ -x "$folder/bin/java" ] || continue
        home=$(home_of "$folder/bin/java")
        [ -z "$home" ] || { printf '%s\n' "$home"; return; }
    done
}

packages_of() {
    case $1 in
        apt-get) echo openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless ;;
        dnf | yum) echo java-17-openjdk-headless java-21-openjdk-headless java-17-amazon-corretto-headless ;;
        apk) echo openjdk17-jre-headless openjdk21-jre-headless ;;
        zypper) echo java-17-openjdk-headless java-21-openjdk-headless ;;
        pacman) echo jre17-openjdk-headless jre21-openjdk-headless ;;
        brew) echo openjdk@17 openjdk@21 ;;
    esac
}

home=$(find_home)
if [ -z "$home" ]; then
    manager=$(package_manager)
    [ -n "$manager" ] || fail "No Java $OLDEST or newer found, and no package manager to install it." \
        "Install a JRE $OLDEST or newer and set JAVA_HOME to its folder, then run this again."
    # shellcheck disable=SC2046  # a list of names
    install_first_of "$manager" $(packages_of "$manager") || fail "No Java $OLDEST or newer found, and $manager" \
        "could not install one (its messages are above). As root, install one of:" \
        "$(packages_of "$manager"); or set JAVA_HOME to a JRE $OLDEST or newer. Then run this again."
    home=$(find_home)
    [ -n "$home" ] || fail "$manager installed Java, but no Java $OLDEST or newer was found:" \
        "set JAVA_HOME to the folder of one, then run this again."
fi
printf '%s\n' "$home"
