# Python packages tokenizers 0.22.1 and sentencepiece 0.2.1 of PyPI.
#
# A SentencePiece model is trained, and its table of normalization (precompiled_charsmap) given to tokenizers' Precompiled, as
# converters of unigram models do. Good guess: both normalize alike. Seen: tokenizers looks at whole graphemes and replaces one by what
# its beginning maps to, so a combining mark behind a no-break space or a ligature is lost; SentencePiece keeps it.
source "$(dirname "$0")/common.bash"

python_with tokenizers==0.22.1 sentencepiece==0.2.1 protobuf==6.33.0

cat >marks.py <<'END'
import io

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

made = io.BytesIO()
words = ["sea ship wind house garden king queen winter river bread stone light road music letter window"] * 20
sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(words), model_writer=made, vocab_size=30, model_type="unigram",
                                         normalization_rule_name="nmt_nfkc", minloglevel=2)
model = sentencepiece_model_pb2.ModelProto()
model.ParseFromString(made.getvalue())
table = model.normalizer_spec.precompiled_charsmap
theirs = normalizers.Precompiled(table)
processor = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
def codes(text):
    return " ".join(f"{ord(letter):04x}" for letter in text.replace("\u2581", " ").removeprefix(" "))


for text in ("a\u00a0\u0323b", "\ufb01\u0323sh", "a \u0323b"):
    print(codes(theirs.normalize_str(text)), "|", codes(processor.normalize(text)))
END

mapfile -t seen < <("$python" marks.py)
expect "a no-break space with a mark, tokenizers | SentencePiece" "0061 0020 0062 | 0061 0020 0323 0062" "${seen[0]}"
expect "a ligature with a mark" "0066 0069 0073 0068 | 0066 0069 0323 0073 0068" "${seen[1]}"
expect "a plain space with a mark" "0061 0020 0323 0062 | 0061 0020 0323 0062" "${seen[2]}"
