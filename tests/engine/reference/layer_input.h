// The blocks arch::LayerInputs and arch::LayerInput in plain loops, from the formulas in their
// header.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/gated_ffn.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

// [tokens][layers * width], by the tokens and the rows that enter the first layer.
inline std::vector<Vector> ReferenceLayerInputs(const arch::LayerInputs& spec,
                                                const std::vector<int32_t>& tokens,
                                                const std::vector<Vector>& stream,
                                                ReferenceWeights& weights) {
  std::vector<Vector> inputs;
  for (size_t t = 0; t < tokens.size(); ++t) {
    Vector& row = inputs.emplace_back();
    const Vector projected = weights.Multiply("per_layer_model_proj", stream[t]);
    const Vector& table = weights.Get("per_layer_token_embd.weight");
    for (int64_t layer = 0; layer < spec.layers; ++layer) {
      Vector numbers(projected.begin() + layer * spec.width,
                     projected.begin() + (layer + 1) * spec.width);
      for (double& value : numbers) value /= std::sqrt(static_cast<double>(stream[t].size()));
      numbers = weights.Norm("", spec.norm, numbers);
      for (int64_t i = 0; i < spec.width; ++i) {
        const int64_t column = layer * spec.width + i;
        const double of_token =
            table[static_cast<size_t>(tokens[t] * spec.layers * spec.width + column)];
        row.push_back((numbers[static_cast<size_t>(i)] +
                       of_token * std::sqrt(static_cast<double>(spec.width))) /
                      std::sqrt(2.0));
      }
    }
  }
  return inputs;
}

inline std::vector<Vector> Reference(const arch::LayerInput& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  const auto layer = static_cast<size_t>(std::stoi(prefix.substr(prefix.find('.') + 1)));
  std::vector<Vector> out;
  for (size_t t = 0; t < in.size(); ++t) {
    Vector gate = weights.Multiply(prefix + "inp_gate", in[t]);
    const Vector& inputs = weights.Kept("layer_inputs")[t];
    for (size_t i = 0; i < gate.size(); ++i) {
      gate[i] = ReferenceActivation(spec.activation, gate[i]) * inputs[layer * gate.size() + i];
    }
    out.push_back(weights.Multiply(prefix + "proj", gate));
  }
  return out;
}

}  // namespace kvant::test
