#!/usr/bin/env bash
# How the program behaves where the world does not: every command with every stream closed, full and
# broken, under limits of memory, files, file sizes and stack, in folders that take no file, without
# an environment, and at signals. What is expected, exit codes and what is left on disk, stands here;
# what differs is printed, and fails.
#
#   bash tests/cli/manners.sh build/release/kvant
set -u

kvant=$(readlink -f "${1:?expected the program}")
model=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../../models/shakespeare/shakespeare.gguf")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
checks=0

fail() {
  echo "FAILED $*"
  failures=$((failures + 1))
}

# expect NAME FOUND EXPECTED: the expected one is a pattern.
expect() {
  checks=$((checks + 1))
  # shellcheck disable=SC2053
  [[ $2 == $3 ]] || fail "$1: expected '$3', found '$2'"
}

# ---- The commands --------------------------------------------------------------------------------

mkdir "$work/in" "$work/empty"
printf 'To be, or not to be, that is the question:\nWhether it is nobler %.0s' {1..40} >"$work/in/text"
printf '{"prompt":"ROMEO:"}\n{"prompt":"JULIET:"}\n' >"$work/in/prompts"
printf '[{"role":"user","content":"Speak."}]' >"$work/in/messages"
printf 'new A\nappend A "ROMEO:"\nfork A B\ngenerate B 3\n' >"$work/in/program"

# name | prints to stdout | writes to stderr | files it leaves | arguments
# IN is the folder of inputs, MODEL the model.
table="
run      | yes | log | -           | run MODEL -p ROMEO: -n 4 --temp 0 --log kv
json     | yes | log | -           | run MODEL -p ROMEO: -n 4 --temp 0 --json -s 1 --log kv
session  | yes | log | s           | run MODEL -p ROMEO: -n 4 --temp 0 --session s --log kv
message  | yes | log | -           | run MODEL --chat --chat-template chatml -p ROMEO: -n 4 --temp 0 --log kv
chat     | yes | log | -           | chat MODEL --chat-template chatml -p ROMEO: --single-turn -n 4 --temp 0 --log kv
beams    | yes | log | -           | run MODEL -p ROMEO: -n 4 --beams 2 --log kv
batch    | yes | log | -           | run MODEL --prompts IN/prompts -n 4 --temp 0 -s 1 --log kv
seq      | yes | log | -           | seq MODEL -f IN/program --log kv
inspect  | yes | -   | -           | inspect MODEL --tensors --memory
tokenize | yes | -   | -           | tokenize MODEL -f IN/text
template | yes | -   | -           | template MODEL IN/messages --chat-template chatml
score    | yes | log | -           | score MODEL -p ROMEO: --log kv
logits   | no  | log | l.npy       | logits MODEL -p ROMEO: -o l.npy --log kv
measure  | yes | log | -           | perplexity MODEL IN/text -c 16 --chunks 2 --log kv
save     | yes | log | p.logits    | perplexity MODEL IN/text -c 16 --chunks 2 --save-logits p.logits --log kv
imatrix  | no  | log | i           | imatrix MODEL IN/text -c 16 --chunks 2 -o i --log kv
bench    | yes | log | -           | bench MODEL -p 4 -n 2 -r 1 --no-bounds --progress -b 1
hash     | yes | -   | -           | hash MODEL
quantize | yes | -   | q.gguf      | quantize MODEL q.gguf Q4_0 --requantize
split    | yes | -   | p-*         | split MODEL p --max-tensors 100
merge    | no  | -   | m.gguf      | merge MODEL m.gguf
convert  | no  | err | -           | convert WORK/empty c.gguf
help     | yes | -   | -           | --help
version  | yes | -   | -           | --version
wrong    | no  | err | -           | run MODEL --no-such-option
missing  | no  | err | -           | run nothing.gguf
"

names=()
declare -A prints errors leaves arguments code_of
while IFS='|' read -r name print error leave words; do
  name=${name// /}
  [[ -n $name ]] || continue
  names+=("$name")
  prints[$name]=${print// /}
  errors[$name]=${error// /}
  leaves[$name]=${leave// /}
  words=${words//MODEL/$model}
  words=${words//IN\//$work/in/}
  arguments[$name]=${words//WORK/$work}
  case $name in wrong) code_of[$name]=2 ;; missing | convert) code_of[$name]=1 ;; *) code_of[$name]=0 ;; esac
done <<<"$table"

# begin: an empty folder to run in.
begin() {
  rm -rf "$work/run"
  mkdir "$work/run"
  : >"$work/out"
  cd "$work/run" || exit 1
}

# start NAME: the command of that name, one thread.
start() {
  # shellcheck disable=SC2086
  case $1 in
    run | json | session | message | chat | beams | batch | seq | score | logits | measure | save | imatrix | bench)
      "$kvant" ${arguments[$1]} -t 1 ;;
    *) "$kvant" ${arguments[$1]} ;;
  esac
}

# left NAME WHAT: nothing but the files that the command leaves, none if WHAT is "nothing".
left() {
  local files expected=${leaves[$1]}
  [[ $2 != nothing && $expected != - ]] || expected=
  files=$(find . -mindepth 1 -printf '%P\n' | sort | paste -sd' ')
  expect "$1, files that are left" "$files" "$expected"
}

# Numbers that differ from run to run are left out of a comparison; a bench prints little else.
stable() {
  if [[ $1 == bench ]]; then tr -d '0-9. -'; else differing; fi
}
differing() { sed -E '/not counted/d; s/[0-9]+\.[0-9]+(e-[0-9]+)?|"(test_time|seed)": ?[^,]*//g'; }

# ---- Streams -------------------------------------------------------------------------------------

# A pipe that nobody reads any more.
mkfifo "$work/pipe"
exec 9<>"$work/pipe" 8>"$work/pipe" 9<&-

for name in "${names[@]}"; do
  code=${code_of[$name]}
  begin
  start "$name" >"$work/out" 2>"$work/err"
  expect "$name" $? "$code"
  left "$name" all
  expect "$name, text on stdout" "$(wc -c <"$work/out")" "$([[ ${prints[$name]} == yes ]] && echo '[1-9]*' || echo 0)"
  expect "$name, text on stderr" "$(wc -c <"$work/err")" "$([[ ${errors[$name]} == - ]] && echo 0 || echo '[1-9]*')"
  stable "$name" <"$work/out" >"$work/stable"

  # stdout: an error with code 1 where there is something to print; a reader that has gone away is
  # none, and is not mentioned.
  unwritten=$code
  [[ ${prints[$name]} == no ]] || unwritten=1
  begin
  start "$name" >&- 2>"$work/err"
  expect "$name, stdout closed" $? "$unwritten"
  left "$name" all
  [[ ${prints[$name]} == no ]] ||
    expect "$name, stdout closed" "$(tail -1 "$work/err")" "kvant: cannot write to standard output: Bad file descriptor"
  begin
  start "$name" >/dev/full 2>"$work/err"
  expect "$name, stdout full" $? "$unwritten"
  left "$name" all
  [[ ${prints[$name]} == no ]] ||
    expect "$name, stdout full" "$(tail -1 "$work/err")" "kvant: cannot write to standard output: No space left on device"
  begin
  start "$name" >&8 2>"$work/err"
  expect "$name, stdout broken" $? "$code"
  left "$name" all
  expect "$name, stdout broken" "$(grep -c 'standard output' "$work/err")" 0

  # stderr: what cannot be told is lost, and nothing else.
  for stream in closed full broken; do
    begin
    case $stream in
      closed) start "$name" >"$work/out" 2>&- ;;
      full) start "$name" >"$work/out" 2>/dev/full ;;
      broken) start "$name" >"$work/out" 2>&8 ;;
    esac
    expect "$name, stderr $stream" $? "$code"
    left "$name" all
    expect "$name, stderr $stream, same output" \
      "$(stable "$name" <"$work/out" | cmp - "$work/stable" >/dev/null && echo same)" same
  done
  begin
  start "$name" <&- >&- 2>&-
  expect "$name, all closed" $? "$unwritten"
  left "$name" all
done
exec 8>&-
begin
"$kvant" run "$model" - -n 1 <&- >/dev/null 2>"$work/err"
expect "stdin closed" "$? $(cat "$work/err")" "1 kvant: standard input: cannot read: Bad file descriptor"

# ---- Limits --------------------------------------------------------------------------------------

# The command ends by itself, with a result or with an error.
for name in run batch imatrix quantize hash seq; do
  for limit in "-v 40000" "-v 120000" "-v 250000" "-v 400000" "-n 3" "-n 4" "-n 6" "-s 256"; do
    begin
    # shellcheck disable=SC2086
    (ulimit $limit 2>/dev/null && start "$name") >/dev/null 2>"$work/err"
    code=$?
    # 127: the linker finds no room for the libraries.
    expect "$name, ulimit $limit ($(tail -1 "$work/err"))" "$code" "@(0|1|127)"
    if ((code == 0)); then left "$name" all; else left "$name" nothing; fi
  done
done
begin
(ulimit -v 600000 && "$kvant" run "$model" -t 1000 -n 1) >/dev/null 2>"$work/err"
expect "1000 threads in too little memory ($(tail -1 "$work/err"))" $? "@(0|1)"
for name in session logits save imatrix quantize split merge; do
  begin
  # Through a pipe, since the limit would hold for a file with the messages, too.
  message=$( (ulimit -f 4 && start "$name") 2>&1 >/dev/null | tail -1
    exit "${PIPESTATUS[0]}")
  code=$?
  if [[ $name == imatrix || $name == logits ]] && ((code == 0)); then continue; fi  # small enough
  expect "$name, ulimit -f" "$code $message" "1 kvant: *File too large"
  left "$name" nothing
done

# ---- Folders that take no file -------------------------------------------------------------------

for folder in /proc "$work/locked"; do
  mkdir -p "$work/locked"
  chmod 555 "$work/locked"
  [[ $folder == /proc ]] || ((EUID != 0)) || continue # root may write everywhere
  for command in "run $model -n 1 --session $folder/s" "logits $model --tokens 1 -o $folder/l" \
    "imatrix $model $work/in/text -c 16 --chunks 1 -o $folder/i" \
    "quantize $model $folder/q Q4_0 --requantize" "split $model $folder/p --max-tensors 100" \
    "merge $model $folder/m"; do
    begin
    # shellcheck disable=SC2086
    "$kvant" $command >/dev/null 2>"$work/err"
    expect "${command%% *} into $folder" "$? $(wc -l <"$work/err") $(cat "$work/err")" "1 1 kvant: $folder/*: *"
  done
done

# ---- The environment -----------------------------------------------------------------------------

begin
start run >"$work/expected" 2>/dev/null
for setting in "-u HOME" "-i" "LANG=C LC_ALL=C" "LC_ALL=de_DE.UTF-8" "TERM=dumb" "NO_COLOR=1" "TMPDIR=/nonexistent"; do
  # shellcheck disable=SC2086
  env $setting "$kvant" ${arguments[run]} -t 1 >"$work/out" 2>"$work/err"
  expect "env $setting" "$? $(cmp "$work/out" "$work/expected" 2>&1)" "0 "
  expect "env $setting, escapes on stderr" "$(grep -c $'\x1b' "$work/err")" 0
done

# ---- Signals -------------------------------------------------------------------------------------

set -m # background jobs of a shell without it ignore SIGINT

# until_some FILE: waits until there is something in it.
until_some() { until [[ -s $1 ]]; do sleep 0.02; done; }

endless=(run "$model" -t 1 -p ROMEO: --temp 0 --ignore-eos -n -1 --context-shift --keep 3)
for signal in TERM:143 HUP:129 INT:130; do
  begin
  "$kvant" "${endless[@]}" --session s >"$work/out" 2>"$work/err" &
  until_some "$work/out"
  kill -"${signal%:*}" $!
  wait $!
  expect "SIG${signal%:*}" "$? $(cat "$work/err")" "${signal#*:} "
  expect "SIG${signal%:*}, files" "$(ls)" s
  "$kvant" run "$model" --session s -n 1 -c 4096 -q >/dev/null 2>"$work/err"
  expect "SIG${signal%:*}, its session" "$? $(cat "$work/err")" "0 *"
done
begin
"$kvant" run "$model" -p ROMEO: -n 2 --session s >/dev/null 2>&1
"$kvant" "${endless[@]:0:2}" -t 1 --ignore-eos -n -1 --context-shift --keep 3 --session s >"$work/out" 2>/dev/null &
until_some "$work/out"
kill -TERM $!
sleep 0.6
kill -TERM $! 2>/dev/null
wait $!
expect "SIGTERM twice" $? 143
"$kvant" run "$model" --session s -n 0 -c 4096 -q >/dev/null 2>&1
expect "SIGTERM twice, its session" $? 0

# Texts that take a fast CPU more than 20 s, so that the signal comes in the middle.
for name in imatrix logits; do
  begin
  case $name in imatrix) copies=1000 ;; logits) copies=100 ;; esac
  for ((i = 0; i < copies; ++i)); do cat "$work/in/text"; done >"$work/long"
  case $name in
    imatrix) "$kvant" imatrix "$model" "$work/long" -c 16 -t 1 -o i >/dev/null 2>&1 & ;;
    logits) "$kvant" logits "$model" -f "$work/long" -t 1 -o l.npy >/dev/null 2>&1 & ;;
  esac
  sleep 0.5
  kill -TERM $!
  wait $!
  expect "$name, SIGTERM" $? 143
  left "$name" nothing
done

# ---- A model that becomes shorter while it is used -----------------------------------------------

begin
cp "$model" "$work/copy.gguf"
"$kvant" run "$model" -p ROMEO: -n 2 --session s >/dev/null 2>&1
cp s "$work/s"
"$kvant" run "$work/copy.gguf" -t 2 --ignore-eos -n -1 --context-shift --keep 3 --session s \
  >"$work/out" 2>"$work/err" &
until_some "$work/out"
: >"$work/copy.gguf"
wait $!
expect "truncated model" "$? $(tail -1 "$work/err")" "1 kvant: $work/copy.gguf: has become shorter*"
expect "truncated model, its session" "$(cmp s "$work/s" && ls)" s

echo "$checks checks, $failures failed"
((failures == 0))
