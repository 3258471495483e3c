// The two convolutions of an encoder of frames by their formula in double precision, straight from
// the frames, without gathered rows.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/arch/sublayers/frame_input.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

// out[o][r] = GELU(bias[o] + sum over c and t of weight[o][c][t] * in[c][stride * r + t - 1]),
// where `in` has a row for each channel.
inline std::vector<Vector> ReferenceConvolution(const std::string& name,
                                                const std::vector<Vector>& in, size_t stride,
                                                ReferenceWeights& weights) {
  const Vector& weight = weights.Get(name + ".weight");
  const size_t taps = 3;
  const size_t length = in.front().size();
  std::vector<Vector> out(weight.size() / (in.size() * taps), Vector(length / stride));
  for (size_t o = 0; o < out.size(); ++o) {
    for (size_t r = 0; r < out[o].size(); ++r) {
      double sum = weights.Has(name + ".bias") ? weights.Get(name + ".bias")[o] : 0;
      for (size_t c = 0; c < in.size(); ++c) {
        for (size_t t = 0; t < taps; ++t) {
          const size_t place = stride * r + t;  // of the padded row
          if (place == 0 || place > length) continue;
          sum += weight[(o * in.size() + c) * taps + t] * in[c][place - 1];
        }
      }
      out[o][r] = 0.5 * sum * (1 + std::erf(sum / std::sqrt(2.0)));
    }
  }
  return out;
}

// Rows of the stream, [positions][dim], of frames [bins][frames].
inline std::vector<Vector> ReferenceFrames(const arch::FrameInput& input,
                                           const std::vector<float>& frames,
                                           ReferenceWeights& weights) {
  const size_t bins = static_cast<size_t>(input.bins);
  const size_t count = frames.size() / bins;
  std::vector<Vector> in;
  for (size_t c = 0; c < bins; ++c) {
    const auto begin = frames.begin() + static_cast<std::ptrdiff_t>(c * count);
    in.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  const std::vector<Vector> channels = ReferenceConvolution(
      "enc.conv1d.1", ReferenceConvolution("enc.conv1d.0", in, 1, weights), 2, weights);
  std::vector<Vector> rows(channels.front().size(), Vector(channels.size()));
  for (size_t o = 0; o < channels.size(); ++o) {
    for (size_t r = 0; r < rows.size(); ++r) rows[r][o] = channels[o][r];
  }
  return rows;
}

}  // namespace kvant::test
