#!/usr/bin/env bash
# ./docs/build.sh [folder]
# Makes the site of the pages and of the headers in the folder (build/site): Doxygen reads mxq.h and mxq.hpp, Sphinx makes the
# pages. A warning of either, a link to nothing or an anchor that is not there is an error.
# Installs Doxygen with apt-get and Python packages (docs/site/requirements.txt) in build/site-env, where they are missing.
#   MXQ_SITE_ENV=folder    the virtual environment, in place of build/site-env
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-build/site}
mkdir -p "$out"
out=$(cd "$out" && pwd)
env=${MXQ_SITE_ENV:-build/site-env}

# Exit code 3: what is missing could not be installed.
cannot_install() {
    echo "cannot install $1: $2" >&2
    exit 3
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! command -v doxygen >/dev/null; then
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    # shellcheck disable=SC2086  # sudo is a word or none
    { timeout 120 $sudo apt-get update -qq &&
        timeout 300 $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq \
            --no-install-recommends doxygen; } >"$work/apt" 2>&1 || cannot_install doxygen "$(tail -n 1 "$work/apt")"
fi
if ! cmp -s docs/site/requirements.txt "$env/requirements.txt"; then
    { python3 -m venv "$env" && "$env/bin/pip" install --quiet --disable-pip-version-check -r docs/site/requirements.txt; } \
        >"$work/pip" 2>&1 || cannot_install "the packages of docs/site/requirements.txt" "$(tail -n 1 "$work/pip")"
    cp docs/site/requirements.txt "$env/requirements.txt"
fi

# ---- The headers -----------------------------------------------------------------------------------------------------

# Doxygen does not tell of a filter that fails.
python3 docs/site/header_for_doxygen.py include/mxq/mxq.h >"$work/header"
python3 docs/site/cpp_for_doxygen.py include/mxq/mxq.hpp >"$work/header"
(cat docs/site/Doxyfile && echo "OUTPUT_DIRECTORY = $work") | doxygen -

# ---- The pages -------------------------------------------------------------------------------------------------------

# Sphinx wants its first page at the top, where a forge wants README.md: it reads a copy, with its own three pages added.
mkdir "$work/tree"
tar --exclude='./build*' --exclude=./.git -cf - . | tar -C "$work/tree" -xf -
cp docs/site/index.md docs/site/reference.md docs/site/cpp.md "$work/tree"
"$env/bin/python" -m sphinx -q -W --keep-going -n -j auto -b html -c "$work/tree/docs/site" -d "$work/doctrees" \
    -D "breathe_projects.mxq=$work/xml" "$work/tree" "$out"
echo "$out/index.html"
