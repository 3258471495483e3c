#include "engine/tokenizer/unigram_normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "base/result.h"
#include "engine/tokenizer/byte_piece.h"
#include "engine/tokenizer/token_flags.h"
#include "engine/tokenizer/unicode.h"

namespace kvant {
namespace {

Result<std::optional<Charsmap>> ReadCharsmap(const VocabularyKeys& keys) {
  constexpr const char* kKey = "precompiled_charsmap";
  const formats::GgufValue* value = keys.Find(kKey);
  if (value == nullptr) return std::optional<Charsmap>();
  // Bytes, which older writers stored with a sign.
  const auto* array = std::get_if<formats::GgufArray>(&value->value);
  const bool is_signed = array != nullptr && array->type == formats::GgufType::kInt8;
  KVANT_ASSIGN(
      array, keys.GetArray(kKey, is_signed ? formats::GgufType::kInt8 : formats::GgufType::kUint8));
  // SentencePiece has it so for "no table".
  if (array->count == 0) return std::optional<Charsmap>();
  const std::string_view table(reinterpret_cast<const char*>(array->data), array->count);
  KVANT_ASSIGN(auto charsmap,
               Charsmap::Parse(table, fmt::format("{}: {}", keys.path(), keys.Key(kKey))));
  return std::optional<Charsmap>(charsmap);
}

}  // namespace

Status UnigramNormalizer::Read(const VocabularyKeys& keys) {
  KVANT_ASSIGN(const auto prefix, keys.GetBool("add_space_prefix"));
  KVANT_ASSIGN(const auto merge, keys.GetBool("remove_extra_whitespaces"));
  add_prefix = prefix.value_or(false);
  merge_spaces = merge.value_or(false);
  KVANT_ASSIGN(const auto unless_space, keys.file().GetBool(kPrefixUnlessSpaceKey));
  prefix_unless_space = unless_space.value_or(false);
  KVANT_ASSIGN(charsmap, ReadCharsmap(keys));
  return {};
}

// The longest piece of the user, else the longest key of the table, else one character.
UnigramNormalizer::Part UnigramNormalizer::First(std::string_view text) const {
  const size_t defined = user_defined.Longest(text);
  if (defined > 0) return {defined, text.substr(0, defined)};
  if (charsmap) {
    const Charsmap::Match match = charsmap->FindLongest(text);
    if (match.size > 0) return {match.size, match.replacement};
  }
  const Utf8Char character = DecodeUtf8(text);
  if (character.state != Utf8State::kValid) return {1, kReplacementUtf8};
  return {character.size, text.substr(0, character.size)};
}

std::string UnigramNormalizer::Apply(std::string_view text) const {
  while (merge_spaces && !text.empty()) {
    const Part part = First(text);
    if (part.text != " ") break;
    text.remove_prefix(part.size);
  }
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2);
  if (add_prefix) out += kSpacePiece;
  bool after_space = merge_spaces;
  while (!text.empty()) {
    Part part = First(text);
    text.remove_prefix(part.size);
    if (after_space) {
      part.text.remove_prefix(std::min(part.text.find_first_not_of(' '), part.text.size()));
    }
    for (const char c : part.text) {
      if (c == ' ') {
        out += kSpacePiece;
      } else {
        out += c;
      }
    }
    if (!part.text.empty()) after_space = merge_spaces && part.text.back() == ' ';
  }
  const bool has_own =
      add_prefix && std::string_view(out).substr(kSpacePiece.size()).starts_with(kSpacePiece);
  if (prefix_unless_space && has_own) out.erase(0, kSpacePiece.size());
  // The prefix of a text of which nothing is left goes here too.
  while (merge_spaces && out.ends_with(kSpacePiece)) out.resize(out.size() - kSpacePiece.size());
  return out;
}

}  // namespace kvant
