// Penalties for tokens that occurred: a factor on the logit (Keskar et al., "CTRL", 2019), one
// subtraction for having occurred at all and one for each time (OpenAI's presence and frequency
// penalties).
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

// Windows up to here are reserved at creation; larger ones grow as they fill.
constexpr size_t kPenaltyWindowReserve = 4096;

class PenaltiesStage final : public CopiedStage<PenaltiesStage> {
 public:
  explicit PenaltiesStage(const SamplerSetup& setup)
      : factor_(setup.options.repeat_penalty),
        presence_(setup.options.presence_penalty),
        frequency_(setup.options.frequency_penalty),
        last_n_(setup.options.repeat_last_n),
        counts_(setup.vocab) {
    present_.reserve(setup.vocab);
    if (last_n_ > 0) {
      window_.reserve(std::min(static_cast<size_t>(last_n_), kPenaltyWindowReserve));
    }
  }

  void Accept(TokenId token, TokenFrom /*from*/) override {
    if (counts_[static_cast<size_t>(token)]++ == 0) present_.push_back(token);
    if (last_n_ < 0) return;
    if (window_.size() < static_cast<size_t>(last_n_)) {
      window_.push_back(token);
      return;
    }
    const TokenId oldest = std::exchange(window_[window_next_], token);
    window_next_ = (window_next_ + 1) % window_.size();
    if (--counts_[static_cast<size_t>(oldest)] == 0) {
      *std::find(present_.begin(), present_.end(), oldest) = present_.back();
      present_.pop_back();
    }
  }

  void Apply(Candidates& candidates, Xoshiro256&) override {
    candidates.Change(present_, [this](size_t k, float logit) {
      const float count = static_cast<float>(counts_[static_cast<size_t>(present_[k])]);
      logit = logit <= 0 ? logit * factor_ : logit / factor_;
      return logit - (count * frequency_ + presence_);
    });
  }

 private:
  float factor_;
  float presence_;
  float frequency_;
  int32_t last_n_;
  // How often each token occurs in the window, which tokens occur, and the window itself as a ring
  // (unused where the window is unlimited).
  std::vector<int32_t> counts_;  // [vocab]
  std::vector<TokenId> present_;
  std::vector<TokenId> window_;
  size_t window_next_ = 0;
};

constexpr SamplerSetting kPenaltySettings[] = {
    {"repeat-penalty", "--repeat-penalty", "penalty_repeat", KVANT_SAMPLER_NUMBER(repeat_penalty),
     kSamplerRealMin, kSamplerRealMax, "a positive number",
     "Make tokens that occurred less likely by this factor; 1 is off"},
    {"repeat-last-n", "--repeat-last-n", "penalty_last_n", KVANT_SAMPLER_NUMBER(repeat_last_n), -1,
     kSamplerIntMax, "-1 or more",
     "Tokens that the penalties look back at, prompt included; 0 is off, -1 is all"},
    {"presence-penalty", "--presence-penalty", "", KVANT_SAMPLER_NUMBER(presence_penalty),
     -kSamplerRealMax, kSamplerRealMax, "a finite number",
     "Subtract from the logit of a token that occurred"},
    {"frequency-penalty", "--frequency-penalty", "", KVANT_SAMPLER_NUMBER(frequency_penalty),
     -kSamplerRealMax, kSamplerRealMax, "a finite number",
     "Subtract from the logit of a token for each time it occurred"},
};

Result<std::unique_ptr<SamplerStage>> MakePenalties(const SamplerSetup& setup) {
  const SamplingOptions& options = setup.options;
  std::unique_ptr<SamplerStage> stage;
  const bool changes = options.repeat_penalty != 1.0f || options.presence_penalty != 0.0f ||
                       options.frequency_penalty != 0.0f;
  if (changes && options.repeat_last_n != 0) stage = std::make_unique<PenaltiesStage>(setup);
  return stage;
}

}  // namespace

const SamplerRow kPenaltiesSampler = {
    .name = "penalties",
    .aliases = "",
    .letter = 'e',
    .kind = SamplerRow::Kind::kLogits,
    .order = SamplerRow::Order::kDefault,
    .settings = kPenaltySettings,
    .make = MakePenalties,
};

}  // namespace kvant
