// The vocabulary file of RWKV's "world" models: a line for each token from id 1 on, its id, its
// text as a literal of Python, 'text' or b'bytes', and how many bytes it has.
//
// Errors (kCorrupt, kIo) name the file and the line. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/convert/vocabulary.h"

namespace kvant::convert {

inline constexpr std::string_view kRwkvVocabularyFile = "rwkv_vocab_v20230424.txt";

// Ids beyond the file's are unused; id 0 ends a text.
Result<Vocabulary> ReadRwkvVocabulary(const std::string& path, int64_t vocab_size);

}  // namespace kvant::convert
