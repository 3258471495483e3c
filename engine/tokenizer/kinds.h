// The kinds of tokenizer, as tokenizer.ggml.model names them. A kind is named after the first model
// that had it, whatever the family of the model that the file holds.
#pragma once

#include <string_view>

namespace kvant {

inline constexpr std::string_view kByteLevelBpeKind = "gpt2";
inline constexpr std::string_view kSentencePieceKind = "llama";
inline constexpr std::string_view kWordPieceKind = "bert";
inline constexpr std::string_view kGemma4Kind = "gemma4";
inline constexpr std::string_view kUnigramKind = "t5";
inline constexpr std::string_view kMarianKind = "marian";
inline constexpr std::string_view kRwkvKind = "rwkv";

// Pre-tokenizers of kvant's own for the kind "gpt2": Hugging Face's Metaspace, which may cut texts
// in front of each space.
inline constexpr std::string_view kMetaspacePre = "kvant-metaspace";
inline constexpr std::string_view kMetaspaceWordsPre = "kvant-metaspace-words";

// How the kind "marian" spells texts, as tokenizer.ggml.pre: with a code of the language in front,
// which is kMarianKind, without one, or with <mask>, too, which takes the space before it along.
inline constexpr std::string_view kPlainPiecesPre = "m2m100";
inline constexpr std::string_view kMaskedPiecesPre = "nllb";

}  // namespace kvant
