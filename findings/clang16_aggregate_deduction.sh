# Python packages ziglang 0.11.0 and 0.12.0 of PyPI, which bring clang 16.0.6 and 17.0.6.
#
# A struct template without constructors, with -std=c++20. Good guess: a compiler that says it has C++20 and
# initializes aggregates with parentheses also deduces the arguments of their templates, as g++ 11 does, or else
# the macro __cpp_deduction_guides, 201907 in the standard, tells. Seen: clang 16 refuses the deduction and clang
# 17 makes it, and no macro tells them apart: both have 202002 for __cplusplus and 201703 for the feature.
source "$(dirname "$0")/common.bash"

cat >both.cpp <<'END'
template <class T>
struct Both {
  T first;
  T second;
};
#ifdef PARENTHESES
int main() { return Both<int>(1, 2).second - 2; }
#else
int main() { return Both{1, 2}.second - 2; }
#endif
END

# compiles ARGUMENT...: "yes" or "no".
compiles() { "$python" -m ziglang c++ -std=c++20 "$@" both.cpp -o both 2>/dev/null && echo yes || echo no; }
# macro NAME: its value.
macro() { "$python" -m ziglang c++ -std=c++20 -dM -E -x c++ /dev/null 2>/dev/null | sed -n "s/^#define $1 //p"; }

for version in 0.11.0/16/no 0.12.0/17/yes; do
  IFS=/ read -r package clang deduces <<<"$version"
  python_with "ziglang==$package"
  expect "clang of ziglang $package" "$clang" "$("$python" -m ziglang c++ --version | sed -n '1s/clang version \([0-9]*\).*/\1/p')"
  expect "__cplusplus" 202002L "$(macro __cplusplus)"
  expect "parentheses initialize an aggregate" yes "$(compiles -DPARENTHESES)"
  expect "its template arguments are deduced" "$deduces" "$(compiles)"
  expect "__cpp_deduction_guides" 201703L "$(macro __cpp_deduction_guides)"
done
