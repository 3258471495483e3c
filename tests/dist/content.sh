#!/usr/bin/env bash
# What `./dev dist` gives away: content.sh BUILD_DIR. Makes archive, package and wheel of
# BUILD_DIR/dist/prefix and looks at what they need, what is in them, and whether the program starts
# from an unpacked archive without an environment. check.sh runs them on other systems.
set -euo pipefail
build=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
work=$build/dist_test
failed=0
wrong() {
  echo "$*" >&2
  failed=1
}
rm -rf "$work"
mkdir -p "$work"
python3 "$source/python/make_dist.py" "$build/dist/prefix" "$work/out" >"$work/paths"
[[ $(wc -l <"$work/paths") == 4 ]] || wrong "expected 4 paths, found: $(cat "$work/paths")"
(cd "$work/out" && sha256sum --quiet -c SHA256SUMS) || wrong "SHA256SUMS differ"
[[ $(wc -l <"$work/out/SHA256SUMS") == 3 ]] || wrong "expected 3 checksums"
package=("$work"/out/kvant_*.deb)
wheel=("$work"/out/kvant-*.whl)

# A folder whose name has a blank, and no environment.
mkdir "$work/a folder"
tar -C "$work/a folder" -xzf "$work"/out/kvant-*.tar.gz
root=("$work/a folder"/kvant-*-linux-"$(uname -m)")
program=${root[0]}/bin/kvant
library=${root[0]}/lib/libkvant.so.1
env -i "$program" --version >"$work/version"
grep -q 'oneDNN absent, OpenBLAS absent' "$work/version" || wrong "unexpected: $(cat "$work/version")"
generate=(run shakespeare -q -p "ROMEO:" -n 24 --temp 0)
env -i "$program" "${generate[@]}" >"$work/text"
"$build/kvant" "${generate[@]}" >"$work/expected"
[[ -s $work/text ]] || wrong "no text"
cmp "$work/text" "$work/expected" || wrong "another text than that of $build/kvant"

# Symbols of glibc 2.34 and older, of libraries that every system with glibc has.
for binary in "$program" "$library"; do
  newest=$(objdump -T "$binary" | grep -o 'GLIBC_2[.][0-9]*' | sort -uV | tail -n 1)
  [[ $(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -n 1) == GLIBC_2.34 ]] ||
    wrong "$binary: expected symbols of GLIBC_2.34 or older, found $newest"
  extra=$(objdump -p "$binary" | awk '$1 ~ /^(NEEDED|RPATH|RUNPATH|TEXTREL)$/ { print $1, $2 }' |
    grep -vE '^NEEDED (lib(c|m|gcc_s)\.so\.[16]|ld-linux-.*\.so\.[12])$') || true
  [[ -z $extra ]] || wrong "$binary: expected nothing but glibc and libgcc_s, found $extra"
  ! grep -qF "$source" "$binary" || wrong "$binary has the path of its sources"
done
bash "$source/tests/capi/exports.sh" "$library" "$source"/include/kvant/kvant*.h >"$work/exports" ||
  wrong "$(cat "$work/exports")"

# A program in C, by pkg-config.
pc=${root[0]}/lib/pkgconfig
ln -sfn "${root[0]}" "$work/prefix"  # flags of pkg-config have no blanks
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
[[ -e $pc/kvant.pc ]] || wrong "no kvant.pc"
# shellcheck disable=SC2046
cc -std=c99 "$source/examples/complete.c" -o "$work/complete" $(pkg-config --cflags --libs kvant) \
  -Wl,-rpath,"$work/prefix/lib"
"$work/complete" "${root[0]}/share/kvant/models/shakespeare/shakespeare.gguf" "ROMEO:" >"$work/c_text"
[[ -s $work/c_text ]] || wrong "no text of complete.c"

# By CMake the component c, and no other.
mkdir "$work/cmake"
cat >"$work/cmake/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(in_c LANGUAGES C)
find_package(kvant 0.1 REQUIRED COMPONENTS c)
find_package(kvant 0.1 QUIET COMPONENTS cpp)
if(NOT TARGET kvant::c OR kvant_FOUND)
  message(FATAL_ERROR "expected kvant::c alone")
endif()
EOF
cmake -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_PREFIX_PATH="${root[0]}" >"$work/cmake/log" 2>&1 ||
  wrong "find_package: $(cat "$work/cmake/log")"

# Manual, completions, and the licenses of all that is linked in.
commands=$("$program" --help | grep -cE '^  [a-z]+  ')
pages=("${root[0]}"/share/man/man1/*.1)
((${#pages[@]} == commands + 1)) || wrong "expected $((commands + 1)) pages, found ${#pages[@]}"
for file in share/bash-completion/completions/kvant share/zsh/site-functions/_kvant \
  share/doc/kvant/copyright include/kvant/kvant.h; do
  [[ -s ${root[0]}/$file ]] || wrong "no $file"
done
python3 - "$source/tests/docs" "${root[0]}/share/doc/kvant" <<'EOF' >"$work/links" || wrong "links: $(cat "$work/links")"
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import check_docs
import markdown

root = Path(sys.argv[2])
pages = {path.resolve(): markdown.Page(path.read_text(encoding="utf-8")) for path in root.rglob("*.md")}
wrong = [f"{path}:{line}: {what}" for path in pages for line, what in check_docs.check_links(root, path, pages)]
print(*wrong, sep="\n")
sys.exit(bool(wrong) or not pages)
EOF
for name in fmt pcre2 utf8proc xxhash zlib nlohmann-json cli11 libstdc++; do
  grep -qiE 'copyright|license' "${root[0]}/share/doc/kvant/licenses/$name" || wrong "no license: $name"
done

# The package has the archive's files and needs glibc alone.
depends=$(dpkg-deb -f "${package[0]}" Depends)
[[ $depends == 'libc6 (>= 2.34)' ]] || wrong "expected libc6 (>= 2.34), found $depends"
dpkg-deb -x "${package[0]}" "$work/installed"
diff -r --no-dereference "${root[0]}" "$work/installed/usr" || wrong "archive and package differ"
dpkg-deb -e "${package[0]}" "$work/control"
(cd "$work/installed" && md5sum --quiet -c "$work/control/md5sums") || wrong "md5sums differ"

# The wheel has the same binaries and models.
python3 -m zipfile -e "${wheel[0]}" "$work/wheel"
data=$(echo "$work"/wheel/kvant-*.data)
cmp "$data/scripts/kvant" "$program" || wrong "the wheel has another program"
cmp "$work/wheel/kvant/lib/libkvant.so.1" "$library" || wrong "the wheel has another library"
for folder in kvant man; do
  diff -r "$data/data/share/$folder" "${root[0]}/share/$folder" || wrong "the wheel lacks $folder"
done
diff -r "${root[0]}/share/doc/kvant/licenses" "$work"/wheel/kvant-*.dist-info/licenses |
  grep -vE '^Only in .*: LICENSE$' && wrong "the wheel has other licenses"
if [[ ${wheel[0]} =~ manylinux_2_([0-9]+)_ ]]; then
  ((BASH_REMATCH[1] <= 34)) || wrong "${wheel[0]}: expected a tag of glibc 2.34 or older"
else
  wrong "${wheel[0]}: no tag of glibc"
fi

# The same files give the same bytes, whenever they were installed.
cp -r "$build/dist/prefix" "$work/again"
find "$work/again" -exec touch -h -d '2001-01-01' {} +
python3 "$source/python/make_dist.py" "$work/again" "$work/out_again" >/dev/null
cmp "$work/out/SHA256SUMS" "$work/out_again/SHA256SUMS" || wrong "the same files, other bytes"

((failed)) || rm -rf "$work"
exit "$failed"
