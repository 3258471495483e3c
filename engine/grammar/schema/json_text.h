// How values stand in JSON text (RFC 8259), as expressions: characters of strings with all their
// escapes, literals, white space. Thread-safety: one thread at a time per pool.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/byte_regex.h"
#include "engine/grammar/schema/text_set.h"

namespace kvant::grammar {

class JsonText {
 public:
  enum class Form : uint8_t { kCompact, kSpaced };

  JsonText(RegexPool& pool, Form form);

  // White space that may stand between parts: none, one blank, or a line break with at most 20
  // blanks or tabs behind it.
  ExprId space() const { return space_; }
  // One character of a string, as itself or escaped; any, or one of the ranges. Control characters
  // are always escaped; what is beyond U+FFFF is escaped as a pair.
  ExprId any_character() const { return any_character_; }
  ExprId Character(std::span<const RegexPool::CodePoints> ranges) {
    return Character(ranges, Escaped::kAll);
  }

  // The inside of a string: all texts of a set; those of a set, one text, or one of several, in
  // which only what must be is escaped.
  ExprId Inside(const TextSet& texts);
  // As Inside and Plain, for RegexPool::CountedSteps.
  ExprId Inside(const TextSet& texts, const TextLengths& lengths);
  ExprId Plain(const TextSet& texts, const TextLengths& lengths);
  ExprId Name(const TextSet& texts);
  ExprId Literal(std::string_view utf8);
  ExprId OneOf(std::span<const std::string> texts);

  // The texts of a set as they are, for numbers.
  ExprId Plain(const TextSet& texts);

  ExprId Quoted(ExprId inside);

 private:
  enum class Escaped : uint8_t { kAll, kNecessary };

  ExprId Character(std::span<const RegexPool::CodePoints> ranges, Escaped escaped);
  template <class Characters>
  ExprId AutomatonOf(const TextSet& texts, const TextLengths* lengths, ExprId all,
                     const Characters& characters);
  template <class Characters>
  void AddSteps(const TextSet::State& state, const Characters& characters,
                RegexPool::AutomatonState& out);
  ExprId InsideWith(const TextSet& texts, const TextLengths* lengths);
  ExprId PlainWith(const TextSet& texts, const TextLengths* lengths);
  ExprId Hex(uint32_t first, uint32_t last, int digits);
  ExprId Escapes(std::span<const RegexPool::CodePoints> ranges);

  RegexPool& pool_;
  ExprId space_;
  ExprId any_character_;
  using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;
  std::map<std::pair<Escaped, Ranges>, ExprId> characters_;
  std::map<Ranges, ExprId> escapes_;
  std::vector<TextSet::Edge> sorted_edges_;  // scratch of AddSteps
  std::vector<RegexPool::CodePoints> ranges_;
};

}  // namespace kvant::grammar
