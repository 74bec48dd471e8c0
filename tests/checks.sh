# What the shell tests share, to be sourced. Each check is a line "pass", "FAIL" or "skip", the last line their numbers.
# shellcheck shell=bash
passed=0 failed=0 skipped=0
check_log=$(mktemp) || exit 1

check() { # name command...: passes if the command does; its output is shown if not
    local name=$1
    shift
    if "$@" >"$check_log" 2>&1; then
        echo "pass  $name"
        passed=$((passed + 1))
    else
        echo "FAIL  $name"
        sed 's/^/      /' "$check_log" | tail -n 30
        failed=$((failed + 1))
        return 1
    fi
}
skip() { # name reason
    echo "skip  $1: $2"
    skipped=$((skipped + 1))
}
finish() {
    rm -f "$check_log"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}
