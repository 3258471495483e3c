# Python package tokenizers 0.23.3 of PyPI.
#
# The documentation of the pre-tokenizer Whitespace says that it splits by \w+|[^\w\s]+. Good guess:
# Split with that expression does the same. Seen: Whitespace and Regex use different engines, which disagree
# on \w. For Regex (Oniguruma) six characters below U+0100 belong to words: the superscripts 1, 2, 3 and
# the fractions 1/4, 1/2, 3/4. The superscript 4 and the fraction 1/3, which lie above, do not. So one
# expression makes one word of m² and two of m⁴. For Whitespace two joiners without width belong to words.
source "$(dirname "$0")/common.bash"

python_with tokenizers==0.23.3
cat >script.py <<'END'
from tokenizers import Regex, pre_tokenizers

EXPRESSION = r"\w+|[^\w\s]+"
split = pre_tokenizers.Split(Regex(EXPRESSION), "removed", invert=True)
whitespace = pre_tokenizers.Whitespace()


def words(pre_tokenizer, text):
    return [word for word, _ in pre_tokenizer.pre_tokenize_str(text)]


print("yes" if EXPRESSION in pre_tokenizers.Whitespace.__doc__ else "no")
for pre_tokenizer in (whitespace, split):
    print(*words(pre_tokenizer, "m² m⁴ 2½ 2⅓"))
print(*(f"U+{code:04X}" for code in range(0x3000) if not 0xD800 <= code < 0xE000
        and words(whitespace, f"a{chr(code)}") != words(split, f"a{chr(code)}")))
END
"$python" script.py >output
expect "the documentation names the expression" yes "$(sed -n 1p output)"
expect "Whitespace" "m ² m ⁴ 2 ½ 2 ⅓" "$(sed -n 2p output)"
expect "Split" "m² m ⁴ 2½ 2 ⅓" "$(sed -n 3p output)"
expect "characters below U+3000 that differ" \
  "U+00B2 U+00B3 U+00B9 U+00BC U+00BD U+00BE U+200C U+200D" "$(sed -n 4p output)"
