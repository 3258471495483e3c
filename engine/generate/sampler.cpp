// Building the chain of samplers from the options, and sending candidates through it. The samplers
// themselves are in engine/generate/samplers, the stages in front of them in logit_stages.
#include "kvant/sampler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/result.h"
#include "base/system_random.h"
#include "engine/generate/logit_stages/stage_row.h"
#include "engine/generate/portable_math.h"
#include "engine/generate/samplers/candidates.h"
#include "engine/generate/samplers/stage.h"
#include "kvant/logit_chain.h"

namespace kvant {
namespace {

// 40-bit weights of 2^24 tokens sum to less than 2^64.
constexpr int32_t kSamplerVocabMax = 1 << 24;

Status CheckSetting(const SamplerSetting& setting, const SamplingOptions& options) {
  const auto error = [&](auto value) {
    return MakeError(ErrorCode::kInvalid, "{}: expected {}, found {}", setting.name, setting.range,
                     value);
  };
  if (const auto* member = std::get_if<SamplerNumber<int32_t>>(&setting.value)) {
    const int32_t value = options.*member->ours;
    if (value < setting.min || value > setting.max) return error(value);
    return {};
  }
  const float value = options.*std::get<SamplerNumber<float>>(setting.value).ours;
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
using SamplerOrder = SamplerRow::Order;

bool Asked(const SamplerRow& row, const SamplingOptions& options) {
  return row.asked != nullptr && row.asked(options);
}

// The samplers of the default chain that are of this kind; nullopt: of all kinds.
SamplerChain DefaultChain(std::optional<SamplerRow::Kind> kind) {
  SamplerChain chain;
  for (const SamplerRow* row : AllSamplers()) {
    const bool wanted = !kind.has_value() || row->kind == *kind;
    if (wanted && row->order == SamplerOrder::kDefault) chain.push_back(row);
  }
  return chain;
}

// The samplers that the options ask for, in order.
Result<SamplerChain> ChainOf(const SamplingOptions& options) {
  for (const SamplerRow* row : AllSamplers()) {
    if (row->order != SamplerOrder::kAlone || !Asked(*row, options)) continue;
    SamplerChain chain = DefaultChain(SamplerRow::Kind::kTemperature);
    chain.push_back(row);
    return chain;
  }
  SamplerChain chain;
  if (!options.samplers.has_value()) {
    chain = DefaultChain({});
  } else {
    for (const std::string& name : *options.samplers) {
      const SamplerRow* row = FindSampler(name);
      if (row == nullptr) {
        return MakeError(ErrorCode::kInvalid, "samplers: {}", ParseSamplers(name).error().message);
      }
      chain.push_back(row);
    }
  }
  for (const SamplerRow* row : AllSamplers()) {
    if (row->order != SamplerOrder::kIfNamed || !Asked(*row, options)) continue;
    if (std::find(chain.begin(), chain.end(), row) != chain.end()) continue;
    return MakeError(ErrorCode::kInvalid, "{}: expected {} among the samplers with it",
                     row->settings[0].name, row->name);
  }
  return chain;
}

Error NoToken() { return MakeError(ErrorCode::kInvalid, "sampling: no token has a finite logit"); }

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

  Chain(const Chain& other)
      : stages(other.stages),
        candidates(other.candidates),
        random(other.random),
        has_drawn(other.has_drawn) {
    for (const Link& link : other.links) links.push_back({link.stage->Clone(), link.row});
    SetDraw(other.draw->Clone());
  }
  Chain& operator=(const Chain&) = delete;

  struct Link {
    std::unique_ptr<SamplerStage> stage;
    const SamplerRow* row;
  };
  Status Add(const SamplerChain& rows, const SamplerSetup& setup);

  // Rows of Kind::kDraw make stages that draw, and nothing else does.
  void SetDraw(std::unique_ptr<SamplerStage> stage) {
    draw.reset(static_cast<DrawingStage*>(stage.release()));
  }

  size_t vocab() const { return candidates.vocab(); }

  LogitChain stages;
  std::vector<Link> links;
  std::unique_ptr<DrawingStage> draw;
  Candidates candidates;
  Xoshiro256 random;
  bool has_drawn = false;  // the last time, so that the candidates are those of a draw
};

Status Sampler::Chain::Add(const SamplerChain& rows, const SamplerSetup& setup) {
  draw = std::make_unique<PlainDraw>();
  for (const SamplerRow* row : rows) {
    KVANT_ASSIGN(auto stage, row->make(setup));
    if (stage == nullptr) continue;
    if (row->kind == SamplerRow::Kind::kDraw) {
      SetDraw(std::move(stage));
      continue;
    }
    // Filters right in front of it change nothing but the time it takes.
    while (stage->keeps_likeliest_only() && !links.empty() && links.back().row->is_filter()) {
      links.pop_back();
    }
    links.push_back({std::move(stage), row});
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
  KVANT_TRY(chain->stages.Add({.vocab = vocab, .biases = options.logit_bias}));
  Sampler sampler(std::move(chain), seed);
  if (tokenizer != nullptr) {
    for (const TokenId token : tokenizer->special().suppressed) sampler.Forbid(token);
  }
  return sampler;
}

int32_t Sampler::vocab_size() const { return static_cast<int32_t>(chain_->vocab()); }

LogitChain& Sampler::logits() { return chain_->stages; }
const LogitChain& Sampler::logits() const { return chain_->stages; }

void Sampler::Forbid(TokenId token) {
  if (token < 0 || static_cast<size_t>(token) >= chain_->vocab()) return;
  const LogitBias forbidden = {token, kLogitNone};
  const Status added =
      chain_->stages.Add({.vocab = chain_->vocab(), .biases = std::span(&forbidden, 1)});
  KVANT_CHECK(added.ok());  // only the caller's own stages can fail
}

void Sampler::Accept(TokenId token, TokenFrom from) {
  if (token < 0 || static_cast<size_t>(token) >= chain_->vocab()) return;
  chain_->stages.Accept(token, from);
  for (const Chain::Link& link : chain_->links) link.stage->Accept(token, from);
  chain_->draw->Accept(token, from);
}

Result<TokenId> Sampler::Sample(std::span<const float> logits) {
  KVANT_ASSIGN(const std::optional<TokenId> token, Next(logits, {}));
  if (!token.has_value()) return NoToken();
  return *token;
}

Result<std::optional<TokenId>> Sampler::Next(std::span<const float> logits, const LogitText& text) {
  Candidates& candidates = chain_->candidates;
  if (logits.size() != chain_->vocab()) {
    return MakeError(ErrorCode::kInvalid, "sampling: expected {} logits, found {}", chain_->vocab(),
                     logits.size());
  }
  chain_->has_drawn = false;
  candidates.Start(logits);
  KVANT_ASSIGN(const bool goes_on, chain_->stages.Apply(text, candidates.row()));
  if (!goes_on) return std::optional<TokenId>();
  for (const Chain::Link& link : chain_->links) {
    const bool takes_list = link.row->takes_list() || candidates.is_list();
    if (takes_list && !candidates.MakeList()) return NoToken();
    link.stage->Apply(candidates, chain_->random);
  }
  if (!candidates.MakeList()) return NoToken();
  chain_->has_drawn = true;
  return std::optional(candidates[chain_->draw->Draw(candidates, chain_->random)].id);
}

std::vector<TokenChance> Sampler::Chances(size_t count) {
  std::vector<TokenChance> out;
  if (!chain_->has_drawn) return out;
  Candidates& candidates = chain_->candidates;
  candidates.ComputeWeights();
  candidates.Sort(count);
  const auto total = static_cast<double>(candidates.weight_total());
  for (size_t i = 0; i < std::min(count, candidates.size()); ++i) {
    if (candidates[i].weight == 0) break;
    out.push_back({candidates[i].id, static_cast<double>(candidates[i].weight) / total});
  }
  return out;
}

double Sampler::ChanceOf(TokenId token) {
  if (!chain_->has_drawn) return 0;
  Candidates& candidates = chain_->candidates;
  candidates.ComputeWeights();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].id != token) continue;
    return static_cast<double>(candidates[i].weight) /
           static_cast<double>(candidates.weight_total());
  }
  return 0;
}

}  // namespace kvant
