#!/bin/sh
# Prints the home of a Java that Spark can run on, and installs one if there is none.
#
# Used as JAVA_HOME="$(scripts/java.sh)". Looks at JAVA_HOME, then at the PATH, then where systems put
# their Javas; a Java that is too old is passed over. Only then is a package manager asked.
set -eu
. "$(dirname "$0")/packages.sh"

OLDEST=17
JAVA_PLACES=${JAVA_PLACES:-"/usr/lib/jvm/* /usr/java/* /Library/Java/JavaVirtualMachines/*/Contents/Home"}

# home_of JAVA: the home of this java executable if it is new enough, else nothing.
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
        say "passing over Java $version in $home: Spark needs $OLDEST or newer"
    fi
}

find_home() {
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)"; do
        [ -x "$java" ] || continue
        home=$(home_of "$java")
        [ -z "$home" ] || { printf '%s\n' "$home"; return; }
    done
    # Homebrew leaves its Javas where nothing else looks
    brewed=$(if command -v brew >/dev/null 2>&1; then printf '%s/opt/openjdk*' "$(brew --prefix)"; fi)
    # shellcheck disable=SC2086  # the places are patterns
    for place in $JAVA_PLACES $brewed; do
        [ -x "$place/bin/java" ] || continue
        home=$(home_of "$place/bin/java")
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
    [ -n "$manager" ] || fail "No Java $OLDEST or newer, and no package manager that could install it." \
        "Install a JRE $OLDEST or newer and set JAVA_HOME to its folder, then run this again."
    # shellcheck disable=SC2046  # a list of names
    install_first_of "$manager" $(packages_of "$manager") || fail "No Java $OLDEST or newer, and $manager" \
        "could not install one (its messages are above). As root, install one of:" \
        "$(packages_of "$manager"); or set JAVA_HOME to a JRE $OLDEST or newer. Then run this again."
    home=$(find_home)
    [ -n "$home" ] || fail "$manager installed a Java, but none that is $OLDEST or newer was found:" \
        "set JAVA_HOME to the folder of one, then run this again."
fi
printf '%s\n' "$home"
