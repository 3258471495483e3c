// Mirostat (Basu et al., "Mirostat: a neural text decoding algorithm that directly controls
// perplexity", 2020), the paper's algorithm and the simpler one of llama.cpp (version 2). Both keep
// the surprise of the chosen tokens, -log2 p, near tau by adjusting how many tokens are kept:
//     mu = mu - eta * (surprise - tau),   mu = 2 tau at first.
// It takes the place of all samplers but the temperature.
#include <algorithm>
#include <cmath>

#include "engine/generate/portable_math.h"
#include "engine/generate/samplers/stage.h"

namespace kvant {
namespace {

constexpr double kLn2 = 0.6931471805599453;

// The likeliest tokens from which version 1 estimates Zipf's exponent.
constexpr size_t kMirostatTokens = 100;

class MirostatStage : public DrawingStage {
 public:
  explicit MirostatStage(const SamplingOptions& options)
      : tau_(static_cast<double>(options.mirostat_tau)),
        eta_(static_cast<double>(options.mirostat_eta)),
        mu_(2 * tau_) {}

  size_t Draw(Candidates& candidates, Xoshiro256& random) final {
    candidates.ComputeWeights();
    Keep(candidates);
    const size_t chosen = candidates.Draw(random);
    mu_ -= eta_ * (Surprise(LogTotal(candidates), candidates[chosen].weight) - tau_);
    return chosen;
  }

 protected:
  // Keeps the likeliest, at least one. The weights are there.
  virtual void Keep(Candidates& candidates) const = 0;

  // Surprise of a weight among weights of which `log_total` is the logarithm of the sum, in bits.
  static double Surprise(double log_total, uint64_t weight) {
    return (log_total - PortableLog(static_cast<double>(weight))) / kLn2;
  }
  static double LogTotal(const Candidates& candidates) {
    return PortableLog(static_cast<double>(candidates.weight_total()));
  }
  double mu() const { return mu_; }

 private:
  double tau_;
  double eta_;
  double mu_;
};

// The paper's algorithm 1: k of a top-k from the exponent s of Zipf's law that fits the logits.
class PaperMirostatStage final : public CopiedStage<PaperMirostatStage, MirostatStage> {
 public:
  PaperMirostatStage(const SamplingOptions& options, size_t vocab)
      : CopiedStage(options), vocab_(static_cast<double>(vocab)) {}

 protected:
  void Keep(Candidates& candidates) const override {
    candidates.Sort(kMirostatTokens);
    candidates.Truncate(CountToKeep(candidates));
  }

 private:
  // At least 1; the first kMirostatTokens are in order.
  size_t CountToKeep(const Candidates& candidates) const {
    const size_t size = candidates.size();
    double products = 0;
    double squares = 0;
    for (size_t i = 0; i + 1 < std::min(size, kMirostatTokens); ++i) {
      const double rank = static_cast<double>(i) + 1;
      const double t = PortableLog((rank + 1) / rank);
      const double b = (static_cast<double>(candidates[i].logit) -
                        static_cast<double>(candidates[i + 1].logit)) /
                       candidates.temperature();
      products += t * b;
      squares += t * t;
    }
    const double s = products / squares;  // not a number for a single candidate
    const double e = s - 1;
    const double base = e * PortableExp(mu() * kLn2) / (1 - PortablePower(vocab_, -e));
    const double k = PortablePower(base, 1 / s);
    if (!(k >= 1)) return 1;
    return k >= static_cast<double>(size) ? size : static_cast<size_t>(k);
  }

  double vocab_;
};

// Version 2: the tokens of a surprise up to mu.
class DirectMirostatStage final : public CopiedStage<DirectMirostatStage, MirostatStage> {
 public:
  using CopiedStage::CopiedStage;

 protected:
  void Keep(Candidates& candidates) const override {
    const double log_total = LogTotal(candidates);
    candidates.Sort(1);
    // The least weight that does not surprise too much, in (surprising, expected].
    uint64_t surprising = 0;
    uint64_t expected = candidates[0].weight;
    if (Surprise(log_total, expected) > mu()) return candidates.Truncate(1);
    while (expected - surprising > 1) {
      const uint64_t middle = surprising + (expected - surprising) / 2;
      (Surprise(log_total, middle) > mu() ? surprising : expected) = middle;
    }
    candidates.KeepIf([&](size_t i) { return candidates[i].weight >= expected; });
  }
};

constexpr SamplerSetting kMirostatSettings[] = {
    {"mirostat", "--mirostat", "mirostat", KVANT_SAMPLER_NUMBER(mirostat), 0, 2, "0, 1 or 2",
     "Mirostat, version 1 or 2, in place of all samplers but the temperature; 0 is off"},
    {"mirostat-ent", "--mirostat-ent", "mirostat_tau", KVANT_SAMPLER_NUMBER(mirostat_tau), 0,
     kSamplerRealMax, "0 or more", "Mirostat: the mean surprise of tokens to keep, in bits (tau)"},
    {"mirostat-lr", "--mirostat-lr", "mirostat_eta", KVANT_SAMPLER_NUMBER(mirostat_eta), 0,
     kSamplerRealMax, "0 or more", "Mirostat: how fast it adapts (eta)"},
};

Result<std::unique_ptr<SamplerStage>> MakeMirostat(const SamplerSetup& setup) {
  std::unique_ptr<SamplerStage> stage;
  if (setup.options.mirostat == 1) {
    stage = std::make_unique<PaperMirostatStage>(setup.options, setup.vocab);
  } else if (setup.options.mirostat == 2) {
    stage = std::make_unique<DirectMirostatStage>(setup.options);
  }
  return stage;
}

}  // namespace

const SamplerRow kMirostatSampler = {
    .name = "mirostat",
    .aliases = "",
    .letter = 0,
    .kind = SamplerRow::Kind::kDraw,
    .order = SamplerRow::Order::kAlone,
    .settings = kMirostatSettings,
    .make = MakeMirostat,
    .asked = [](const SamplingOptions& options) { return options.mirostat != 0; },
};

}  // namespace kvant
