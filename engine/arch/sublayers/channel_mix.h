// The channel mix of RWKV 6 and 7, its feed-forward: with x' the row before x,
//   k = relu(key . (x + lerp_k * (x' - x)))^2
//   out = value . k, in RWKV 6 times sigmoid(receptance . (x + lerp_r * (x' - x)))
//
// Tensors: channel_mix_lerp_k, [dim], channel_mix_key, channel_mix_value; with receptance
// channel_mix_lerp_r and channel_mix_receptance. It keeps the last x as its state.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/arch/metadata.h"

namespace kvant::arch {

struct Stack;
class SublayerBuilder;

enum class Receptance : uint8_t { kNo, kYes };

struct ChannelMix {
  int64_t width = 0;  // rows of the key matrix
  Receptance receptance = Receptance::kNo;
  float stream_scale = 1;  // multiplies the stream after the block's result is added

  Status AddNodes(SublayerBuilder& builder) const;
};

// The channel mixes of all layers of a stack, by feed_forward_length.
Result<std::vector<ChannelMix>> ReadChannelMixes(const Metadata& metadata, const Stack& stack,
                                                 Receptance receptance);

}  // namespace kvant::arch
