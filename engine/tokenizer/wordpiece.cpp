// WordPiece as BERT uses it: the text is cleaned, lower-cased and freed of accents unless the file
// says otherwise, cut at white space, punctuation and CJK ideographs, and each word is covered from
// the left by the longest vocabulary entries; a word that cannot be covered becomes the unknown
// token as a whole.
// Source: BertNormalizer, BertPreTokenizer and WordPiece of Hugging Face's tokenizers.
//
// GGUF spells the entries that begin a word with U+2581 in front ("▁the") and the others plainly
// ("ing", in BERT's own files "##ing"). Cased models have normalizer.lowercase = false; accents
// stay where normalizer.strip_accents is false, or absent beside it.
#include <string>
#include <utility>

#include "base/result.h"
#include "engine/tokenizer/bert_characters.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/vocabulary.h"
#include "formats/gguf.h"

namespace kvant {
namespace {

using formats::GgufFile;

constexpr std::string_view kWordBegin = "\xE2\x96\x81";  // U+2581

// Words of more characters are unknown (max_input_chars_per_word in BERT's tokenizer.json).
constexpr int64_t kWordCharsMax = 100;

class WordPieceTokenizer final : public VocabularyTokenizer {
 public:
  Status Init(const GgufFile& file);

  std::string TokenBytes(TokenId id, DecodeOptions options) const override;
  const char* kind() const override { return "wordpiece"; }

 protected:
  void EncodeText(std::string_view text, Encoding& out) const override;
  std::string Normalized(std::string_view text) const override;
  void EncodeNormalized(std::string_view text, Encoding& out) const override;

 private:
  Status ReadNormalizer(const VocabularyKeys& keys);
  std::u32string Normalize(std::string_view text) const;
  void EncodeWords(std::u32string_view text, Encoding& out) const;
  void EncodeWord(std::string_view word, Encoding& out) const;

  bool lower_case_ = true;
  Accents accents_ = Accents::kStripped;
};

constexpr char32_t kCapitalDottedI = 0x130;  // the one capital that becomes two characters
constexpr std::u32string_view kDottedI = U"i\u0307";

std::u32string CodePoints(std::string_view text) {
  std::u32string characters;
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    characters += c.code_point;
    text.remove_prefix(c.size);
  }
  return characters;
}

// BertNormalizer without the spaces around ideographs, which EncodeText sees to.
std::u32string WordPieceTokenizer::Normalize(std::string_view text) const {
  std::u32string out;
  const bool strips = accents_ == Accents::kStripped;
  for (const char32_t c : strips ? NormalizeNfd(text) : CodePoints(text)) {
    if (c == U'\t' || c == U'\n' || c == U'\r') {
      out += U' ';  // the only control characters that separate; the others vanish
    } else if (BertDrops(c, accents_)) {
      continue;
    } else if (IsWhiteSpace(c)) {
      out += U' ';
    } else if (lower_case_ && c == kCapitalDottedI) {
      out += kDottedI;
    } else {
      out += lower_case_ ? ToLower(c) : c;
    }
  }
  return out;
}

Status WordPieceTokenizer::ReadNormalizer(const VocabularyKeys& keys) {
  KVANT_ASSIGN(const auto lower_case, keys.GetBool("normalizer.lowercase"));
  KVANT_ASSIGN(const auto strip, keys.GetBool("normalizer.strip_accents"));
  lower_case_ = lower_case.value_or(true);
  accents_ = strip.value_or(lower_case_) ? Accents::kStripped : Accents::kKept;
  return {};
}

Status WordPieceTokenizer::Init(const GgufFile& file) {
  // The ids of BERT's own vocabulary.
  SpecialTokens defaults;
  defaults.bos = 101;
  defaults.sep = 102;
  defaults.unk = 100;
  defaults.pad = 0;
  defaults.mask = 103;
  defaults.add_bos = true;
  defaults.add_eos = true;
  const VocabularyKeys keys(file);
  KVANT_TRY(ReadNormalizer(keys));
  KVANT_TRY(Load(keys, defaults, ""));
  if (!special_.cls) special_.cls = special_.bos;  // files name one or the other
  first_token_ = special_.add_bos ? special_.cls : std::nullopt;
  last_token_ = special_.add_eos ? special_.sep : std::nullopt;
  return {};
}

void WordPieceTokenizer::EncodeText(std::string_view text, Encoding& out) const {
  EncodeWords(Normalize(text), out);
}

// BertNormalizer with all that it does.
std::string WordPieceTokenizer::Normalized(std::string_view text) const {
  std::string normalized;
  for (const char32_t c : Normalize(text)) {
    const std::string_view around = IsCjkIdeograph(c) ? " " : "";
    normalized += around;
    AppendUtf8(c, normalized);
    normalized += around;
  }
  return normalized;
}

void WordPieceTokenizer::EncodeNormalized(std::string_view text, Encoding& out) const {
  EncodeWords(CodePoints(text), out);
}

void WordPieceTokenizer::EncodeWords(std::u32string_view text, Encoding& out) const {
  std::string word;
  const auto finish_word = [&] {
    EncodeWord(word, out);
    word.clear();
  };
  for (const char32_t c : text) {
    const bool stands_alone = BertCutsOut(c);
    if (c == U' ' || stands_alone) finish_word();
    if (c == U' ') continue;
    AppendUtf8(c, word);
    if (stands_alone) finish_word();
  }
  finish_word();
}

void WordPieceTokenizer::EncodeWord(std::string_view word, Encoding& out) const {
  if (word.empty()) return;
  const size_t ids_before = out.ids.size();
  int64_t chars = 0;
  for (const char c : word) chars += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  bool covered = chars <= kWordCharsMax;

  std::string spelt(kWordBegin);
  spelt += word;
  const std::string_view rest(spelt);
  size_t begin = 0;
  while (covered && begin < rest.size()) {
    // A beginning has at least one character behind the mark.
    const size_t shortest = begin == 0 ? kWordBegin.size() + 1 : begin + 1;
    size_t end = std::min(rest.size(), begin + index_.bytes_max());
    TokenId id = PieceIndex::kNone;
    for (; end >= shortest; --end) {
      id = index_.Find(rest.substr(begin, end - begin));
      // Tokens of users were cut out before, and are no pieces of words.
      if (id >= 0 && type(id) == PieceType::kUserDefined) id = PieceIndex::kNone;
      if (id >= 0) break;
    }
    covered = id >= 0;
    if (covered) out.ids.push_back(id);
    begin = end;
  }
  if (covered) return;
  out.ids.resize(ids_before);
  if (special_.unk) out.ids.push_back(*special_.unk);
  out.unknown_characters += chars;
}

std::string WordPieceTokenizer::TokenBytes(TokenId id, DecodeOptions options) const {
  const std::string_view text = piece(id);
  if (type(id) == PieceType::kControl || type(id) == PieceType::kUnknown) {
    return std::string(options.special ? text : "");
  }
  if (!text.starts_with(kWordBegin)) return std::string(text);
  std::string bytes(" ");
  bytes += text.substr(kWordBegin.size());
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> CreateWordPiece(const GgufFile& file) {
  auto tokenizer = std::make_unique<WordPieceTokenizer>();
  KVANT_TRY(tokenizer->Init(file));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace kvant
