// How much a model's output suffers from the error of each of its matrices: the weights of the sum
// that `kvant quantize --size` makes least.
//
// For small errors the divergence of the output grows in proportion to the relative error of a
// matrix, and the divergences of several matrices add up (V. Malinovskii et al., "Pushing the
// Limits of Large Language Model Quantization via the Linearity Theorem", arXiv:2411.17525). The
// factor of each is measured: one matrix at a time is rounded coarsely, and the mean
// Kullback-Leibler divergence of the next token's distribution from the unchanged model's is
// divided by the error of the rounding.
//
// The unchanged model runs node by node. Where it comes to a matrix, the rest of the plan is run
// with the rounded matrix on the values that are there (engine/run/replay.h): a matrix of the last
// layer costs one layer, and no model is opened twice. Of a row's distribution p only kSamples
// tokens are looked at, which are drawn from p once: where logits change by d, the divergence is
// ln(E[e^d]) - E[d], and both means are over p.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/evaluate/windows.h"
#include "engine/quantize/error_table.h"
#include "engine/run/replay.h"
#include "formats/gguf.h"
#include "kvant/model.h"

namespace kvant::quantize {

struct SensitivityOptions {
  std::string text;  // what the model reads
  // The tokens of a window, of which the second half is scored. From 65 tokens on products run at
  // the speed of prompts.
  int64_t window = 128;
  // The most tokens in all. Nothing: as many as kMacs allow. Where one window takes more, matrices
  // of one role in adjacent layers are measured together, and get what they have in the mean.
  std::optional<int64_t> tokens_max = {};
  int threads = 1;
  std::vector<std::string> ignored_keys = {};  // see ModelOptions
  // Called before each matrix on the calling thread with the part of the work that is done, 0 to 1;
  // an error ends the work with it. May be empty.
  std::function<Status(std::string_view tensor, double done)> on_progress = {};
  // Looked at in the midst of a matrix, too; kCancelled once it is true. May be null.
  const std::atomic<bool>* cancel = nullptr;

  // Multiply-accumulates that nobody minds: below a minute on two cores with AVX2.
  static constexpr double kMacs = 3e12;
  static constexpr int64_t kTokens = 2048;  // more hardly change a choice
  static constexpr int64_t kSamples = 128;
};

class SensitivityTest {
 public:
  // Checks the model and the text, which takes no time: kNotSupported for a model without a decoder
  // or with an encoder, kInvalid for a text of less than 16 tokens. The matrices are of the file.
  static Result<SensitivityTest> Create(const formats::GgufFile& file,
                                        std::span<const MeasuredMatrix> matrices,
                                        SensitivityOptions options);

  // Nats per unit of relative error for each of the matrices of Create.
  Result<std::vector<double>> Measure(std::span<const MeasuredMatrix> matrices);

  double macs() const { return macs_; }  // the multiply-accumulates of Measure
  int64_t tokens() const { return windows_.count() * windows_.size(); }

 private:
  // Matrices that are rounded together, and the first node that multiplies with one of them.
  struct Target {
    std::vector<size_t> matrices;
    size_t node = 0;
    double macs = 0;
  };
  // Tokens of a scored row, the part of the samples that each is, and their logits in the unchanged
  // model.
  struct Samples {
    std::vector<TokenId> tokens;
    std::vector<double> parts;
    std::vector<double> logits;
  };

  SensitivityTest(std::shared_ptr<const Model> model, SensitivityOptions options)
      : model_(std::move(model)), options_(std::move(options)) {}
  Status CutText();
  void FindTargets(std::span<const MeasuredMatrix> matrices, int64_t band);
  void LimitWork(std::span<const MeasuredMatrix> matrices);
  void KeepWindows(int64_t count);
  Result<std::unique_ptr<run::PlanReplay>> Replay(const graph::Plan& plan, ThreadPool& team) const;
  Status DrawSamples(ThreadPool& team);
  Result<double> Sensitivity(std::span<const MeasuredMatrix> matrices, const Target& target,
                             ThreadPool& team) const;
  std::vector<double> LogitsOf(const Samples& samples, const formats::GgufTensor& output,
                               std::span<const float> row) const;
  std::vector<TokenId> TokensOf(int64_t window) const;
  int64_t rows() const { return windows_.count() * windows_.rows(); }

  std::shared_ptr<const Model> model_;
  SensitivityOptions options_;
  evaluate::Windows windows_;
  std::vector<Target> targets_;  // by node
  double macs_ = 0;
  std::vector<run::WindowValues> values_;  // of each window, where the unchanged model stands
  std::vector<Samples> samples_;           // of each scored row
};

}  // namespace kvant::quantize
