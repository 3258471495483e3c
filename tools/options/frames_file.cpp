#include "tools/options/frames_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/npy.h"

namespace kvant::tools {

Result<std::vector<float>> ReadFrames(const std::string& path, const Model& model) {
  const auto shape = model.frame_shape();
  if (!shape.has_value()) {
    return MakeError(ErrorCode::kInvalid, "{}: the model reads no frames, found --frames",
                     model.file().path());
  }
  KVANT_ASSIGN(formats::NpyArray array, formats::NpyRead(path));
  const std::vector<int64_t> expected = {shape->bins, shape->frames};
  if (array.shape == expected) return std::move(array.values);
  return MakeError(ErrorCode::kInvalid, "{}: expected an array of shape [{}], found [{}]", path,
                   fmt::join(expected, ", "), fmt::join(array.shape, ", "));
}

std::string FramesText(const FrameShape& shape) {
  return fmt::format("{} frames of {} numbers, as an array [{}, {}] of NumPy", shape.frames,
                     shape.bins, shape.bins, shape.frames);
}

}  // namespace kvant::tools
