#!/usr/bin/env bash
# Succeeds when Java 17 or newer is there; installs it from the system's packages when it may.
set -euo pipefail

java_major() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    { "$java" -version 2>&1 || true; } | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

is_good() {
    local major
    major=$(java_major)
    [ -n "$major" ] && [ "$major" -ge 17 ]
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
    [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null
}

# Newer releases of a system drop the older Java: take the first that is there.
try_packages() {
    local package
    for package in "${@:2}"; do
        echo "setup: installing $package"
        as_root "$1" install -y "$package" >/dev/null 2>&1 && return
    done
    return 1
}

install_java() {
    if command -v apt-get >/dev/null; then
        as_root apt-get update >/dev/null 2>&1 || true
        DEBIAN_FRONTEND=noninteractive try_packages apt-get \
            openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless
    elif command -v dnf >/dev/null; then
        try_packages dnf java-17-openjdk-headless java-21-openjdk-headless java-latest-openjdk-headless
    else
        return 1
    fi
}

is_good && exit 0
if may_install && install_java && is_good; then exit 0; fi
found=$(java_major)
echo "setup: Java 17 or newer is needed (found: ${found:-none}); install openjdk-17-jre-headless (Debian, Ubuntu) or java-17-openjdk-headless (Fedora), or point JAVA_HOME at one" >&2
exit 1
