// Frames of features for encoders that read sound, from a file of NumPy: float32 or float16,
// [values of a frame, frames].
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/model.h"

namespace kvant::tools {

// kInvalid where the model reads no frames, and for another shape than it reads; errors name the
// file.
Result<std::vector<float>> ReadFrames(const std::string& path, const Model& model);

// "3000 frames of 80 numbers, as an array [80, 3000] of NumPy": what the encoder reads.
std::string FramesText(const FrameShape& shape);

}  // namespace kvant::tools
