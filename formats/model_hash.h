// XXH64 hashes of a model's weights, as llama-gguf-hash defines them: of each tensor's bytes, and
// of the bytes of all tensors in file order as one stream. Metadata and padding do not count, so
// that a model keeps its hash when only its metadata changes.
//
// Thread-safety: pure functions over their arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "formats/gguf.h"

namespace kvant::formats {

// Called after each tensor, in file order; an error ends the work and is returned.
using TensorHashFunction = std::function<Status(const GgufTensor& tensor, uint64_t xxh64)>;

// The hash of the whole model.
Result<uint64_t> HashModel(const GgufFile& file, const TensorHashFunction& on_tensor);

// 16 lower-case hexadecimal digits, the most significant first.
std::string HashHex(uint64_t hash);

}  // namespace kvant::formats
