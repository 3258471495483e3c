// BPE by merges: a text is cut into words by the pre-tokenizer; the bytes of a word are its first
// tokens, and neighbours merge in order of rank until no merge applies.
//
// Pre-tokenizers such as gemma4's take characters instead of bytes, a space as U+2581, and the byte
// pieces <0xHH> for a character without a piece; of a run of line breaks that is a piece nothing is
// merged. Those of kvant's own metaspace take characters of a text that SentencePiece's rules have
// normalized; a character without a piece is unknown.
//
// Vocabulary entries spell bytes in GPT-2's alphabet: every byte is one printable character, the
// space for example "Ġ". Source: bytes_to_unicode of OpenAI's GPT-2 encoder.
// Merging is O(n log n) in the length of a word, by a heap of (rank, position).
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/result.h"
#include "engine/tokenizer/byte_piece.h"
#include "engine/tokenizer/kinds.h"
#include "engine/tokenizer/merge_table.h"
#include "engine/tokenizer/pre_tokenizers.h"
#include "engine/tokenizer/token_flags.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/unigram_normalizer.h"
#include "engine/tokenizer/vocabulary.h"
#include "formats/gguf.h"

namespace kvant {
namespace {

using formats::GgufArray;
using formats::GgufFile;
using formats::GgufType;

// GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    bytes_.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
      AppendUtf8(character, spellings_[static_cast<size_t>(byte)]);
      bytes_[character] = static_cast<int16_t>(byte);
    }
  }

  const std::string& Spelling(uint8_t byte) const { return spellings_[byte]; }

  // The byte that a character spells, or -1.
  int Byte(char32_t character) const { return character < bytes_.size() ? bytes_[character] : -1; }

 private:
  std::array<std::string, 256> spellings_;
  std::array<int16_t, 0x100 + 68> bytes_;
};

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

class BpeTokenizer final : public VocabularyTokenizer {
 public:
  Status Init(const GgufFile& file, const TokenizerOptions& options);

  std::string TokenBytes(TokenId id, DecodeOptions options) const override;
  const char* kind() const override { return "bpe"; }
  std::string pre_tokenizer() const override { return pre_name_; }

 protected:
  void EncodeText(std::string_view text, Encoding& out) const override;
  std::string Normalized(std::string_view text) const override;
  void EncodeNormalized(std::string_view text, Encoding& out) const override;

 private:
  struct Symbol {
    TokenId id;
    int32_t previous;
    int32_t next;
  };
  // Buffers of one EncodeText, reused from word to word.
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank << 32 | position of the left symbol; smallest on top
    std::string spelling;
  };
  Status ReadMerges(const GgufFile& file);
  Status ReadNormalizer(const GgufFile& file);
  void FindByteTokens();
  void FindBytePieces();
  TokenId FindWhole(std::string_view word, Scratch& scratch) const;
  void Spell(std::string_view word, Scratch& scratch) const;
  void EncodeWord(std::string_view word, Scratch& scratch, Encoding& out) const;
  int64_t CountUnknown(std::string_view word) const;
  void PushMerge(int32_t left, Scratch& scratch) const;
  void MergeAll(Scratch& scratch) const;

  bool spells_bytes() const { return pre_->row().spelling == Spelling::kBytes; }
  bool marks_spaces() const { return pre_->row().spelling == Spelling::kCharacters; }
  bool is_normalized() const { return pre_->row().spelling == Spelling::kNormalized; }

  using Spelling = PreTokenizerRow::Spelling;
  std::string pre_name_;
  std::unique_ptr<PreTokenizer> pre_;
  bool normalize_nfc_ = false;    // as the file says it, or the pre-tokenizer
  UnigramNormalizer normalizer_;  // of Spelling::kNormalized
  bool fuses_unknown_ = false;
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_;
};

constexpr int32_t kNoSymbol = -1;
constexpr TokenId kMerged = -2;  // a symbol that has become part of the one before it

Status BpeTokenizer::Init(const GgufFile& file, const TokenizerOptions& options) {
  constexpr const char* kPre = "tokenizer.ggml.pre";
  KVANT_ASSIGN(const std::optional<std::string_view> pre, file.GetString(kPre));
  KVANT_ASSIGN(const std::optional<std::string_view> model, file.GetString("tokenizer.ggml.model"));
  const bool is_gemma4 = model == kGemma4Kind;
  pre_name_ = options.pre_override.empty() ? std::string(pre.value_or("")) : options.pre_override;
  if (is_gemma4 && options.pre_override.empty()) pre_name_ = kGemma4Kind;
  if (pre_name_.empty()) {
    pre_name_ = "default";
    Log(LogLevel::kWarning,
        fmt::format("{}: {} is absent; using \"default\", which may cut text in other places than "
                    "the model's own pre-tokenizer (--pre NAME names it)",
                    file.path(), kPre));
  }
  auto created = PreTokenizer::Create(pre_name_);
  if (!created.ok()) {
    return MakeError(created.error().code, "{}: {}",
                     options.pre_override.empty() ? file.path() + ": " + kPre : "--pre",
                     created.error().message);
  }
  pre_ = std::move(created).value();
  KVANT_ASSIGN(const auto nfc, file.GetBool("tokenizer.ggml.normalizer.nfc"));
  normalize_nfc_ = nfc.value_or(pre_->row().normalize_nfc);

  SpecialTokens defaults;
  defaults.add_bos = pre_->row().add_bos;
  defaults.add_space_prefix = false;
  KVANT_TRY(Load(VocabularyKeys(file), defaults, pre_name_));
  if (is_gemma4) {  // whatever the file says
    special_.add_bos = true;
    first_token_ = special_.bos;
  }
  if (spells_bytes()) {
    FindByteTokens();
  } else if (is_normalized()) {
    KVANT_TRY(ReadNormalizer(file));
  } else {
    FindBytePieces();
  }
  return ReadMerges(file);
}

Status BpeTokenizer::ReadNormalizer(const GgufFile& file) {
  byte_ids_.fill(PieceIndex::kNone);
  KVANT_TRY(normalizer_.Read(VocabularyKeys(file)));
  special_.add_space_prefix = normalizer_.add_prefix;
  KVANT_ASSIGN(const auto fuses, file.GetBool(kFusesUnknownKey));
  fuses_unknown_ = fuses.value_or(false);
  return {};
}

Status BpeTokenizer::ReadMerges(const GgufFile& file) {
  constexpr const char* kMerges = "tokenizer.ggml.merges";
  KVANT_ASSIGN(const GgufArray* merges, file.GetArray(kMerges, GgufType::kString));
  if (merges == nullptr) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is absent", file.path(), kMerges);
  }
  if (merges->strings.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} has {} elements, more than ranks can count",
                     file.path(), kMerges, merges->strings.size());
  }
  merges_ = MergeTable(merges->strings.size());
  size_t unknown = 0;
  std::string joined;
  for (size_t i = 0; i < merges->strings.size(); ++i) {
    const std::string_view merge = merges->strings[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: {}[{}] is not two pieces with a space between them", file.path(),
                       kMerges, i);
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    joined.assign(left).append(right);
    const Merge found{index_.Find(left), index_.Find(right), index_.Find(joined)};
    if (found.left < 0 || found.right < 0 || found.result < 0) {
      ++unknown;
    } else {
      merges_.Insert(found);
    }
  }
  if (unknown > 0) {
    Log(LogLevel::kWarning,
        fmt::format("{}: {} of {} {} name pieces that are not in the vocabulary and have no effect",
                    file.path(), unknown, merges->strings.size(), kMerges));
  }
  return {};
}

void BpeTokenizer::FindByteTokens() {
  byte_ids_.fill(PieceIndex::kNone);
  for (int byte = 0; byte < 256; ++byte) {
    const TokenId id = index_.Find(Alphabet().Spelling(static_cast<uint8_t>(byte)));
    // A user-defined piece stands for its own characters, not for the byte they would spell.
    if (id >= 0 && type(id) != PieceType::kUserDefined) byte_ids_[static_cast<size_t>(byte)] = id;
  }
}

void BpeTokenizer::FindBytePieces() {
  byte_ids_.fill(PieceIndex::kNone);
  for (TokenId id = 0; id < vocab_size(); ++id) {
    const int byte = BytePieceValue(piece(id));
    if (byte < 0 || byte_ids_[static_cast<size_t>(byte)] >= 0) continue;
    byte_ids_[static_cast<size_t>(byte)] = id;
    types_[static_cast<size_t>(id)] = PieceType::kByte;
  }
}

void BpeTokenizer::EncodeText(std::string_view text, Encoding& out) const {
  if (!normalize_nfc_ && !marks_spaces()) return EncodeNormalized(text, out);
  EncodeNormalized(Normalized(text), out);
}

std::string BpeTokenizer::Normalized(std::string_view text) const {
  std::string normalized = normalize_nfc_ ? NormalizeNfc(text) : std::string(text);
  if (!marks_spaces()) return normalized;
  std::string spelt;
  spelt.reserve(normalized.size() + normalized.size() / 2);
  for (const char c : normalized) spelt += c == ' ' ? kSpacePiece : std::string_view(&c, 1);
  return spelt;
}

void BpeTokenizer::EncodeNormalized(std::string_view plain, Encoding& out) const {
  const std::string spelt = is_normalized() ? normalizer_.Apply(plain) : std::string();
  const std::string_view text = is_normalized() ? spelt : plain;
  // Most words of a text have occurred in it before: copy what they became.
  struct Seen {
    size_t begin;
    size_t count;
    int64_t unknown;
  };
  std::vector<TokenId>& ids = out.ids;
  std::unordered_map<std::string_view, Seen> words;
  Scratch scratch;
  size_t begin = 0;
  for (const size_t end : pre_->Split(text)) {
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    const auto [seen, is_new] = words.try_emplace(word, Seen{ids.size(), 0, 0});
    if (is_new) {
      const int64_t unknown_before = out.unknown_characters;
      EncodeWord(word, scratch, out);
      seen->second.count = ids.size() - seen->second.begin;
      seen->second.unknown = out.unknown_characters - unknown_before;
    } else {
      for (size_t i = 0; i < seen->second.count; ++i) ids.push_back(ids[seen->second.begin + i]);
      out.unknown_characters += seen->second.unknown;
    }
  }
}

// The token that a word is as a whole, where that comes before merging.
TokenId BpeTokenizer::FindWhole(std::string_view word, Scratch& scratch) const {
  const bool breaks_line = marks_spaces() && word.starts_with('\n');
  if (!pre_->row().ignore_merges && !breaks_line) return PieceIndex::kNone;
  if (!spells_bytes()) return index_.Find(word);
  scratch.spelling.clear();
  for (const char c : word) scratch.spelling += Alphabet().Spelling(static_cast<uint8_t>(c));
  return index_.Find(scratch.spelling);
}

// The symbols that a word begins with: bytes, or characters.
void BpeTokenizer::Spell(std::string_view word, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  const auto add = [&](TokenId id) {
    const auto place = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, place - 1, place + 1});
  };
  while (!word.empty()) {
    const size_t size = spells_bytes() ? 1 : DecodeUtf8(word).size;
    const std::string_view character = word.substr(0, size);
    const TokenId id = spells_bytes() ? PieceIndex::kNone : index_.Find(character);
    if (id >= 0 || is_normalized()) {
      add(id);
    } else {
      for (const char c : character) add(byte_ids_[static_cast<uint8_t>(c)]);
    }
    word.remove_prefix(size);
  }
  if (!symbols.empty()) symbols.back().next = kNoSymbol;
}

void BpeTokenizer::EncodeWord(std::string_view word, Scratch& scratch, Encoding& out) const {
  const TokenId whole = FindWhole(word, scratch);
  if (whole >= 0) {
    out.ids.push_back(whole);
    return;
  }
  Spell(word, scratch);
  MergeAll(scratch);
  bool complete = true;
  bool after_unknown = false;
  for (const Symbol& symbol : scratch.symbols) {
    if (symbol.id == kMerged) continue;
    const bool is_known = symbol.id >= 0;
    complete = complete && is_known;
    if (is_known) {
      out.ids.push_back(symbol.id);
    } else if (special_.unk && !(after_unknown && fuses_unknown_)) {
      out.ids.push_back(*special_.unk);
    }
    after_unknown = !is_known;
  }
  if (!complete) out.unknown_characters += CountUnknown(word);
}

// Characters with a byte that is no token.
int64_t BpeTokenizer::CountUnknown(std::string_view word) const {
  int64_t count = 0;
  while (!word.empty()) {
    const uint8_t size = DecodeUtf8(word).size;
    const std::string_view character = word.substr(0, size);
    const bool has_piece = !spells_bytes() && index_.Find(character) >= 0;
    count += !has_piece && std::any_of(character.begin(), character.end(), [&](char c) {
      return byte_ids_[static_cast<uint8_t>(c)] == PieceIndex::kNone;
    });
    word.remove_prefix(size);
  }
  return count;
}

void BpeTokenizer::PushMerge(int32_t left, Scratch& scratch) const {
  if (left == kNoSymbol) return;
  const Symbol& symbol = scratch.symbols[static_cast<size_t>(left)];
  if (symbol.next == kNoSymbol || symbol.id < 0) return;
  const TokenId right = scratch.symbols[static_cast<size_t>(symbol.next)].id;
  if (right < 0) return;
  const int32_t rank = merges_.Rank(symbol.id, right);
  if (rank == MergeTable::kNone) return;
  scratch.heap.push_back((uint64_t{static_cast<uint32_t>(rank)} << 32) |
                         static_cast<uint32_t>(left));
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

void BpeTokenizer::MergeAll(Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  scratch.heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) PushMerge(static_cast<int32_t>(i), scratch);
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
    const uint64_t top = scratch.heap.back();
    scratch.heap.pop_back();
    const Merge& merge = merges_[static_cast<int32_t>(top >> 32)];
    const auto position = static_cast<int32_t>(top & 0xFFFFFFFF);
    Symbol& left = symbols[static_cast<size_t>(position)];
    // Skip what an earlier merge has made obsolete.
    if (left.id != merge.left || left.next == kNoSymbol) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != merge.right) continue;
    left.id = merge.result;
    left.next = right.next;
    right.id = kMerged;
    if (left.next != kNoSymbol) symbols[static_cast<size_t>(left.next)].previous = position;
    PushMerge(left.previous, scratch);
    PushMerge(position, scratch);
  }
}

std::string BpeTokenizer::TokenBytes(TokenId id, DecodeOptions options) const {
  std::string_view text = piece(id);
  const PieceType kind = type(id);
  if (kind == PieceType::kControl || kind == PieceType::kUnknown) {
    return std::string(options.special ? text : "");
  }
  if (kind == PieceType::kUserDefined) return std::string(text);
  if (kind == PieceType::kByte && !spells_bytes()) {
    return std::string(1, static_cast<char>(BytePieceValue(text)));
  }
  if (!spells_bytes()) {
    return marks_spaces() || is_normalized() ? WithSpaces(text) : std::string(text);
  }
  std::string bytes;
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    const int byte = c.state == Utf8State::kValid ? Alphabet().Byte(c.code_point) : -1;
    if (byte < 0) return std::string(piece(id));  // not spelt in the alphabet: it is plain text
    bytes.push_back(static_cast<char>(byte));
    text.remove_prefix(c.size);
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> CreateBpe(const GgufFile& file,
                                             const TokenizerOptions& options) {
  auto tokenizer = std::make_unique<BpeTokenizer>();
  KVANT_TRY(tokenizer->Init(file, options));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace kvant
