#!/bin/sh
# refuse_slow_code.sh COMPILER ARGUMENTS... compiles, and fails if ptxas reports that it ignored setmaxnreg, serialised wgmma
# instructions or added waits of its own (C7500 to C7599). ptxas calls these "info", which its --warning-as-error lets pass.
messages=$("$@" 2>&1)
status=$?
[ -z "$messages" ] || printf '%s\n' "$messages" >&2
[ "$status" -eq 0 ] || exit "$status"
case $messages in
*"(C75"*)
    echo "error: ptxas made code slower than it is written (C75xx above)" >&2
    exit 1
    ;;
esac
