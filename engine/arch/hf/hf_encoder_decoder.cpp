#include "engine/arch/hf/hf_encoder_decoder.h"

#include <cmath>

#include "base/result.h"
#include "engine/limits.h"

namespace kvant::arch {

Status ReadHfDecoder(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(shape.decoder.layers, config.Count("decoder_layers", kLayersMax));
  KVANT_ASSIGN(shape.decoder.ffn, config.Count("decoder_ffn_dim", kDimMax));
  KVANT_ASSIGN(shape.decoder.heads, config.Count("decoder_attention_heads", kHeadsMax));
  const int64_t heads = shape.decoder.heads;
  if (shape.dim % heads == 0 && shape.dim / heads <= kHeadDimMax) return {};
  return config.Wrong(
      "decoder_attention_heads",
      fmt::format("heads of one size up to {} that make up d_model, {}", kHeadDimMax, shape.dim));
}

Status AddHfDecoder(const JsonObject& config, const HfShape& shape, Parameters& out) {
  const auto add = [&](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  const HfDecoder& decoder = shape.decoder;
  add("encoder.context_length", shape.source > 0 ? shape.source : shape.context);
  add("decoder_block_count", decoder.layers);
  if (decoder.ffn != shape.ffn) add("decoder.feed_forward_length", decoder.ffn);
  if (decoder.heads != shape.heads) add("decoder.attention.head_count", decoder.heads);
  KVANT_ASSIGN(const auto start, config.Integer("decoder_start_token_id", shape.vocab - 1));
  if (start.has_value()) add("decoder_start_token_id", *start);
  return {};
}

Status AddHfTwoStacks(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfDecoder(config, shape, out));
  KVANT_ASSIGN(const auto activation, config.String("activation_function"));
  out.writer->AddString(out.Key("hidden_act"), activation.value_or("gelu"));
  KVANT_ASSIGN(const auto scaled, config.Bool("scale_embedding"));
  if (!scaled.value_or(false)) return {};
  out.writer->AddF32(out.Key("embedding_scale"), std::sqrt(static_cast<float>(shape.dim)));
  return {};
}

void AddHfPositions(const HfShape& shape, HfPositionValue value, Parameters& out) {
  std::vector<float> values(static_cast<size_t>(shape.context * shape.dim));
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    values[static_cast<size_t>(i)] = value(i / shape.dim, i % shape.dim, shape.dim);
  }
  for (const char* name : {"enc.position_embd.weight", "dec.position_embd.weight"}) {
    out.tensors.push_back({name, values, shape.dim});
  }
}

}  // namespace kvant::arch
