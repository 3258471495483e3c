# Python package tiktoken 0.14.0 of PyPI, beside tokenizers 0.23.3.
#
# Two special tokens, one the beginning of the other: <|im_end|> and <|im_end|> with a line break. Good
# guess: the longest that matches is taken, as in tokenizers, or else the one that was listed first.
# Seen: tiktoken takes either, by the order of a hash table. So special tokens that a text does not contain
# decide how the text is split. With none or one of them the text below is one token, with two it is two.
source "$(dirname "$0")/common.bash"

python_with tiktoken==0.14.0 tokenizers==0.23.3
cat >script.py <<'END'
import tiktoken
from tokenizers import AddedToken, Tokenizer, models

TEXT = "<|im_end|>\n"


def special_tokens(unrelated):
    return ["<|im_end|>", TEXT] + [f"<|extra_{i}|>" for i in range(unrelated)]


def count_tiktoken(unrelated):
    encoding = tiktoken.Encoding(
        "bytes", pat_str=r"[\s\S]", mergeable_ranks={bytes([i]): i for i in range(256)},
        special_tokens={token: 256 + i for i, token in enumerate(special_tokens(unrelated))})
    return len(encoding.encode(TEXT, allowed_special="all"))


def count_tokenizers(unrelated):
    tokenizer = Tokenizer(models.BPE({chr(i): i for i in range(128)}, []))
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token in special_tokens(unrelated)])
    return len(tokenizer.encode(TEXT).ids)


counts = range(12)
print(*sorted({count_tiktoken(unrelated) for unrelated in counts}))
print(*sorted({count_tokenizers(unrelated) for unrelated in counts}))
print(*(count_tiktoken(unrelated) for unrelated in counts))
END
"$python" script.py >output
expect "tokens of the text in tiktoken, with 0 to 11 unrelated special tokens" "1 2" "$(sed -n 1p output)"
expect "in tokenizers" "1" "$(sed -n 2p output)"
echo "one by one in tiktoken: $(sed -n 3p output)"
