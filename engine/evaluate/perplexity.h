// Perplexity of a model on a text, and how far its predictions are from another model's.
//
// All means carry their standard error: sqrt(variance / (count - 1)). The error of a difference to
// the base model takes into account that both saw the same tokens. Formulas as in llama-perplexity.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "engine/evaluate/estimate.h"
#include "engine/evaluate/logit_file.h"
#include "engine/evaluate/windows.h"
#include "kvant/session.h"

namespace kvant::evaluate {

// The divergence in nats, per scored token; base is the model whose logits were saved.
struct Divergence {
  Estimate kl_mean;
  double kl_median = 0;
  double kl_p90 = 0, kl_p99 = 0, kl_p999 = 0;  // percentiles
  double kl_min = 0, kl_max = 0;
  Estimate same_top;  // share of tokens where both models find the same token likeliest
  Estimate p_change;  // mean of p - p_base, the probability of the text's token
  Estimate p_rms;     // root of the mean of its square
  Estimate base_perplexity;
  Estimate perplexity_ratio;   // perplexity / base perplexity
  Estimate perplexity_change;  // perplexity - base perplexity
};

struct PerplexityReport {
  int64_t windows = 0;
  int64_t tokens = 0;   // scored
  Estimate perplexity;  // e^(mean negative log-likelihood)
  Estimate nll;         // nats per token
  std::optional<Divergence> divergence;
};

// Called after each window with what is known so far, without the divergence's percentiles; an
// error ends the work and is returned.
using PerplexityProgress = std::function<Status(const PerplexityReport& so_far)>;

struct PerplexityOptions {
  LogitFileWriter* save = nullptr;  // receives every scored row
  const LogitFile* base = nullptr;  // its windows must be those that are evaluated
  PerplexityProgress progress;
};

// Runs all windows. The session must hold a window and is empty afterwards. kCorrupt, naming the
// window, if a logit is not a number.
Result<PerplexityReport> EvaluatePerplexity(Session& session, const Windows& windows,
                                            const PerplexityOptions& options);

}  // namespace kvant::evaluate
