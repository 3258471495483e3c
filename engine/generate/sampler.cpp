// Building the chain of samplers from the options, and sending candidates through it. The samplers
// themselves are in engine/generate/samplers.
#include "kvant/sampler.h"

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "base/system_random.h"
#include "engine/generate/portable_math.h"
#include "engine/generate/samplers/candidates.h"
#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

// 40-bit weights of 2^24 tokens sum to less than 2^64.
constexpr int32_t kSamplerVocabMax = 1 << 24;

Status CheckSetting(const SamplerSetting& setting, const SamplingOptions& options) {
  const auto error = [&](auto value) {
    return MakeError(ErrorCode::kInvalid, "{}: expected {}, found {}", setting.name, setting.range,
                     value);
  };
  if (const auto* member = std::get_if<int32_t SamplingOptions::*>(&setting.value)) {
    const int32_t value = options.**member;
    if (value < setting.min || value > setting.max) return error(value);
    return {};
  }
  const float value = options.*std::get<float SamplingOptions::*>(setting.value);
  const bool is_in_range =
      value >= static_cast<float>(setting.min) && value <= static_cast<float>(setting.max);
  if (!is_in_range) return error(value);
  return {};
}

Status CheckOptions(const SamplingOptions& options, int32_t vocab_size) {
  if (vocab_size < 1 || vocab_size > kSamplerVocabMax) {
    return MakeError(ErrorCode::kInvalid, "vocabulary: expected 1 to {} tokens, found {}",
                     kSamplerVocabMax, vocab_size);
  }
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) KVANT_TRY(CheckSetting(setting, options));
  }
  for (const LogitBias& entry : options.logit_bias) {
    if (entry.token < 0 || entry.token >= vocab_size) {
      return MakeError(ErrorCode::kInvalid, "logit-bias: token {} is outside the vocabulary of {}",
                       entry.token, vocab_size);
    }
    if (entry.bias != entry.bias) {
      return MakeError(ErrorCode::kInvalid, "logit-bias: the bias of token {} is not a number",
                       entry.token);
    }
  }
  return {};
}

using SamplerChain = std::vector<const SamplerRow*>;

// The samplers that the options ask for, in order.
Result<SamplerChain> ChainOf(const SamplingOptions& options) {
  SamplerChain chain;
  if (options.mirostat != 0) {
    chain = {&kTemperatureSampler, &kMirostatSampler};
    return chain;
  }
  if (!options.samplers.has_value()) {
    for (const SamplerRow* row : AllSamplers()) {
      if (row->order == SamplerRow::Order::kDefault) chain.push_back(row);
    }
  } else {
    for (const std::string& name : *options.samplers) {
      const SamplerRow* row = FindSampler(name);
      if (row == nullptr) {
        return MakeError(ErrorCode::kInvalid, "samplers: {}", ParseSamplers(name).error().message);
      }
      chain.push_back(row);
    }
  }
  const bool adaptive = std::find(chain.begin(), chain.end(), &kAdaptivePSampler) != chain.end();
  if (options.adaptive_target >= 0 && !adaptive) {
    return MakeError(ErrorCode::kInvalid,
                     "adaptive-target: expected adaptive_p among the samplers with it");
  }
  return chain;
}

// Whether nothing but the likeliest token is left behind the temperature.
bool IsGreedy(const SamplingOptions& options) {
  return options.temperature <= 0 && options.dynatemp_range <= 0;
}

// Draws by probability.
class PlainDraw final : public CopiedStage<PlainDraw, DrawingStage> {
 public:
  size_t Draw(Candidates& candidates, Xoshiro256& random) override {
    return candidates.Draw(random);
  }
};

}  // namespace

struct Sampler::Chain {
  Chain(size_t vocab, size_t list_max, uint64_t seed) : candidates(vocab, list_max), random(seed) {}

  Chain(const Chain& other) : bias(other.bias), candidates(other.candidates), random(other.random) {
    for (const Link& link : other.links) links.push_back({link.stage->Clone(), link.takes_list});
    SetDraw(other.draw->Clone());
  }
  Chain& operator=(const Chain&) = delete;

  struct Link {
    std::unique_ptr<SamplerStage> stage;
    bool takes_list;  // a row of logits is made a list first
  };
  Status Add(const SamplerChain& rows, const SamplerSetup& setup);

  // Rows of Kind::kDraw make stages that draw, and nothing else does.
  void SetDraw(std::unique_ptr<SamplerStage> stage) {
    draw.reset(static_cast<DrawingStage*>(stage.release()));
  }

  size_t vocab() { return static_cast<size_t>(candidates.row().size()); }

  std::vector<LogitBias> bias;
  std::vector<Link> links;
  std::unique_ptr<DrawingStage> draw;
  Candidates candidates;
  Xoshiro256 random;
};

Status Sampler::Chain::Add(const SamplerChain& rows, const SamplerSetup& setup) {
  using Kind = SamplerRow::Kind;
  draw = std::make_unique<PlainDraw>();
  const auto is_temperature = [](const SamplerRow* row) { return row->kind == Kind::kTemperature; };
  const auto counts = [](const SamplerRow* row) { return row->counts_candidates; };
  bool only_one_stays = std::ranges::any_of(rows, is_temperature) &&
                        std::ranges::none_of(rows, counts) && IsGreedy(setup.options);
  for (const SamplerRow* row : rows) {
    // In front of a temperature of 0, filters change nothing but the time it takes.
    const bool is_filter = row->kind == Kind::kFilter || row->filters_logits;
    if (only_one_stays && is_filter) continue;
    if (row->kind == Kind::kTemperature) only_one_stays = false;
    KVANT_ASSIGN(auto stage, row->make(setup));
    if (stage == nullptr) continue;
    if (row->kind == Kind::kDraw) {
      SetDraw(std::move(stage));
    } else {
      const bool takes_list = row->kind == Kind::kFilter || row->kind == Kind::kChoice;
      links.push_back({std::move(stage), takes_list});
    }
  }
  return {};
}

Sampler::Sampler(std::unique_ptr<Chain> chain, uint64_t seed)
    : chain_(std::move(chain)), seed_(seed) {}
Sampler::Sampler(const Sampler& other)
    : chain_(std::make_unique<Chain>(*other.chain_)), seed_(other.seed_) {}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(const Sampler& other) { return *this = Sampler(other); }
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

Result<Sampler> Sampler::Create(const SamplingOptions& options, int32_t vocab_size,
                                const Tokenizer* tokenizer) {
  KVANT_TRY(CheckOptions(options, vocab_size));
  KVANT_ASSIGN(const SamplerChain rows, ChainOf(options));
  const uint64_t seed = options.seed.has_value() ? *options.seed : SystemRandom();
  const size_t vocab = static_cast<size_t>(vocab_size);
  // Gathering k candidates keeps up to 2k at a time.
  const size_t list_max = options.top_k <= 0 || options.top_k >= vocab_size
                              ? vocab
                              : 2 * static_cast<size_t>(options.top_k);
  auto chain = std::make_unique<Chain>(vocab, list_max, seed);
  KVANT_TRY(chain->Add(rows, {options, vocab, tokenizer}));
  chain->bias = options.logit_bias;
  Sampler sampler(std::move(chain), seed);
  if (tokenizer != nullptr) {
    for (const TokenId token : tokenizer->special().suppressed) sampler.Forbid(token);
  }
  return sampler;
}

void Sampler::Forbid(TokenId token) {
  if (token < 0 || static_cast<size_t>(token) >= chain_->vocab()) return;
  chain_->bias.push_back({token, kLogitNone});
}

void Sampler::Accept(TokenId token) {
  if (token < 0 || static_cast<size_t>(token) >= chain_->vocab()) return;
  for (const Chain::Link& link : chain_->links) link.stage->Accept(token);
  chain_->draw->Accept(token);
}

Result<TokenId> Sampler::Sample(std::span<const float> logits) {
  Candidates& candidates = chain_->candidates;
  if (logits.size() != chain_->vocab()) {
    return MakeError(ErrorCode::kInvalid, "sampling: expected {} logits, found {}", chain_->vocab(),
                     logits.size());
  }
  candidates.Start(logits);
  for (const LogitBias& entry : chain_->bias) {
    float& logit = candidates.row()[static_cast<size_t>(entry.token)];
    logit = Sanitize(logit + entry.bias);
  }
  const auto none = [] {
    return MakeError(ErrorCode::kInvalid, "sampling: no token has a finite logit");
  };
  for (const Chain::Link& link : chain_->links) {
    const bool takes_list = link.takes_list || candidates.is_list();
    if (takes_list && !candidates.MakeList()) return none();
    link.stage->Apply(candidates, chain_->random);
  }
  if (!candidates.MakeList()) return none();
  return candidates[chain_->draw->Draw(candidates, chain_->random)].id;
}

}  // namespace kvant
