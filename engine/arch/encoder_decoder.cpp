#include "engine/arch/encoder_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/result.h"
#include "engine/arch/hidden_activation.h"
#include "engine/arch/sublayers/cross_attention.h"

namespace kvant::arch {
namespace {

constexpr int64_t kDistanceMax = 128;  // of models whose file does not say it
constexpr int64_t kDistanceLimit = 1 << 16;
constexpr int64_t kBucketsMax = 1 << 12;
// Numbers of a frame of sound; models have 80 and 128.
constexpr uint32_t kFrameBinsMax = 1 << 12;

// The sizes of one of the two stacks.
struct StackSizes {
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t ffn = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
};

// The sizes and settings that both stacks share.
struct Common {
  const Metadata& metadata;
  const EncoderDecoderTraits& traits;
  int64_t dim = 0;
  float epsilon = 0;
  float embedding_scale = 1;
  bool gated = false;
  cpu::Activation activation = cpu::Activation::kRelu;
  DistanceBuckets buckets = {};
};

Result<StackSizes> ReadSizes(const Metadata& metadata, int64_t dim) {
  StackSizes sizes;
  KVANT_ASSIGN(sizes.layers, metadata.Count("block_count", kLayersMax));
  KVANT_ASSIGN(sizes.heads, metadata.Count("attention.head_count", kHeadsMax));
  KVANT_ASSIGN(sizes.ffn, metadata.Count("feed_forward_length", kDimMax));
  KVANT_ASSIGN(sizes.k_dim, metadata.CountOr("attention.key_length", kHeadDimMax, 0));
  KVANT_ASSIGN(sizes.v_dim, metadata.CountOr("attention.value_length", kHeadDimMax, 0));
  if (sizes.k_dim > 0 && sizes.v_dim > 0) return sizes;
  if (dim % sizes.heads != 0 || dim / sizes.heads > int64_t{kHeadDimMax}) {
    return MakeError(ErrorCode::kCorrupt, "{}: dimension {} cannot be divided into {} heads",
                     metadata.file().path(), dim, sizes.heads);
  }
  if (sizes.k_dim == 0) sizes.k_dim = dim / sizes.heads;
  if (sizes.v_dim == 0) sizes.v_dim = dim / sizes.heads;
  return sizes;
}

Result<StackSizes> ReadDecoderSizes(const Metadata& metadata, const StackSizes& of_encoder,
                                    int64_t dim) {
  StackSizes sizes = of_encoder;
  KVANT_ASSIGN(sizes.layers,
               metadata.CountOr("decoder_block_count", kLayersMax, of_encoder.layers));
  KVANT_ASSIGN(sizes.heads,
               metadata.CountOr("decoder.attention.head_count", kHeadsMax, of_encoder.heads));
  KVANT_ASSIGN(sizes.ffn, metadata.CountOr("decoder.feed_forward_length", kDimMax, of_encoder.ffn));
  if (sizes.heads == of_encoder.heads) return sizes;
  // Heads of another number have another size.
  if (dim % sizes.heads != 0 || dim / sizes.heads > int64_t{kHeadDimMax}) {
    return MakeError(
        ErrorCode::kCorrupt, "{}: key {}: dimension {} cannot be divided into {} heads",
        metadata.file().path(), metadata.Key("decoder.attention.head_count"), dim, sizes.heads);
  }
  sizes.k_dim = sizes.v_dim = dim / sizes.heads;
  return sizes;
}

Result<Common> ReadCommon(const Metadata& metadata, const EncoderDecoderTraits& traits) {
  Common common = {metadata, traits};
  KVANT_ASSIGN(common.dim, metadata.Count("embedding_length", kDimMax));
  KVANT_ASSIGN(common.epsilon, metadata.Positive(traits.norms == NormKind::kLayer
                                                     ? "attention.layer_norm_epsilon"
                                                     : "attention.layer_norm_rms_epsilon"));
  KVANT_ASSIGN(common.embedding_scale, metadata.PositiveOr("embedding_scale", 1));
  common.gated = std::ranges::any_of(metadata.file().tensors(), [](const auto& tensor) {
    return tensor.name.ends_with(".ffn_gate.weight");
  });
  KVANT_ASSIGN(
      common.activation,
      ReadHiddenActivation(metadata, common.gated ? traits.gated_activation : traits.activation));
  if (!traits.distances) return common;
  KVANT_ASSIGN(common.buckets.buckets,
               metadata.Count("attention.relative_buckets_count", kBucketsMax));
  KVANT_ASSIGN(common.buckets.distance_max,
               metadata.CountOr("attention.relative_distance_max", kDistanceLimit, kDistanceMax));
  // Half of them may be for one direction, and half of these for one distance each.
  if (common.buckets.buckets % 4 != 0 ||
      common.buckets.distance_max <= common.buckets.buckets / 2) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: key {}: expected a multiple of 4 below twice the distance {}, found {}",
                     metadata.file().path(), metadata.Key("attention.relative_buckets_count"),
                     common.buckets.distance_max, common.buckets.buckets);
  }
  return common;
}

Attention MakeAttention(const Common& common, const StackSizes& sizes, MaskKind mask) {
  Attention attention;
  attention.heads = attention.kv_heads = sizes.heads;
  attention.k_dim = sizes.k_dim;
  attention.v_dim = sizes.v_dim;
  attention.mask.kind = mask;
  attention.head_norms = HeadNorms::kNone;
  attention.scale =
      common.traits.distances ? 1.0f : 1.0f / std::sqrt(static_cast<float>(sizes.k_dim));
  attention.buckets = common.buckets;
  attention.output = "attn_o";
  return attention;
}

Sublayer MakeSublayer(const Common& common, std::string_view norm_name, Block block) {
  const Norm norm = {common.traits.norms, norm_name, common.epsilon};
  Sublayer sublayer = {.norm_before = {}, .block = std::move(block)};
  if (common.traits.place == NormPlace::kBefore) {
    sublayer.norm_before = norm;
  } else {
    sublayer.norm_of_sum = norm;
  }
  return sublayer;
}

// The names that differ between the stacks.
struct StackNames {
  std::string_view layers;
  std::string_view positions;
  std::string_view embedding_norm;
  std::string_view final_norm;
};
constexpr StackNames kEncoderNames = {"enc.blk", "enc.position_embd", "enc.token_embd_norm",
                                      "enc.output_norm"};
constexpr StackNames kDecoderNames = {"dec.blk", "dec.position_embd", "dec.token_embd_norm",
                                      "dec.output_norm"};

Stack MakeStack(const Common& common, const StackSizes& sizes, const StackNames& names,
                MaskKind mask) {
  const EncoderDecoderTraits& traits = common.traits;
  Stack stack;
  stack.layer_prefix = names.layers;
  stack.dim = common.dim;
  stack.input.scale = common.embedding_scale;
  if (traits.positions) stack.input.positions = names.positions;
  if (traits.embedding_norms) {
    stack.input.norm = Norm{traits.norms, names.embedding_norm, common.epsilon};
  }
  stack.final_norm = {traits.norms, names.final_norm, common.epsilon};
  if (traits.place == NormPlace::kAfterSum) stack.final_norm = {NormKind::kNone, "", 0};
  LayerSpec layer;
  layer.sublayers.push_back(MakeSublayer(common, "attn_norm", MakeAttention(common, sizes, mask)));
  if (mask == MaskKind::kCausal) {
    const CrossAttention cross = {
        sizes.heads, sizes.k_dim, sizes.v_dim,
        traits.distances ? 1.0f : 1.0f / std::sqrt(static_cast<float>(sizes.k_dim))};
    layer.sublayers.push_back(MakeSublayer(common, "cross_attn_norm", cross));
  }
  const Block ffn = common.gated ? Block(GatedFfn{sizes.ffn, common.activation})
                                 : Block(PlainFfn{sizes.ffn, common.activation});
  layer.sublayers.push_back(MakeSublayer(common, "ffn_norm", ffn));
  stack.layers.assign(static_cast<size_t>(sizes.layers), layer);
  return stack;
}

// The encoder of a model without its decoder.
Result<ModelSpec> ReadStackOfEncoder(const Common& common, const StackSizes& sizes) {
  const Metadata& metadata = common.metadata;
  ModelSpec model;
  KVANT_ASSIGN(model.context_train, metadata.Count("context_length", kContextMax));
  Encoder& encoder = model.encoder.emplace();
  KVANT_ASSIGN(encoder.source_max,
               metadata.CountOr("encoder.context_length", kContextMax, model.context_train));
  encoder.stack = MakeStack(common, sizes, kEncoderNames, MaskKind::kAll);
  if (!common.traits.frames) return model;
  KVANT_ASSIGN(const int64_t bins, metadata.Count("audio.mel_bins", kFrameBinsMax));
  KVANT_ASSIGN(const int64_t frames, metadata.Count("audio.frames", 2 * kContextMax));
  if (frames % graph::kFramesPerPosition != 0) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected an even number, found {}",
                     metadata.file().path(), metadata.Key("audio.frames"), frames);
  }
  encoder.frames = FrameInput{bins};
  encoder.source_max = frames / graph::kFramesPerPosition;
  return model;
}

}  // namespace

Result<ModelSpec> ReadEncoderAlone(const Metadata& metadata, const EncoderDecoderTraits& traits) {
  KVANT_ASSIGN(const Common common, ReadCommon(metadata, traits));
  KVANT_ASSIGN(const StackSizes sizes, ReadSizes(metadata, common.dim));
  return ReadStackOfEncoder(common, sizes);
}

Result<ModelSpec> ReadEncoderDecoder(const Metadata& metadata, const EncoderDecoderTraits& traits) {
  KVANT_ASSIGN(const Common common, ReadCommon(metadata, traits));
  KVANT_ASSIGN(const StackSizes of_encoder, ReadSizes(metadata, common.dim));
  KVANT_ASSIGN(const StackSizes of_decoder, ReadDecoderSizes(metadata, of_encoder, common.dim));
  KVANT_ASSIGN(ModelSpec model, ReadStackOfEncoder(common, of_encoder));
  Encoder& encoder = *model.encoder;
  const bool own_embedding = metadata.file().FindTensor("enc.token_embd.weight") != nullptr;
  if (own_embedding) encoder.stack.input.tensor = "enc.token_embd";
  KVANT_ASSIGN(const auto first, metadata.file().GetU32(metadata.Key("decoder_start_token_id")));
  // Converters write an id that a model does not have, -1, as 32 bits.
  const bool is_none = first == std::numeric_limits<uint32_t>::max();
  if (first.has_value() && !is_none) encoder.first_token = int64_t{*first};
  Stack& decoder =
      model.stacks.emplace_back(MakeStack(common, of_decoder, kDecoderNames, MaskKind::kCausal));
  if (traits.scale_tied_output && metadata.file().FindTensor("output.weight") == nullptr) {
    decoder.output.scale = 1.0f / std::sqrt(static_cast<float>(common.dim));
  }
  return model;
}

}  // namespace kvant::arch
