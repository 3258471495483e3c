# Python package llguidance 1.9.1 of PyPI.
#
# A JSON schema with "const" allows one value. Good guess: what json.dumps writes for that value is allowed.
# Seen: not where the value is 1.0, for which the text 1 alone is allowed, though {"type": "number"} allows
# both. Not where it is "é" either, which json.dumps writes as "\u00e9", even with {"type": "string"}.
# Strings may have \u escapes of U+0000 to U+001F and U+007F, 33 of 65536.
source "$(dirname "$0")/common.bash"

python_with llguidance==1.9.1
cat >script.py <<'END'
import json

from llguidance import LLMatcher, LLTokenizer

tokenizer = LLTokenizer("byte")


def allows(schema, text):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    assert not matcher.is_error(), matcher.get_error()
    tokens = list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def allowed(schema, *texts):
    print(*[text for text in texts if allows(schema, text)])


allowed({"const": 1.0}, json.dumps(1.0), "1")
allowed({"type": "number"}, json.dumps(1.0), "1")
allowed({"const": "é"}, json.dumps("é"), json.dumps("é", ensure_ascii=False))
allowed({"type": "string"}, json.dumps("é"), json.dumps("é", ensure_ascii=False))
escapes = [code for code in range(0x10000) if allows({"type": "string"}, f'"\\u{code:04x}"')]
print(len(escapes), *(f"{code:04x}" for code in (escapes[0], escapes[-2], escapes[-1])))
END
"$python" script.py >output
expect "allowed by the constant 1.0" "1" "$(sed -n 1p output)"
expect "allowed as a number" "1.0 1" "$(sed -n 2p output)"
expect "allowed by the constant \"é\"" '"é"' "$(sed -n 3p output)"
expect "allowed as a string" '"é"' "$(sed -n 4p output)"
expect "escapes that are allowed: number, first, last two" "33 0000 001f 007f" "$(sed -n 5p output)"
