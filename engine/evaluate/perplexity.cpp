// Rows are measured on all threads, each into its own place; what is added up is added in the order
// of the text, so that the result does not depend on the threads.
#include "engine/evaluate/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "engine/evaluate/distribution.h"
#include "engine/evaluate/estimate.h"

namespace kvant::evaluate {
namespace {

// The contribution of one row.
struct RowResult {
  double nll = 0;
  double base_nll = 0;
  double kl = 0;
  bool same_top = false;
};

class Accumulator {
 public:
  void Add(const RowResult& row, bool has_base) {
    ++count_;
    nll_.Add(row.nll);
    if (!has_base) return;
    base_nll_.Add(row.base_nll);
    nll_change_.Add(row.nll - row.base_nll);
    products_ += row.nll * row.base_nll;
    kl_.Add(row.kl);
    kl_values_.push_back(row.kl);
    const double p_change = std::exp(-row.nll) - std::exp(-row.base_nll);
    p_change_.Add(p_change);
    p_squares_.Add(p_change * p_change);
    same_top_ += row.same_top ? 1 : 0;
  }

  PerplexityReport Report(int64_t windows, bool has_base) const {
    PerplexityReport report;
    report.windows = windows;
    report.tokens = count_;
    report.nll = nll_.Mean(count_);
    report.perplexity = Exp(report.nll);
    if (has_base) report.divergence = DivergenceSoFar(report);
    return report;
  }

  // Sorts the values; to be called when all have been added.
  void AddPercentiles(Divergence& divergence) {
    std::sort(kl_values_.begin(), kl_values_.end());
    divergence.kl_min = kl_values_.front();
    divergence.kl_median = Percentile(0.5);
    divergence.kl_p90 = Percentile(0.9);
    divergence.kl_p99 = Percentile(0.99);
    divergence.kl_p999 = Percentile(0.999);
    divergence.kl_max = kl_values_.back();
  }

 private:
  Divergence DivergenceSoFar(const PerplexityReport& report) const {
    const double n = static_cast<double>(count_);
    Divergence out;
    out.kl_mean = kl_.Mean(count_);
    const double share = static_cast<double>(same_top_) / n;
    out.same_top = {share, count_ > 1 ? std::sqrt(share * (1 - share) / (n - 1)) : 0};
    out.p_change = p_change_.Mean(count_);
    const Estimate square = p_squares_.Mean(count_);
    const double rms = std::sqrt(square.value);
    out.p_rms = {rms, rms > 0 ? 0.5 / rms * square.error : 0};
    const Estimate base_nll = base_nll_.Mean(count_);
    out.base_perplexity = Exp(base_nll);
    out.perplexity_ratio = Exp(nll_change_.Mean(count_));
    // Both perplexities come from the same tokens: var(a - b) = var(a) + var(b) - 2 cov(a, b).
    const Estimate& own = report.perplexity;
    const Estimate& base = out.base_perplexity;
    const double covariance =
        count_ > 1 ? (products_ / n - report.nll.value * base_nll.value) / (n - 1) : 0;
    const double variance =
        own.error * own.error + base.error * base.error - 2 * own.value * base.value * covariance;
    out.perplexity_change = {own.value - base.value, std::sqrt(std::max(variance, 0.0))};
    return out;
  }

  // Interpolates linearly between the two nearest values.
  double Percentile(double fraction) const {
    const double at = fraction * static_cast<double>(kl_values_.size() - 1);
    const size_t below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, kl_values_.size() - 1);
    const double part = at - static_cast<double>(below);
    return part == 0 ? kl_values_[below]
                     : (1 - part) * kl_values_[below] + part * kl_values_[above];
  }

  int64_t count_ = 0;
  Sums nll_, base_nll_, nll_change_, kl_, p_change_, p_squares_;
  double products_ = 0;
  int64_t same_top_ = 0;
  std::vector<double> kl_values_;
};

RowResult Measure(std::span<const float> logits, TokenId target, const LogitFile* base,
                  int64_t window, int64_t row, LogitFileWriter* save) {
  const Distribution own = Normalize(logits);
  RowResult result;
  result.nll = -own.LogProb(target);
  if (save != nullptr) save->SetRow(row, own);
  if (base == nullptr) return result;
  thread_local std::vector<float> buffer;
  const Distribution other = base->Row(window, row, buffer);
  result.base_nll = -other.LogProb(target);
  result.kl = KlDivergence(other, own, base->floor());
  result.same_top = own.top == other.top;
  return result;
}

}  // namespace

Result<PerplexityReport> EvaluatePerplexity(Session& session, const Windows& windows,
                                            const PerplexityOptions& options) {
  const bool has_base = options.base != nullptr;
  KVANT_CHECK(!has_base || (options.base->rows_per_window() == windows.rows() &&
                            options.base->windows() >= windows.count()));
  Accumulator sums;
  std::vector<RowResult> rows(static_cast<size_t>(windows.rows()));
  for (int64_t window = 0; window < windows.count(); ++window) {
    KVANT_TRY(session.Rewind(0));
    std::vector<TokenId> tokens = windows.Tokens(window);
    tokens.pop_back();  // no row follows from the last token
    const int64_t first = windows.first_row();
    KVANT_TRY(session.AppendScoring(tokens, first, [&](int64_t i, std::span<const float> logits) {
      const int64_t row = i - first;
      rows[static_cast<size_t>(row)] =
          Measure(logits, windows.Target(window, row), options.base, window, row, options.save);
    }));
    for (const RowResult& row : rows) {
      if (std::isnan(row.nll) || std::isnan(row.kl)) {
        return MakeError(ErrorCode::kCorrupt,
                         "window {}: the model's output is not a number; its weights may hold NaN "
                         "or infinite values ('kvant inspect --check-tensors' finds them)",
                         window + 1);
      }
      sums.Add(row, has_base);
    }
    if (options.save != nullptr) KVANT_TRY(options.save->FinishWindow());
    if (options.progress) KVANT_TRY(options.progress(sums.Report(window + 1, has_base)));
  }
  KVANT_TRY(session.Rewind(0));
  PerplexityReport report = sums.Report(windows.count(), has_base);
  if (has_base) sums.AddPercentiles(*report.divergence);
  return report;
}

}  // namespace kvant::evaluate
