// Reads the steps in front of the cutting from a tokenizer.json made from a SentencePiece model:
// that spaces are U+2581, and the table that replaces characters, which stands there in base64.
//
// Errors name the file and the key. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "formats/json_object.h"

namespace kvant::convert {

// Whether a step before the cutting makes U+2581 of spaces, and characters without a piece are
// unknown, not bytes.
bool HasSpacePieces(const formats::JsonObject& tokenizer);

// The table of the normalizer "Precompiled"; empty where there is none. kCorrupt for what is no
// base64 or no table.
Result<std::vector<uint8_t>> PrecompiledTable(const formats::JsonObject& tokenizer);

}  // namespace kvant::convert
