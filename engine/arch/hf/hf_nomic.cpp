#include "engine/arch/hf/hf_nomic.h"

#include <algorithm>

#include "engine/arch/hf/hf_settings.h"
#include "engine/limits.h"

namespace kvant::arch {
namespace {

constexpr double kRotatedShare = 1;
constexpr double kUsualBase = 10000.0;
constexpr int64_t kTrainedPositions = 2048;

}  // namespace

bool IsPublishedHfNomic(const JsonObject& config) { return config.Find("n_embd") != nullptr; }

Status FinishHfNomic(const JsonObject& config, HfShape& shape) {
  for (const char* key : {"prenorm", "causal", "use_rms_norm", "parallel_block",
                          "rotary_emb_interleaved", "tie_expert_weights"}) {
    KVANT_TRY(RefuseTrue(config, key));
  }
  KVANT_TRY(RefuseNumber(config, "rotary_emb_scale_base"));
  KVANT_ASSIGN(const auto share, config.Number("rotary_emb_fraction"));
  if (share.value_or(kRotatedShare) != kRotatedShare) {
    return config.Wrong("rotary_emb_fraction", "1");
  }
  KVANT_ASSIGN(const auto segments, config.Integer("type_vocab_size", kHfVocabMax));
  shape.segments = segments.value_or(0);
  KVANT_ASSIGN(const auto trained, config.Integer("max_trained_positions", kContextMax));
  if (trained.value_or(1) < 1) return config.Wrong("max_trained_positions", "at least 1");
  // Beyond what the model was trained for, the published code stretches positions by the length
  // of the text.
  shape.context = std::min(shape.context, trained.value_or(kTrainedPositions));
  return {};
}

Status AddHfNomic(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto base, config.Number("rotary_emb_base"));
  if (!(base.value_or(kUsualBase) > 0)) {
    return config.Wrong("rotary_emb_base", "a positive number");
  }
  out.writer->AddF32(out.Key("rope.freq_base"), static_cast<float>(base.value_or(kUsualBase)));
  return AddHfEncoder(config, shape, out);
}

}  // namespace kvant::arch
