// Conditions under which a key that nobody read has no effect: values that mean "nothing", and
// models that lack what the key is about.
#pragma once

#include "engine/arch/keys/key_rows.h"

namespace kvant::arch {

// Values: numbers and booleans, or arrays of them alone.
bool IsNeverIdle(const UnreadKey& key);
bool IsZero(const UnreadKey& key);
bool IsOne(const UnreadKey& key);  // or true
bool IsZeroOrOne(const UnreadKey& key);

// Models.
bool HasNoDecoder(const UnreadKey& key);
bool HasNoExperts(const UnreadKey& key);  // or the value is 0
bool HasNoExpertGroups(const UnreadKey& key);
// Whether sublayers read one stream or each other's, as the value says and the tensors do.
bool IsTheFlow(const UnreadKey& key);
bool HasNoTemperature(const UnreadKey& key);
bool HasNoRope(const UnreadKey& key);
bool HasNoYarnOrIsZero(const UnreadKey& key);
bool HasNoYarnOrIsOne(const UnreadKey& key);
bool HasNoYarn(const UnreadKey& key);
// All positions of a text have one number, so sections of rotated pairs are equal; but with them
// pairs are halves apart.
bool RotatesHalves(const UnreadKey& key);
// Settings of layers with a window: there are none, or the value is that of the other layers.
bool IsFreqBase(const UnreadKey& key);
bool IsDimensionCount(const UnreadKey& key);
bool IsKeyLength(const UnreadKey& key);
bool IsValueLength(const UnreadKey& key);
// Normalization of texts by a tokenizer of another kind, or as it is done anyway.
bool IsZeroOrWordPiece(const UnreadKey& key);
bool IsZeroOrMerges(const UnreadKey& key);

}  // namespace kvant::arch
