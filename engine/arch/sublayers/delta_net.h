// A gated delta net: a recurrence whose state is a matrix for each value head (Yang et al. 2024,
// arXiv 2412.06464):
//   q, k, v = silu(conv(qkv . x)), where conv takes each column over the last `taps` rows
//   q, k = each head of them over its length, q also over sqrt(key_dim)
//   S = exp(a * softplus(alpha . x + dt)) S
//   S = S + k (x) sigmoid(beta . x) (v - k . S)
//   out = ssm_out . (rms_norm(q . S) of each head * activation(gate . x))
//
// Several value heads have the queries and keys of one key head. Tensors: attn_qkv, attn_gate,
// ssm_beta and ssm_alpha, or both in ssm_ba, ssm_conv1d [taps x columns of q, k and v], ssm_a and
// ssm_dt.bias, [value_heads], ssm_norm [value_dim], ssm_out. It keeps the last taps - 1 rows of
// qkv . x and the matrices as its state.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/metadata.h"

namespace kvant::arch {

class SublayerBuilder;

// Says which key head a value head has.
enum class ValueHeads : uint8_t {
  kGrouped,  // value heads of one key head follow each other: v / (value heads per key head)
  kTiled,    // key heads take turns: v modulo the number of key heads
};

struct DeltaNet {
  int64_t taps = 0;
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;    // of a head
  int64_t value_dim = 0;  // of a head
  ValueHeads order = ValueHeads::kGrouped;
  float norm_epsilon = 0;
  cpu::Activation gate_activation = cpu::Activation::kSilu;

  int64_t key_columns() const { return key_heads * key_dim; }
  int64_t value_columns() const { return value_heads * value_dim; }
  int64_t qkv_columns() const { return 2 * key_columns() + value_columns(); }
  int64_t KeyHead(int64_t value_head) const {
    return order == ValueHeads::kTiled ? value_head % key_heads
                                       : value_head / (value_heads / key_heads);
  }

  Status AddNodes(SublayerBuilder& builder) const;
};

// Reads ssm.conv_kernel, ssm.group_count, ssm.time_step_rank, ssm.state_size and ssm.inner_size.
Result<DeltaNet> ReadDeltaNet(const Metadata& metadata, ValueHeads order, float norm_epsilon);

// Reads which layers have attention: every n-th by full_attention_interval, 4 where there is no
// such key, and the others by attention.recurrent_layers, a flag per layer. kCorrupt where the two
// contradict.
Result<std::vector<bool>> ReadAttentionInterval(const Metadata& metadata, size_t layers);

}  // namespace kvant::arch
