// DRY, "don't repeat yourself": a token that would continue a repetition of what came before loses
// multiplier * base^(length - allowed), where length counts the tokens that repeat already.
// Source: the proposal of p-e-w (text-generation-webui, 2024) and llama.cpp's form of it with the
// Z-algorithm over the text read backwards.
//
// Repetitions do not reach across a sequence breaker, such as a new line. A breaker is a text; a
// token breaks by itself if it contains the text, and begins a breaker if it ends with the text's
// beginning: the rest must then be the tokens that follow.
#include <algorithm>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/generate/portable_math.h"
#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

// llama.cpp's bounds: bytes of a breaker, and tokens of what follows its first one.
constexpr size_t kBreakerBytesMax = 40;
constexpr size_t kBreakerTailMax = 20;

// e^88.72 is the largest power of a base that a float holds; bases up to here grow too slowly.
constexpr double kFloatLogMax = 88.7228391;
constexpr double kGrowingBaseMin = 1.000001;

using DryTail = std::vector<TokenId>;  // the tokens of a breaker behind its first one

class DryStage final : public CopiedStage<DryStage> {
 public:
  explicit DryStage(const SamplingOptions& options)
      : multiplier_(static_cast<double>(options.dry_multiplier)),
        base_(static_cast<double>(options.dry_base)),
        allowed_(static_cast<size_t>(options.dry_allowed_length)),
        last_n_(options.dry_penalty_last_n) {
    const double exponent = base_ > kGrowingBaseMin ? kFloatLogMax / PortableLog(base_) : 0;
    exponent_max_ = static_cast<size_t>(exponent);
  }

  Status AddBreakers(std::span<const std::string> breakers, const Tokenizer& tokenizer);

  void Accept(TokenId token, TokenFrom /*from*/) override {
    history_.push_back(token);
    // Twice the window, so that few tokens are moved often.
    if (last_n_ < 0 || history_.size() < 2 * static_cast<size_t>(last_n_)) return;
    history_.erase(history_.begin(), history_.end() - last_n_);
  }

  void Apply(Candidates& candidates, Xoshiro256&) override;

 private:
  // The i-th token from the end.
  TokenId Back(size_t i) const { return history_[history_.size() - 1 - i]; }
  size_t LengthLimit(size_t window) const;
  void FindRepeats(size_t window, size_t limit);
  void CollectTokens(size_t window);

  double multiplier_;
  double base_;
  size_t allowed_;
  int32_t last_n_;
  size_t exponent_max_;                                         // 0: no bound
  std::unordered_map<TokenId, std::vector<DryTail>> breakers_;  // by the first token
  std::vector<TokenId> history_;
  std::vector<size_t> repeats_;  // [window] see FindRepeats
  std::unordered_map<TokenId, size_t> lengths_;
  std::vector<TokenId> tokens_;  // the keys of lengths_ without breakers
};

// Where a token's bytes end with the beginning of `breaker`, the number of its bytes there.
std::vector<size_t> PartialBreakers(std::string_view bytes, std::string_view breaker) {
  std::vector<size_t> found;
  for (size_t begin = 0; begin < bytes.size(); ++begin) {
    const size_t size = bytes.size() - begin;
    if (size < breaker.size() && breaker.starts_with(bytes.substr(begin))) found.push_back(size);
  }
  return found;
}

Status DryStage::AddBreakers(std::span<const std::string> breakers, const Tokenizer& tokenizer) {
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string bytes = tokenizer.TokenBytes(id, {.special = true});
    for (const std::string& text : breakers) {
      const std::string_view breaker = std::string_view(text).substr(0, kBreakerBytesMax);
      if (breaker.empty()) continue;
      if (bytes.find(breaker) != std::string::npos) {
        breakers_[id].emplace_back();
        continue;
      }
      for (const size_t size : PartialBreakers(bytes, breaker)) {
        KVANT_ASSIGN(DryTail tail, tokenizer.Encode(breaker.substr(size), {}));
        tail.resize(std::min(tail.size(), kBreakerTailMax));
        breakers_[id].push_back(std::move(tail));
      }
    }
  }
  return {};
}

// The tokens at the end behind the last breaker in the window.
size_t DryStage::LengthLimit(size_t window) const {
  for (size_t i = 0; i < window; ++i) {
    const auto found = breakers_.find(Back(i));
    if (found == breakers_.end()) continue;
    bool matches = false;
    size_t longest = 0;
    for (const DryTail& tail : found->second) {
      bool follows = tail.size() <= i;
      for (size_t k = 0; follows && k < tail.size(); ++k) follows = tail[k] == Back(i - 1 - k);
      matches = matches || follows;
      if (follows) longest = std::max(longest, tail.size());
    }
    if (matches) return i - longest;
  }
  return window;
}

// repeats_[k]: how many tokens at the end equal the tokens that end k tokens earlier, but at most
// `limit`. The Z-algorithm (Gusfield, 1997) over the window read backwards: linear in its length.
void DryStage::FindRepeats(size_t window, size_t limit) {
  repeats_.assign(window, 0);
  size_t box_begin = 0;  // the stretch [box_begin, box_end) is known to equal [0, its length)
  size_t box_end = 0;
  for (size_t k = 1; k < window; ++k) {
    size_t length = 0;
    if (k < box_end) length = std::min(repeats_[k - box_begin], box_end - k);
    if (k + length >= box_end) {
      while (k + length < window && Back(length) == Back(k + length)) ++length;
      box_begin = k;
      box_end = k + length;
    }
    repeats_[k] = length;
  }
  for (size_t& length : repeats_) length = std::min(length, limit);
}

// The longest repetition that each token would continue: the token behind an earlier occurrence.
void DryStage::CollectTokens(size_t window) {
  lengths_.clear();
  tokens_.clear();
  for (size_t k = 1; k < window; ++k) {
    if (repeats_[k] < allowed_) continue;
    size_t& length = lengths_[Back(k - 1)];
    length = std::max(length, repeats_[k]);
  }
  for (const auto& [token, length] : lengths_) {
    const auto found = breakers_.find(token);
    const bool breaks =
        found != breakers_.end() && std::any_of(found->second.begin(), found->second.end(),
                                                [](const DryTail& tail) { return tail.empty(); });
    if (!breaks) tokens_.push_back(token);
  }
}

void DryStage::Apply(Candidates& candidates, Xoshiro256&) {
  size_t window = history_.size();
  if (last_n_ >= 0) window = std::min(window, static_cast<size_t>(last_n_));
  if (window <= allowed_) return;
  const size_t limit = LengthLimit(window);
  if (limit < allowed_) return;
  FindRepeats(window, limit);
  CollectTokens(window);
  candidates.Change(tokens_, [this](size_t k, float logit) {
    size_t exponent = lengths_[tokens_[k]] - allowed_;
    if (exponent_max_ > 0) exponent = std::min(exponent, exponent_max_);
    const double power = PortableExp(static_cast<double>(exponent) * PortableLog(base_));
    return logit - static_cast<float>(multiplier_ * power);
  });
}

constexpr SamplerSetting kDrySettings[] = {
    {"dry-multiplier", "--dry-multiplier", "", KVANT_SAMPLER_NUMBER(dry_multiplier), 0,
     kSamplerRealMax, "0 or more",
     "DRY: subtract this from the logit of a token that would continue a repetition; 0 is off"},
    {"dry-base", "--dry-base", "", KVANT_SAMPLER_NUMBER(dry_base), 1, kSamplerRealMax, "1 or more",
     "DRY: the factor by which each further repeated token raises what is subtracted"},
    {"dry-allowed-length", "--dry-allowed-length", "", KVANT_SAMPLER_NUMBER(dry_allowed_length), 0,
     kSamplerIntMax, "0 or more", "DRY: a repetition of fewer tokens is not penalized"},
    {"dry-penalty-last-n", "--dry-penalty-last-n", "", KVANT_SAMPLER_NUMBER(dry_penalty_last_n), -1,
     kSamplerIntMax, "-1 or more",
     "DRY: look for repetitions in the last N tokens, prompt included; 0 is off, -1 is all"},
};

Result<std::unique_ptr<SamplerStage>> MakeDry(const SamplerSetup& setup) {
  const SamplingOptions& options = setup.options;
  std::unique_ptr<SamplerStage> none;
  if (options.dry_multiplier == 0 || options.dry_penalty_last_n == 0) return none;
  auto stage = std::make_unique<DryStage>(options);
  if (!options.dry_sequence_breakers.empty()) {
    if (setup.tokenizer == nullptr) {
      return MakeError(ErrorCode::kInvalid,
                       "dry-sequence-breaker: expected a tokenizer to find the breakers' tokens, "
                       "found none");
    }
    KVANT_TRY(stage->AddBreakers(options.dry_sequence_breakers, *setup.tokenizer));
  }
  return std::unique_ptr<SamplerStage>(std::move(stage));
}

}  // namespace

const SamplerRow kDrySampler = {
    .name = "dry",
    .aliases = "",
    .letter = 'd',
    .kind = SamplerRow::Kind::kLogits,
    .order = SamplerRow::Order::kDefault,
    .settings = kDrySettings,
    .make = MakeDry,
};

}  // namespace kvant
