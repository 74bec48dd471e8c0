#!/usr/bin/env bash
# ./tests/hardening/run.sh build-dir
# Reads from the built library what an attacker meets: no writable and executable memory, symbols resolved before the first call,
# stack protectors, fortified functions, control-flow protection; and that a program with more rights than its user ignores MXQ_*.
# Writes the list of what the library is made of (SBOM), and checks it.
# shellcheck source=/dev/null disable=SC2154  # it makes build, here, source and work
. "$(dirname "$0")/../checks.sh"

library=$(find "$build/src" -maxdepth 1 -name 'libmxq.so.0' | head -n 1)
if [ -z "$library" ] || ldd "$library" | grep -q 'lib[atu][a-z]*san' || ! command -v readelf >/dev/null; then
    skip "hardening" "needs readelf, and the shared library built without sanitizers"
    finish
fi
dynamic() { readelf -dW "$library"; }
segments() { readelf -lW "$library"; }
imports() { readelf --dyn-syms -W "$library" | grep ' UND '; }

bind_now() { dynamic | grep -q 'FLAGS.*BIND_NOW\|FLAGS_1.*NOW' && segments | grep -q GNU_RELRO; }
no_executable_data() { # no stack and no segment that is both
    segments | grep 'GNU_STACK' | grep -qv 'RWE' && ! segments | grep -E '^ *LOAD.* RWE ' && ! dynamic | grep TEXTREL
}
no_search_path() { ! dynamic | grep -E 'RPATH|RUNPATH'; }
protected() { imports | grep -q '__stack_chk_fail' && imports | grep -q '_chk@'; }
# The linker notes it for the library where the C runtime of the system has it, too; so each object is read.
control_flow() {
    local object count=0
    while read -r object; do
        readelf -nW "$object" | grep -q 'IBT, SHSTK' || { echo "$object has none" && return 1; }
        count=$((count + 1))
    done < <(find "$build/src/CMakeFiles" -name '*.cpp.o')
    [ "$count" -ge 80 ]
}

check "RELRO, and symbols bound when the library is loaded" bind_now
check "no memory is writable and executable" no_executable_data
check "the library names no folder to search" no_search_path
if grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=Debug' "$build/CMakeCache.txt"; then
    skip "stack protectors and fortified functions" "a debug build has none of the second"
else
    check "stack protectors and fortified functions" protected
fi
if [ "$(uname -m)" != x86_64 ] || [ -z "$(find "$build/src/CMakeFiles" -name '*.cpp.o' 2>/dev/null | head -n 1)" ]; then
    skip "control-flow protection" "the note is of x86-64 objects, which are not here"
else
    check "control-flow protection (IBT and shadow stack) in every object" control_flow
fi

# ---- Rights ----------------------------------------------------------------------------------------------------------

# Creates a context, or prints why not. MXQ_CPU_ISA=wrong is refused where it is read.
program() {
    cat >"$work/open.c" <<'END'
#include <mxq/mxq.h>
#include <stdio.h>
int main(void) {
    mxq_context* context = NULL;
    if (mxq_context_create(MXQ_DEVICE_CPU, 0, NULL, &context)) return puts(mxq_last_error()), 1;
    mxq_context_destroy(context);
    return 0;
}
END
    mkdir -p "$work/bin" && cp "$library" "$work/bin" &&
        "${CC:-cc}" "$work/open.c" -o "$work/bin/open" -I"$source/include" "$work/bin/libmxq.so.0" "-Wl,-rpath,$work/bin" && chmod 755 "$work" "$work/bin"
}
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups env MXQ_CPU_ISA=wrong MXQ_IMPL=wrong "$work/bin/open"; }
reads_variables() { ! as_nobody >"$work/said" && grep -q 'MXQ_IMPL\|MXQ_CPU_ISA' "$work/said"; }
ignores_variables() { chmod u+s "$work/bin/open" && as_nobody; }
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && ! findmnt -no OPTIONS -T "$work" 2>/dev/null | grep -q nosuid; then
    if check "a program that opens a context" program; then
        check "MXQ_* is read in a program without more rights" reads_variables
        check "MXQ_* is ignored in a set-uid program" ignores_variables
    fi
else
    skip "MXQ_* in set-uid programs" "needs root, setpriv, and a folder that allows set-uid"
fi

# ---- What it is made of ----------------------------------------------------------------------------------------------

sbom() { python3 "$here/sbom.py" "$build" >"$work/sbom.json" && python3 "$here/sbom.py" "$build" | cmp - "$work/sbom.json"; }
sbom_fits() {
    python3 - "$work/sbom.json" "$library" <<'END'
import hashlib, json, sys
bom = json.load(open(sys.argv[1]))
assert bom["bomFormat"] == "CycloneDX" and bom["specVersion"] == "1.5"
digest = hashlib.sha256(open(sys.argv[2], "rb").read()).hexdigest()
assert bom["metadata"]["component"]["hashes"][0]["content"] == digest
names = {one["name"] for one in bom["components"]}
assert any(name.startswith("libc.so") for name in names) and len(names) == len(bom["components"]), names
END
}
if command -v python3 >/dev/null; then
    check "an SBOM of the library, twice the same" sbom
    check "the SBOM has the library's digest and what it needs" sbom_fits
else
    skip "the SBOM" "python3 is not here"
fi
finish
