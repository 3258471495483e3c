// The attentions of a stack of layers.
#pragma once

#include <variant>
#include <vector>

#include "engine/arch/spec.h"

namespace kvant::test {

// In the order of their layers.
inline std::vector<const arch::Attention*> Attentions(const arch::Stack& stack) {
  std::vector<const arch::Attention*> attentions;
  for (const arch::LayerSpec& layer : stack.layers) {
    for (const arch::Sublayer& sublayer : layer.sublayers) {
      const auto* attention = std::get_if<arch::Attention>(&sublayer.block);
      if (attention != nullptr) attentions.push_back(attention);
    }
  }
  return attentions;
}

}  // namespace kvant::test
