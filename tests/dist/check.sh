#!/usr/bin/env bash
# Tries what `./dev dist` has made on other systems: check.sh FOLDER [ROOTS]. ROOTS keeps the systems from
# one run to the next: bare Debian 12 and 13 and Ubuntu 22.04, each with its Python and NumPy, which
# debootstrap makes where they are missing (as root, from the network). Each system
#   - runs the archive's program in a folder that has four libraries of its glibc and nothing else,
#   - installs the Debian package by dpkg, runs it and removes it,
#   - installs the wheel by pip, runs the program and an example in Python.
# The wheel is tried with each Python 3.8 and later of this machine, too. Texts must be those of this
# machine. What is not available is left out, and a line says so; content.sh looks at the files.
set -euo pipefail
folder=$(cd "$1" && pwd)
roots=${2:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/kvant/roots}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
archive=("$folder"/kvant-*.tar.gz)
package=("$folder"/kvant_*.deb)
wheel=("$folder"/kvant-*.whl)
generate=(run shakespeare -q -p "ROMEO:" -n 48 --temp 0)
failed=0 passed=0 left_out=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

left_out() {
  left_out=$((left_out + 1))
  echo "left out: $*"
}
# check NAME COMMAND...: a command that must succeed; its output is shown if it does not.
check() {
  local name=$1
  shift
  local status=0
  set +e  # the command ends at its first failure, as it would not inside a condition
  (
    set -e
    "$@"
  ) >"$work/output" 2>&1
  status=$?
  set -e
  if ((status == 0)); then
    passed=$((passed + 1))
    echo "passed: $name"
  else
    failed=$((failed + 1))
    echo "FAILED: $name"
    cat "$work/output"
  fi
}

mkdir "$work/here"
tar -C "$work/here" --strip-components=1 -xzf "${archive[0]}"
env -i "$work/here/bin/kvant" "${generate[@]}" >"$work/expected"
echo "What is 174 + 403?" | "$work/here/bin/kvant" chat --temp 0 >"$work/expected_answer"

# ---- Other systems -------------------------------------------------------------------------------

# in_root ROOT COMMAND...: with /proc, which goes away with the command, and an almost empty environment.
in_root() {
  local root=$1
  shift
  # shellcheck disable=SC2016
  unshare --mount bash -c 'mount -t proc proc "$1/proc" && exec chroot "$1" /usr/bin/env -i \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 "${@:2}"' in_root "$root" "$@"
}

# A folder with the dynamic linker, libc, libm and libgcc_s of the system. The system itself reads them,
# since links in it may begin at its own `/`.
with_glibc_alone() {
  local root=$1 bare=$work/bare linker file
  linker=$(readelf -l "$work/here/bin/kvant" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
  rm -rf "$bare"
  mkdir -p "$bare/proc" "$bare/lib64" "$bare/lib" "$bare/opt"
  for file in "$linker" "/lib/$(uname -m)-linux-gnu/"{libc.so.6,libm.so.6,libgcc_s.so.1}; do
    in_root "$root" cat "$file" >"$bare$(dirname "${file/\/$(uname -m)-linux-gnu/}")/$(basename "$file")"
  done
  chmod +x "$bare$linker"
  cp -r "$work/here" "$bare/opt/kvant"
  # shellcheck disable=SC2016
  unshare --mount bash -c 'mount -t proc proc "$1/proc" && exec env -i "$2" "$1" \
    /opt/kvant/bin/kvant "${@:3}"' bare "$bare" "$(command -v chroot)" "${generate[@]}" >"$work/text"
  cmp "$work/text" "$work/expected"
}

by_dpkg() {
  local root=$1
  cp "${package[0]}" "$root/tmp/kvant.deb"
  in_root "$root" dpkg -i /tmp/kvant.deb
  in_root "$root" kvant "${generate[@]}" >"$work/text"
  cmp "$work/text" "$work/expected"
  echo "What is 174 + 403?" | in_root "$root" kvant chat --temp 0 >"$work/answer"
  cmp "$work/answer" "$work/expected_answer"
  in_root "$root" ldconfig -p | grep 'libkvant\.so\.1 '
  [[ -z $(in_root "$root" dpkg --audit) ]]
  in_root "$root" dpkg -P kvant
  rm "$root/tmp/kvant.deb"
  [[ ! -e $root/usr/bin/kvant && ! -e $root/usr/share/kvant ]]
}

by_pip_there() {
  local root=$1
  rm -rf "$root/tmp/wheel"
  mkdir "$root/tmp/wheel"
  cp "${wheel[0]}" "$source/examples/complete.py" "$root/tmp/wheel/"
  in_root "$root" python3 -m venv --system-site-packages /tmp/wheel/venv
  in_root "$root" /tmp/wheel/venv/bin/pip install -q --no-index --no-deps "/tmp/wheel/$(basename "${wheel[0]}")"
  in_root "$root" /tmp/wheel/venv/bin/kvant "${generate[@]}" >"$work/text"
  cmp "$work/text" "$work/expected"
  in_root "$root" /tmp/wheel/venv/bin/python /tmp/wheel/complete.py \
    /tmp/wheel/venv/share/kvant/models/shakespeare/shakespeare.gguf "ROMEO:" >"$work/text"
  [[ -s $work/text ]]
  rm -rf "$root/tmp/wheel"
}

# make_root SUITE COMPONENTS KEYRING: ROOTS/SUITE, or why it is not there.
make_root() {
  local suite=$1 components=$2 keyring=/usr/share/keyrings/$3 root=$roots/$1
  [[ ! -e $root/made ]] || return 0
  if ! command -v debootstrap >/dev/null; then
    left_out "$suite: no debootstrap (apt-get install debootstrap)"
  elif [[ ! -e $keyring ]]; then
    left_out "$suite: no $keyring"
  else
    echo "making $root"
    rm -rf "$root"
    mkdir -p "$roots"
    if debootstrap --variant=minbase --components="$components" --keyring="$keyring" \
      --include=python3-venv,python3-numpy "$suite" "$root" >"$work/debootstrap" 2>&1; then
      touch "$root/made"
      return 0
    fi
    left_out "$suite: debootstrap failed: $(tail -n 1 "$work/debootstrap")"
  fi
  return 1
}

while read -r suite components keyring; do
  if ((EUID != 0)); then
    left_out "$suite: only root makes and enters another system"
    continue
  fi
  make_root "$suite" "$components" "$keyring" || continue
  root=$roots/$suite
  glibc=$(in_root "$root" ldd --version | sed -n '1s/.* //p')
  python=$(in_root "$root" python3 --version)
  check "$suite, glibc $glibc: archive beside glibc alone" with_glibc_alone "$root"
  check "$suite, glibc $glibc: package by dpkg" by_dpkg "$root"
  check "$suite, $python: wheel by pip" by_pip_there "$root"
done <<'EOF'
bookworm main debian-archive-keyring.gpg
trixie main debian-archive-keyring.gpg
jammy main,universe ubuntu-archive-keyring.gpg
EOF

# ---- Pythons of this machine ---------------------------------------------------------------------

by_pip_here() {
  local venv=$work/venv
  rm -rf "$venv"
  "$1" -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check "${wheel[0]}"
  "$venv/bin/kvant" "${generate[@]}" >"$work/text"
  cmp "$work/text" "$work/expected"
  "$venv/bin/python" "$source/examples/complete.py" \
    "$venv/share/kvant/models/shakespeare/shakespeare.gguf" "ROMEO:" >"$work/text"
  [[ -s $work/text ]]
}

seen=' '
for python in $(compgen -c | grep -xE 'python3\.[0-9]+' | sort -uV) \
  "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
  [[ $version == 3.* && $seen != *" $version "* ]] || continue
  ((${version#3.} >= 8)) || continue
  seen+="$version "
  if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    left_out "Python $version: no ensurepip"
    continue
  fi
  check "Python $version here: wheel by pip, with NumPy from its index" by_pip_here "$python"
done

echo "$passed passed, $failed failed, $left_out left out"
((failed == 0))
