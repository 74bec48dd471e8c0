#!/usr/bin/env bash
# ./tests/packages/abi.sh library             prints the interface of a library, which is of a Debug build, in the form of abidw
# ./tests/packages/abi.sh library baseline    compares it with a stored one: functions may come, and none may go or change
set -euo pipefail
library=${1:?the library}
include=$(cd "$(dirname "$0")/../../include/mxq" && pwd)

# Names that mxq.h does not tell are private, as are the insides of handles.
interface() {
    abidw --headers-dir "$include" --drop-private-types --exported-interfaces-only --no-show-locs --no-comp-dir-path \
        --no-corpus-path --no-elf-needed "$library"
}
if [ $# = 1 ]; then
    interface
else
    now=$(mktemp --suffix .abi)
    trap 'rm -f "$now"' EXIT
    interface >"$now"
    abidiff --no-added-syms "$2" "$now"
fi
