// Frames of features for encoders that read sound, from a file of NumPy: float32, float16 or
// float64, [values of a frame, frames] or, as a batch of one, [1, values of a frame, frames].
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/npy.h"
#include "kvant/model.h"

namespace kvant::tools {

// The frames of a file, as many as the model reads: silence follows fewer ones. kInvalid where the
// model reads no frames, for values of another number in a frame, no frames or too many; errors
// name the file.
Result<std::vector<float>> ReadFrames(const std::string& path, const Model& model);
Result<std::vector<float>> FitFrames(formats::NpyArray array, const FrameShape& shape,
                                     const std::string& path);

// The value that Whisper's feature extractor gives for silence beside these values: they are (x +
// 4) / 4 of logarithms x to the base 10, which end 8 below the largest of the recording and at -10.
float SilentValue(std::span<const float> values);

// "3000 frames of 80 numbers, as an array [80, 3000] of NumPy": what the encoder reads.
std::string FramesText(const FrameShape& shape);

}  // namespace kvant::tools
