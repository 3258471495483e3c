#include "engine/tokenizer/bert_characters.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "engine/tokenizer/unicode.h"

namespace kvant {
namespace {

struct CharacterRange {
  char32_t first;
  char32_t last;
};

#include "engine/tokenizer/bert_characters.inl"

bool Contains(std::span<const CharacterRange> ranges, char32_t code_point) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code_point,
                       [](char32_t c, const CharacterRange& range) { return c < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

}  // namespace

bool BertDrops(char32_t code_point, Accents accents) {
  if (accents == Accents::kStripped) return Contains(kDropped, code_point);
  return Contains(kDroppedWithAccents, code_point);
}

bool BertCutsOut(char32_t code_point) {
  return Contains(kCutOut, code_point) || Contains(kComposedCutOut, code_point) ||
         IsCjkIdeograph(code_point);
}

}  // namespace kvant
