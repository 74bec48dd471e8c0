# The part that the shell tests share, to be sourced by ./tests/NAME/run.sh build-dir. Each check is a line "pass", "FAIL" or
# "skip", the last line their numbers. It makes the names
#   build      the build directory
#   source     the repository
#   here       the folder of the test
#   work       an empty folder, which is removed at the end
# shellcheck shell=bash disable=SC2034  # those who source this use the names
set -u
build=$(cd "${1:?the build directory}" && pwd) || exit 1
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
passed=0 failed=0 skipped=0

check() { # name command...: passes if the command does; its output is shown if not
    local name=$1
    shift
    if "$@" >"$work/check.log" 2>&1; then
        echo "pass  $name"
        passed=$((passed + 1))
    else
        echo "FAIL  $name"
        sed 's/^/      /' "$work/check.log" | tail -n 30
        failed=$((failed + 1))
        return 1
    fi
}
skip() { # name reason
    echo "skip  $1: $2"
    skipped=$((skipped + 1))
}
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}
