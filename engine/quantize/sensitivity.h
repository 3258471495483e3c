// How much a model's output suffers from the error of each of its matrices: the weights of the sum
// that `kvant quantize --size` makes least.
//
// For small errors the divergence of the output grows in proportion to the relative error of a
// matrix, and the divergences of several matrices add up (V. Malinovskii et al., "Pushing the
// Limits of Large Language Model Quantization via the Linearity Theorem", arXiv:2411.17525). The
// factor of each is measured: one matrix at a time is quantized with a known error, and the mean
// Kullback-Leibler divergence of the next token's distribution from the unchanged model's is
// divided by it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/evaluate/distribution.h"
#include "engine/evaluate/windows.h"
#include "engine/quantize/error_table.h"
#include "formats/gguf.h"
#include "kvant/model.h"

namespace kvant::quantize {

struct SensitivityOptions {
  std::string text;  // what the model reads
  // Windows of `window` tokens, of which the second half of each is scored; at most `tokens_max`
  // tokens in all.
  int64_t window = 256;
  int64_t tokens_max = 2048;
  int threads = 1;
  // Called before each matrix on the calling thread; an error ends the work with it. May be empty.
  std::function<Status(std::string_view tensor, size_t done, size_t count)> on_progress = {};
  // Looked at in the midst of a matrix, too; kCancelled once it is true. May be null.
  const std::atomic<bool>* cancel = nullptr;
};

// The file is opened and unpacked once: a model with one other matrix shares its memory.
class SensitivityTest {
 public:
  // Checks the model and the text, which takes no time: kNotSupported for a model without a decoder
  // or with an encoder, kInvalid for a text of less than 16 tokens, kOutOfMemory where there is too
  // little for the rows of the unchanged model.
  static Result<SensitivityTest> Create(const formats::GgufFile& file, SensitivityOptions options);

  // Nats per unit of relative error for each matrix, whose rows must have been measured. The
  // matrices are of the file.
  Result<std::vector<double>> Measure(std::span<const MeasuredMatrix> matrices);

 private:
  using OnRow = std::function<void(int64_t row, std::span<const float> logits)>;

  SensitivityTest(std::shared_ptr<const Model> model, SensitivityOptions options)
      : model_(std::move(model)), options_(std::move(options)) {}
  Status CutText();
  Status ReserveRows();
  Status RunBase();
  Result<double> Divergence(std::string_view tensor, const quant::FormatTraits& format,
                            AlignedBuffer bytes);
  Status Run(const std::shared_ptr<const Model>& model, const OnRow& on_row);
  int64_t rows() const { return windows_.count() * windows_.rows(); }

  std::shared_ptr<const Model> model_;
  SensitivityOptions options_;
  evaluate::Windows windows_;
  AlignedBuffer logits_;                      // of the unchanged model, floats [rows][vocab]
  std::vector<evaluate::Distribution> base_;  // [rows], of these logits
};

// The sensitivity without a text: 1 for the output matrix, whose error is the error of the logits
// and which may be the embedding; less for other matrices, by their role and the number of layers
// that share a residual stream.
enum class OutputMatrix : uint8_t { kOwn, kEmbedding };
double TypicalSensitivity(std::string_view tensor, int64_t layers, OutputMatrix output);

}  // namespace kvant::quantize
