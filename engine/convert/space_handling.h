// Spaces in a SentencePiece-like tokenizer.json: before pieces merge they become U+2581, and texts
// may get one in front.
//
// Thread-safety: pure.
#pragma once

#include "base/result.h"
#include "engine/convert/tokenizer_json.h"

namespace kvant::convert {

struct SpaceHandling {
  bool escapes = false;  // " " becomes U+2581
  bool adds_prefix = false;
};

// kNotSupported, with the key, for a normalizer or pre-tokenizer that does anything else.
Result<SpaceHandling> ReadSpaceHandling(const TokenizerJson& tokenizer);

// Whether it is the normalizer that does so, and not the pre-tokenizer.
bool NormalizerSpellsSpaces(const TokenizerJson& tokenizer);

}  // namespace kvant::convert
