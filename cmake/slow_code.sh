#!/bin/sh
# slow_code.sh refuse|allow COMPILER ARGUMENTS... compiles. What ptxas reports as C7500 to C7599 (it ignored setmaxnreg, serialised
# wgmma instructions or added waits of its own) fails, or is not printed. ptxas calls these "info", which its --warning-as-error
# lets pass.
what=$1
shift
messages=$("$@" 2>&1)
status=$?
[ "$what" = refuse ] || messages=$(printf '%s' "$messages" | grep -v '(C75')
[ -z "$messages" ] || printf '%s\n' "$messages" >&2
[ "$status" -eq 0 ] || exit "$status"
case $messages in
*"(C75"*)
    echo "error: ptxas made code slower than it is written (C75xx above)" >&2
    exit 1
    ;;
esac
