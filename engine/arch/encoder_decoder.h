// Functions that encoder-decoder families share: a model of two stacks. A layer has an attention
// over the stack's own rows and a feed-forward; a layer of the decoder has an attention over the
// source between the two.
//
// Tensors: enc.blk.N. and dec.blk.N. with attn_norm, attn_q, attn_k, attn_v, attn_o, ffn_norm,
// ffn_up, ffn_down, ffn_gate where the feed-forward has one, and in the decoder cross_attn_norm,
// cross_attn_q, cross_attn_k, cross_attn_v, cross_attn_o; token_embd for both, or for the decoder
// where there is an enc.token_embd; output, unless it is the embedding; the names below where a
// family has such tensors.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"

namespace kvant::arch {

enum class NormPlace : uint8_t {
  kBefore,  // each sublayer, and behind the last layer of a stack: enc.output_norm, dec.output_norm
  kAfterSum,  // of the stream and what the sublayer adds to it
};

struct EncoderDecoderTraits {
  NormKind norms = NormKind::kLayer;
  NormPlace place = NormPlace::kBefore;
  bool embedding_norms = false;  // enc.token_embd_norm, dec.token_embd_norm
  bool positions = false;        // enc.position_embd, dec.position_embd
  bool frames = false;           // the encoder reads frames of features, FrameInput, not tokens
  bool distances = false;        // attn_rel_b, see DistanceBuckets; and scores are not scaled
  // The logits of a model whose output is the embedding are divided by sqrt(dim).
  bool scale_tied_output = false;
  // Activations of gated and of plain feed-forwards, for files that do not name one.
  cpu::Activation gated_activation = cpu::Activation::kGeluTanh;
  cpu::Activation activation = cpu::Activation::kRelu;
};

// Keys: embedding_length, context_length, encoder.context_length (where absent: context_length),
// block_count and decoder_block_count, feed_forward_length, attention.head_count,
// attention.key_length, attention.value_length, hidden_act, embedding_scale,
// attention.relative_buckets_count, attention.relative_distance_max (where absent: 128), and
// decoder.feed_forward_length and decoder.attention.head_count where the decoder's sizes differ;
// audio.mel_bins and audio.frames, of a source, where the encoder reads frames.
Result<ModelSpec> ReadEncoderDecoder(const Metadata& metadata, const EncoderDecoderTraits& traits);

// Reads a model that is an encoder and nothing else: ModelSpec::stacks is empty.
Result<ModelSpec> ReadEncoderAlone(const Metadata& metadata, const EncoderDecoderTraits& traits);

}  // namespace kvant::arch
