// The vectors of kvant embed as a NumPy file, as lines of JSON or as plain numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/output_file.h"
#include "base/result.h"
#include "formats/npy.h"
#include "tools/options/json.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

enum class VectorFormat : uint8_t { kNpy, kJsonl, kRaw };
// kInvalid for another word.
Status ParseVectorFormat(const std::string& text, std::optional<VectorFormat>* format);

// Whether a text has one vector, or one for each token.
enum class VectorsOfText : uint8_t { kOne, kOnePerToken };

class VectorOutput {
 public:
  // Writes to standard output where `path` is empty; kNpy needs a path. `rows` and `columns` are
  // the sizes of all vectors together.
  static Result<VectorOutput> Create(VectorFormat format, const std::string& path, int64_t rows,
                                     int64_t columns);

  // The rows of text number `text`, whose id stands in its line if there is one.
  Status Write(int64_t text, const std::optional<Json>& id, std::span<const float> rows,
               VectorsOfText vectors);
  Status Finish();

  ResultStream& stream() { return stream_; }

 private:
  VectorOutput(VectorFormat format, int64_t columns) : format_(format), columns_(columns) {}
  Status WriteBytes(std::string_view bytes);

  VectorFormat format_;
  int64_t columns_;
  ResultStream stream_;
  std::optional<formats::NpyWriter> npy_;
  std::optional<OutputFile> file_;
};

}  // namespace kvant::tools
