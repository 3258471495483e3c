// Chooses the kind of tokenizer that a file asks for, and answers what every kind answers in the
// same way.
#include "kvant/tokenizer.h"

#include <algorithm>

#include "base/result.h"
#include "engine/grammar/token_trie.h"
#include "engine/tokenizer/kinds.h"
#include "engine/tokenizer/piece_tokenizer.h"
#include "engine/tokenizer/vocabulary.h"
#include "formats/gguf.h"
#include "formats/quoted.h"

namespace kvant {
namespace {

Result<std::unique_ptr<Tokenizer>> Made(Result<std::unique_ptr<PieceTokenizer>> tokenizer) {
  if (!tokenizer.ok()) return tokenizer.error();
  return std::unique_ptr<Tokenizer>(std::move(*tokenizer));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const formats::GgufFile& file,
                                                     const TokenizerOptions& options) {
  constexpr const char* kModel = "tokenizer.ggml.model";
  KVANT_ASSIGN(const std::optional<std::string_view> model, file.GetString(kModel));
  if (!model) {
    return MakeError(ErrorCode::kNotSupported, "{}: no tokenizer: {} is absent", file.path(),
                     kModel);
  }
  if (*model == kByteLevelBpeKind || *model == kGemma4Kind) return CreateBpe(file, options);
  if (!options.pre_override.empty()) {
    return MakeError(ErrorCode::kInvalid,
                     "--pre {}: {} has a tokenizer of kind {}; only \"{}\" and \"{}\" (BPE by "
                     "merges) have a pre-tokenizer",
                     options.pre_override, file.path(), formats::Quoted(*model), kByteLevelBpeKind,
                     kGemma4Kind);
  }
  if (*model == kSentencePieceKind) return Made(CreateSpm(VocabularyKeys(file)));
  if (*model == kWordPieceKind) return CreateWordPiece(file);
  if (*model == kUnigramKind) return Made(CreateUnigram(VocabularyKeys(file)));
  if (*model == kMarianKind) return CreateMarian(VocabularyKeys(file));
  if (*model == kRwkvKind) return CreateRwkv(file);
  return MakeError(ErrorCode::kNotSupported,
                   "{}: {} is {}; known are \"{}\" (SentencePiece BPE), \"{}\" (byte-level BPE), "
                   "\"{}\" (BPE), \"{}\" (WordPiece), \"{}\" (unigram), \"{}\" (RWKV) and \"{}\" "
                   "(pieces with ids of a list)",
                   file.path(), kModel, formats::Quoted(*model), kSentencePieceKind,
                   kByteLevelBpeKind, kGemma4Kind, kWordPieceKind, kUnigramKind, kRwkvKind,
                   kMarianKind);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::CreateTarget(const formats::GgufFile& file) {
  const VocabularyKeys keys(file, kTargetVocabularyPrefix);
  KVANT_ASSIGN(const auto model, file.GetString("tokenizer.ggml.model"));
  const bool differs = keys.Find("pieces.model") != nullptr;
  if (model != kMarianKind || !differs) return std::unique_ptr<Tokenizer>();
  return CreateMarian(keys);
}

Result<Encoding> Tokenizer::EncodeAndCount(std::string_view text,
                                           const EncodeOptions& options) const {
  Encoding out;
  KVANT_ASSIGN(out.ids, Encode(text, options));
  return out;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, DecodeOptions options) const {
  std::string text;
  // Encode puts a space in front of a text and behind every token that was cut out of it.
  bool after_cut = true;
  for (const TokenId id : ids) {
    if (!HasText(id)) continue;
    const std::string bytes = TokenBytes(id, options);
    const PieceType type = types_[static_cast<size_t>(id)];
    const bool cut = type == PieceType::kControl || type == PieceType::kUserDefined;
    const bool drop_space =
        special_.add_space_prefix && after_cut && !cut && bytes.starts_with(' ');
    text.append(bytes, drop_space ? 1 : 0);
    after_cut = cut;
  }
  return text;
}

bool Tokenizer::is_control(TokenId id) const {
  return types_[static_cast<size_t>(id)] == PieceType::kControl;
}

std::shared_ptr<const grammar::TokenTrie> Tokenizer::trie() const {
  std::call_once(has_trie_, [this] { trie_ = std::make_shared<const grammar::TokenTrie>(*this); });
  return trie_;
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return std::binary_search(special_.end_of_generation.begin(), special_.end_of_generation.end(),
                            id);
}

}  // namespace kvant
