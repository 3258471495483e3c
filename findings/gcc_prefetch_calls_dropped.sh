# Debian 12's package cpp-12 12.2.0-14+deb12u1, the compiler proper of GCC for C, and the libraries that it needs.
#
# A function of a program's own that only prefetches, in a loop, so that its address is worth naming once. Good
# guess: __builtin_prefetch stands for an instruction, and what calls such a function prefetches, inlined or not;
# the manual says only that a target may have no such instruction. Seen: a call that is not inlined is deleted with
# -O2 and -O3, since the function returns nothing and changes no memory. No warning tells, the instructions are
# still there in a function that nothing calls, and always_inline brings them back.
source "$(dirname "$0")/common.bash"

apt-get download --quiet=2 cpp-12=12.2.0-14+deb12u1 libisl23 libmpc3 libmpfr6 libgmp10 libzstd1 2>/dev/null
for package in *.deb; do dpkg -x "$package" .; done
compiler=usr/lib/gcc/x86_64-linux-gnu/12/cc1

cat >prefetch.c <<'END'
ATTRIBUTE void ask_for(const char *row, int lines) {
  for (int i = 0; i < lines; ++i) __builtin_prefetch(row + 64 * i);
}
float sum(const float *rows, int count, int lines) {
  float total = 0;
  for (int r = 0; r < count; ++r) {
    ask_for((const char *)(rows + 1024 * (r + 4)), lines);
    total += rows[1024 * r];
  }
  return total;
}
END

# body_of_sum LEVEL ATTRIBUTE: the instructions of sum().
body_of_sum() {
  LD_LIBRARY_PATH=usr/lib/x86_64-linux-gnu:lib/x86_64-linux-gnu "$compiler" -quiet -Wall -Wextra "$1" "-DATTRIBUTE=$2" \
    prefetch.c -o prefetch.s 2>warnings
  sed -n '/^sum:/,/^\t\.size/p' prefetch.s
}
count() { grep -c "$1" || true; }

expect "version" 12.2.0 "$(body_of_sum -O2 '' >/dev/null && sed -n 's/.*GCC: (Debian .*) \([0-9.]*\)".*/\1/p' prefetch.s)"
for level in -O2 -O3; do
  body=$(body_of_sum "$level" '__attribute__((noinline))')
  expect "$level, not inlined: calls of ask_for" 0 "$(count 'call.*ask_for' <<<"$body")"
  expect "$level, not inlined: prefetches in sum" 0 "$(count "prefetch[tnw]" <<<"$body")"
  expect "$level, not inlined: prefetches in the file" 1 "$(count "prefetch[tnw]" <prefetch.s)"
  expect "$level, not inlined: warnings" 0 "$(wc -l <warnings)"
  body=$(body_of_sum "$level" 'static inline __attribute__((always_inline))')
  expect "$level, always_inline: prefetches in sum" 1 "$(count "prefetch[tnw]" <<<"$body")"
done
