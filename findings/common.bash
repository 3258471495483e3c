# What scripts of findings/ share; they begin with
#   source "$(dirname "$0")/common.bash"
set -euo pipefail

# python_with PACKAGE==VERSION...: makes a virtual environment in the current folder, once, and sets
# `python` to its interpreter.
python_with() {
  if [[ ! -x venv/bin/python ]]; then python3 -m venv venv; fi
  venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"
  python=$PWD/venv/bin/python
}

# expect WHAT EXPECTED FOUND: fails where the behaviour is not the one that was seen.
expect() {
  if [[ $2 != "$3" ]]; then
    echo "$1: expected '$2', found '$3'" >&2
    exit 1
  fi
  echo "$1: $3"
}
