// Says which characters BERT drops and which it makes words of their own, as BertNormalizer
// and BertPreTokenizer of Hugging Face's tokenizers do. Their classes are those of Unicode 8 for
// good: a character that came later is neither, so that its word becomes the unknown token.
//
// Thread-safety: pure.
#pragma once

#include <cstdint>

namespace kvant {

// Whether texts are decomposed and freed of marks, as uncased BERT has it.
enum class Accents : uint8_t { kStripped, kKept };

// Control and format characters, private use, and, where accents are stripped, marks that stand on
// no place of their own. Tabs and ends of lines are not among them.
bool BertDrops(char32_t code_point, Accents accents);

// Punctuation, the signs of ASCII such as $ and + included, and ideographs.
bool BertCutsOut(char32_t code_point);

}  // namespace kvant
