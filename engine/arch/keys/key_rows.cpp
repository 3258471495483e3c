#include "engine/arch/keys/key_rows.h"

#include <algorithm>
#include <array>

#include "engine/arch/keys/idle_keys.h"

namespace kvant::arch {
namespace {

// A key that never has an effect where nobody read it.
constexpr KeyRow Idle(std::string_view name, std::string_view why) {
  return {name, IsAlwaysIdle, why};
}

// ---- Keys without an effect where no family reads them ------------------------------------------

constexpr std::string_view kShape = "the shapes of tensors say it";
constexpr std::string_view kOtherKind = "epsilons count for norms of their kind, which read them";
constexpr std::string_view kByTensor = "the tensors of a layer say which feed-forward it has";
constexpr std::string_view kScaling = "the type of RoPE scaling, which is read, has no use for it";
constexpr std::string_view kImages = "rows of images would use it, and texts have none";
constexpr std::string_view kLater = "generations read it: options and languages";

constexpr KeyRow kIdleRows[] = {
    Idle("vocab_size", kShape),
    Idle("context_length", "a model that learned its positions says their number by a tensor"),
    Idle("embedding_length", kShape),
    Idle("embedding_length_out", "the width of embedding vectors, which are not logits"),
    Idle("feed_forward_length", kShape),
    Idle("expert_shared_feed_forward_length", kShape),
    Idle("expert_shared_count", kByTensor),
    Idle("leading_dense_block_count", kByTensor),
    Idle("interleave_moe_layer_step", kByTensor),
    Idle("moe_every_n_layers", kByTensor),
    Idle("tensor_data_layout", "the layout of the original file"),
    Idle("attention.head_count", "layers that attend read it"),
    Idle("attention.head_count_kv", "layers with keys and values of their own read it"),
    Idle("attention.key_length", kShape),
    Idle("attention.value_length", kShape),
    Idle("attention.key_length_mla", kShape),
    Idle("attention.value_length_mla", kShape),
    Idle("attention.layer_norm_epsilon", kOtherKind),
    Idle("attention.layer_norm_rms_epsilon", kOtherKind),
    Idle("rope.scaling.finetuned", "it tells how a model was trained"),
    Idle("rope.scaling.factor", kScaling),
    Idle("rope.scaling.yarn_beta_fast", kScaling),
    Idle("rope.scaling.yarn_beta_slow", kScaling),
    Idle("n_deepstack_layers", kImages),
    Idle("deepstack_mapping", kImages),
    Idle("vision.", kImages),
    Idle("mm.", kImages),
    Idle("classifier.output_labels", "scores are read with it"),
    Idle("classifier.activation", "logits are scores, whatever the file would make of them"),
    Idle("generation.", kLater),
    Idle("languages", kLater),
    Idle("source_language", kLater),
    Idle("target_language", kLater),
    Idle("usual_source_language", kLater),
};

// ---- Keys that change what a model computes -----------------------------------------------------

constexpr std::string_view kIndexer = "attention sees the positions that an indexer chooses";
constexpr std::string_view kExpertChoice = "it changes how experts are chosen or weighed";
constexpr std::string_view kOtherRope = "it changes the rotation of queries and keys";
constexpr std::string_view kOtherHeads = "layers with a window have heads of another size";
constexpr std::string_view kOtherScale = "it scales rows, scores or logits";
constexpr std::string_view kOtherMixer = "layers have a recurrence of another family";
constexpr std::string_view kDraft = "the file is a draft that reads another model's rows";
constexpr std::string_view kOtherPart = "it is about a part that this architecture has not got";

constexpr KeyRow kChangingRows[] = {
    {"dense_", IsNeverIdle, "embeddings go through further matrices"},
    {"attention.temperature_scale", IsZero, "queries are scaled by their position"},
    {"attention.temperature_length", HasNoTemperature, "queries are scaled by their position"},
    {"attention.scale", IsZero, kOtherScale},
    {"attention.output_scale", IsZeroOrOne, kOtherScale},
    {"attention.value_scale", IsZeroOrOne, kOtherScale},
    {"attention.max_alibi_bias", IsZero, "scores have a bias by distance"},
    {"attention.clamp_kqv", IsZero, "queries, keys and values are clamped"},
    {"attention.sliding_window", IsZero, "attention has a window"},
    {"attention.sliding_window_pattern", IsZero, "it says which layers have a window"},
    {"attention.rope_pattern", IsOne, "it says which layers rotate"},
    {"attention.shared_kv_layers", IsZero, "layers share keys and values"},
    {"attention.recurrent_layers", IsZero, kOtherMixer},
    {"attention.relative_buckets_count", IsZero, "scores have a learned bias by distance"},
    {"attention.q_lora_rank", IsZero, "queries come from a product of two matrices"},
    {"attention.kv_lora_rank", IsZero, "keys and values come from a latent"},
    {"attention.kv_lora_rank_swa", IsZero, "keys and values come from a latent"},
    {"attention.decay_lora_rank", IsZero, kOtherMixer},
    {"attention.iclr_lora_rank", IsZero, kOtherMixer},
    {"attention.value_residual_mix_lora_rank", IsZero, kOtherMixer},
    {"attention.gate_lora_rank", IsZero, kOtherMixer},
    {"attention.key_length_swa", IsKeyLength, kOtherHeads},
    {"attention.value_length_swa", IsValueLength, kOtherHeads},
    {"attention.key_length_mla_swa", IsZero, kOtherHeads},
    {"attention.value_length_mla_swa", IsZero, kOtherHeads},
    {"attention.group_norm_epsilon", IsNeverIdle, "norms are of groups"},
    {"attention.group_norm_groups", IsNeverIdle, "norms are of groups"},
    {"attention.indexer.", IsNeverIdle, kIndexer},
    {"attention.output_group_count", IsZero, "the output matrix is a product of groups"},
    {"attention.output_lora_rank", IsZero, "the output matrix is a product of groups"},
    {"attention.compress_rope_freq_base", IsNeverIdle, "keys are compressed"},
    {"attention.compress_ratios", IsZero, "keys are compressed"},
    {"attention.value_expert_count", IsZero, "values come from experts"},
    {"attention.value_expert_used_count", IsZero, "values come from experts"},
    {"post_norm_epsilon", IsNeverIdle, "norms behind sublayers have an epsilon of their own"},
    {"rope.dimension_count", HasNoRope, kOtherRope},
    {"rope.dimension_count_swa", IsDimensionCount, kOtherRope},
    {"rope.dimension_sections", RotatesHalves, kOtherRope},
    {"rope.section_order", RotatesHalves, kOtherRope},
    {"rope.freq_base", HasNoRope, kOtherRope},
    {"rope.freq_base_swa", IsFreqBase, kOtherRope},
    {"rope.scale_linear", HasNoRope, kOtherRope},
    {"rope.scaling.type", HasNoRope, kOtherRope},
    {"rope.scaling.alpha", IsZero, kOtherRope},
    {"rope.scaling.attn_factor", HasNoRope, kOtherRope},
    {"rope.scaling.original_context_length", HasNoRope, kOtherRope},
    {"rope.scaling.yarn_log_multiplier", HasNoYarnOrIsZero, kOtherRope},
    {"rope.scaling.yarn_ext_factor", HasNoYarnOrIsOne, kOtherRope},
    {"rope.scaling.yarn_attn_factor", HasNoYarn, kOtherRope},
    {"logit_scale", IsZeroOrOne, kOtherScale},
    {"residual_scale", IsZeroOrOne, kOtherScale},
    {"embedding_scale", IsZeroOrOne, kOtherScale},
    {"attn_logit_softcapping", IsZero, "scores are capped"},
    {"router_logit_softcapping", IsZero, "a router's logits are capped"},
    {"final_logit_softcapping", IsZero, "logits are capped"},
    {"expert_count", IsZero, "layers have experts"},
    {"expert_used_count", HasNoExperts, kExpertChoice},
    {"expert_feed_forward_length", HasNoExperts, "layers have experts"},
    {"expert_chunk_feed_forward_length", IsZero, kExpertChoice},
    {"expert_group_count", HasNoExperts, kExpertChoice},
    {"expert_group_used_count", HasNoExpertGroups, kExpertChoice},
    {"expert_group_scale", HasNoExperts, kExpertChoice},
    {"experts_per_group", HasNoExperts, kExpertChoice},
    {"expert_weights_scale", HasNoExperts, kExpertChoice},
    {"expert_weights_norm", HasNoExperts, kExpertChoice},
    {"expert_gating_func", HasNoExperts, kExpertChoice},
    {"expert_latent_length", IsZero, "experts read latents"},
    {"moe_latent_size", IsZero, "experts read latents"},
    {"swiglu_clamp_exp", IsZero, "what experts compute is clamped"},
    {"swiglu_clamp_shexp", IsZero, "what the shared expert computes is clamped"},
    {"hash_layer_count", IsZero, kExpertChoice},
    {"use_parallel_residual", IsTheFlow, "attention and feed-forward read one stream"},
    {"swin_norm", IsZero, "norms stand behind sublayers"},
    {"hidden_activation", IsNeverIdle, "feed-forwards have an activation of the file's choice"},
    {"hidden_act", IsNeverIdle, "feed-forwards have an activation of the file's choice"},
    {"activation.", IsNeverIdle, "feed-forwards have an activation of the file's choice"},
    {"activation_sparsity_scale", IsZero, "feed-forwards leave small values out"},
    {"altup.", IsNeverIdle, "there are several streams"},
    {"hyper_connection.", IsNeverIdle, "there are several streams"},
    {"attn_res.", IsNeverIdle, "layers attend to what earlier layers have added"},
    {"embedding_length_per_layer_input", IsZero, "layers read embeddings of their own"},
    {"ple.", IsNeverIdle, "layers read embeddings of their own"},
    {"rescale_every_n_layers", IsZero, kOtherScale},
    {"token_shift_count", IsZero, kOtherMixer},
    {"time_mix_extra_dim", IsZero, kOtherMixer},
    {"time_decay_extra_dim", IsZero, kOtherMixer},
    {"wkv.", IsNeverIdle, kOtherMixer},
    {"ssm.", IsZero, kOtherMixer},
    {"kda.", IsNeverIdle, kOtherMixer},
    {"shortconv.", IsNeverIdle, kOtherMixer},
    {"full_attention_interval", IsZero, kOtherMixer},
    {"num_loops", IsZeroOrOne, "layers run several times"},
    {"skip_loop_final_norm", IsZero, "layers run several times"},
    {"hrm.", IsNeverIdle, "layers run several times"},
    {"nextn_predict_layers", IsZero, "layers predict further tokens"},
    {"block_count", IsNeverIdle, kOtherPart},
    {"decoder_start_token_id", HasNoDecoder, kOtherPart},
    {"decoder_block_count", HasNoDecoder, kOtherPart},
    {"decoder.", HasNoDecoder, kOtherPart},
    {"encoder.", IsNeverIdle, kOtherPart},
    {"audio.", IsNeverIdle, kOtherPart},
    {"features_length", IsNeverIdle, kOtherPart},
    {"posnet.", IsNeverIdle, kOtherPart},
    {"convnext.", IsNeverIdle, kOtherPart},
    {"adapters.", IsNeverIdle, "adapters are switched on by tokens"},
    {"realtime_delay_tokens", IsNeverIdle, "the text follows the sound by a delay"},
    {"target_layers", IsNeverIdle, kDraft},
    {"target_hidden_size", IsNeverIdle, kDraft},
    {"norm_before_residual", IsZero, kDraft},
    {"norm_before_fc", IsZero, kDraft},
    {"block_size", IsNeverIdle, kDraft},
    {"conv_kernel_size", IsNeverIdle, kDraft},
    {"conv_group_size", IsNeverIdle, kDraft},
    {"selector_rank", IsNeverIdle, kDraft},
    {"selector_top_k", IsNeverIdle, kDraft},
    {"sample_from_anchor", IsZero, kDraft},
    {"has_confidence_head", IsZero, kDraft},
    {"adapter.", IsNeverIdle, "the file is an adapter of another model"},
    {"prism.", IsNeverIdle, "weights go with a signed Walsh-Hadamard transform of activations"},
    {"xielu.", IsNeverIdle, "feed-forwards have an activation of the file's choice"},
    {"tokenizer.ggml.normalizer.lowercase", IsZeroOrWordPiece, "texts lose their capitals"},
    {"tokenizer.ggml.normalizer.strip_accents", IsZeroOrWordPiece, "texts lose their accents"},
    {"tokenizer.ggml.normalizer.nfc", IsZeroOrMerges, "texts are normalized to NFC"},
};

// ---- Keys of the tokenizer ----------------------------------------------------------------------

constexpr std::string_view kRead = "the tokenizer reads it, or its kind has no use for it";
constexpr std::string_view kInfill = "only texts with a gap would use it";

constexpr KeyRow kTokenizerRows[] = {
    Idle("tokenizer.ggml.model", kRead),
    Idle("tokenizer.ggml.pre", kRead),
    Idle("tokenizer.ggml.tokens", kRead),
    Idle("tokenizer.ggml.token_type", kRead),
    Idle("tokenizer.ggml.scores", kRead),
    Idle("tokenizer.ggml.merges", kRead),
    Idle("tokenizer.ggml.bos_token_id", kRead),
    Idle("tokenizer.ggml.eos_token_id", kRead),
    Idle("tokenizer.ggml.eos_token_ids", kRead),
    Idle("tokenizer.ggml.eot_token_id", kRead),
    Idle("tokenizer.ggml.eom_token_id", kRead),
    Idle("tokenizer.ggml.unknown_token_id", kRead),
    Idle("tokenizer.ggml.seperator_token_id", kRead),
    Idle("tokenizer.ggml.padding_token_id", kRead),
    Idle("tokenizer.ggml.cls_token_id", kRead),
    Idle("tokenizer.ggml.mask_token_id", kRead),
    Idle("tokenizer.ggml.add_bos_token", kRead),
    Idle("tokenizer.ggml.add_eos_token", kRead),
    Idle("tokenizer.ggml.add_space_prefix", kRead),
    Idle("tokenizer.ggml.remove_extra_whitespaces", kRead),
    Idle("tokenizer.ggml.precompiled_charsmap", kRead),
    Idle("tokenizer.ggml.suppress_tokens", kRead),
    Idle("tokenizer.ggml.pieces.", kRead),
    Idle("tokenizer.target.", kRead),
    Idle("tokenizer.kvant.lstrip_ids", kRead),
    Idle("tokenizer.kvant.rstrip_ids", kRead),
    Idle("tokenizer.kvant.single_word_ids", kRead),
    Idle("tokenizer.kvant.normalized_ids", kRead),
    Idle("tokenizer.kvant.cut_out_ids", kRead),
    Idle("tokenizer.kvant.normalizer_spells_spaces", kRead),
    Idle("tokenizer.kvant.prefix_unless_space", kRead),
    Idle("tokenizer.kvant.byte_pieces_match", kRead),
    Idle("tokenizer.kvant.fuses_unknown", kRead),
    Idle("tokenizer.ggml.fim_pad_token_id", kRead),
    Idle("tokenizer.ggml.fim_rep_token_id", kRead),
    Idle("tokenizer.ggml.fim_sep_token_id", kRead),
    Idle("tokenizer.ggml.fim_pre_token_id", kInfill),
    Idle("tokenizer.ggml.fim_suf_token_id", kInfill),
    Idle("tokenizer.ggml.fim_mid_token_id", kInfill),
    Idle("tokenizer.ggml.prefix_token_id", kInfill),
    Idle("tokenizer.ggml.suffix_token_id", kInfill),
    Idle("tokenizer.ggml.middle_token_id", kInfill),
    Idle("tokenizer.ggml.token_type_count", kShape),
    Idle("tokenizer.ggml.add_sep_token", "pairs of texts read it"),
    Idle("tokenizer.huggingface.json", "a copy of the original tokenizer"),
    Idle("tokenizer.rwkv.world", "a copy of the original tokenizer"),
    Idle("tokenizer.chat_template", "chats read it"),
    Idle("tokenizer.chat_template.", "chats read it"),
    Idle("tokenizer.chat_templates", "chats read it"),
};

constexpr auto kAllRows = [] {
  std::array<KeyRow, std::size(kIdleRows) + std::size(kChangingRows) + std::size(kTokenizerRows)>
      rows{};
  auto next = std::ranges::copy(kIdleRows, rows.begin()).out;
  next = std::ranges::copy(kChangingRows, next).out;
  std::ranges::copy(kTokenizerRows, next);
  return rows;
}();

bool StandsFor(const KeyRow& row, std::string_view name) {
  const bool beginning = row.name.ends_with('.') || row.name.ends_with('_');
  return beginning ? name.starts_with(row.name) : name == row.name;
}

}  // namespace

std::span<const KeyRow> AllKeyRows() { return kAllRows; }

const KeyRow* FindKeyRow(std::string_view name) {
  const auto row =
      std::ranges::find_if(kAllRows, [name](const KeyRow& r) { return StandsFor(r, name); });
  return row == kAllRows.end() ? nullptr : &*row;
}

}  // namespace kvant::arch
