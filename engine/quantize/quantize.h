// Writes a quantized model: carries out a plan of engine/quantize/plan.h.
//
// The file streams through: threads take pieces of a few hundred rows, decode, encode and write
// them where they belong, so that memory holds a piece per thread, the pages of the source that
// are in use, and at most 8 MiB a thread and 4 MiB of the output (OutputFile::WriteAt). The bytes
// written do not depend on the number of threads or the instruction set.
//
// The output appears whole or not at all; of a split one, each shard does, and the earlier ones are
// removed if a later one fails.
//
// Errors: kInvalid for an output that is an input or no regular file, and for weights that are NaN
// or infinite unless they are allowed; kIo; what on_progress returns. Thread-safety: calls are
// independent.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/quantize/plan.h"
#include "formats/gguf.h"

namespace kvant::quantize {

struct QuantizeProgress {
  std::string_view tensor;
  uint64_t bytes_done = 0;  // of the source
  uint64_t bytes_total = 0;
};

enum class NonFinite : uint8_t { kRefused, kAllowed };

struct WriteOptions {
  int threads = 1;
  NonFinite non_finite = NonFinite::kRefused;
  // Shards like those of the source: "OUT-00001-of-00003.gguf" for the output "OUT".
  bool keep_split = false;
  // Called now and then on the calling thread; an error ends the work with it. May be empty.
  std::function<Status(const QuantizeProgress&)> on_progress = {};
};

// The bytes of all files that WriteQuantized would write.
Result<uint64_t> OutputBytes(const formats::GgufFile& file, const QuantizePlan& plan,
                             const WriteOptions& options);

// Refuses what WriteQuantized would refuse before it begins: an output that is an input, or no
// regular file, or in a folder where nothing can be created, and shards that exist already.
Status CheckOutput(const formats::GgufFile& file, const std::string& output,
                   const WriteOptions& options);

// The files written.
Result<std::vector<std::string>> WriteQuantized(const formats::GgufFile& file,
                                                const QuantizePlan& plan, const std::string& output,
                                                const WriteOptions& options);

}  // namespace kvant::quantize
