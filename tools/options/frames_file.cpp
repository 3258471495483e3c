#include "tools/options/frames_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <utility>

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
  return FitFrames(std::move(array), *shape, path);
}

Result<std::vector<float>> FitFrames(formats::NpyArray array, const FrameShape& shape,
                                     const std::string& path) {
  std::span<const int64_t> found(array.shape);
  if (found.size() == 3 && found.front() == 1) found = found.subspan(1);
  const bool fits =
      found.size() == 2 && found[0] == shape.bins && found[1] >= 1 && found[1] <= shape.frames;
  if (!fits) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: expected an array of shape [{}, 1 to {}], found [{}]", path, shape.bins,
                     shape.frames, fmt::join(array.shape, ", "));
  }
  const auto given = static_cast<size_t>(found[1]);
  const auto frames = static_cast<size_t>(shape.frames);
  if (given == frames) return std::move(array.values);
  std::vector<float> values(static_cast<size_t>(shape.bins) * frames, SilentValue(array.values));
  for (size_t bin = 0; bin < static_cast<size_t>(shape.bins); ++bin) {
    std::copy_n(array.values.begin() + static_cast<std::ptrdiff_t>(bin * given), given,
                values.begin() + static_cast<std::ptrdiff_t>(bin * frames));
  }
  return values;
}

float SilentValue(std::span<const float> values) {
  constexpr float kLeast = (-10.0f + 4) / 4;
  constexpr float kBelowLargest = 8.0f / 4;
  if (values.empty()) return kLeast;
  return std::max(kLeast, *std::ranges::max_element(values) - kBelowLargest);
}

std::string FramesText(const FrameShape& shape) {
  return fmt::format("{} frames of {} numbers, or fewer frames, as an array [{}, {}] of NumPy",
                     shape.frames, shape.bins, shape.bins, shape.frames);
}

}  // namespace kvant::tools
