// Collects an importance matrix while a text runs through a model: for every weight matrix of the
// layers, the sums of its squared input activations per column, before they are quantized.
//
// Use: create the collector, open the model with it as ModelOptions::observer, run the windows,
// or the texts of an embedding model, take the matrix. The sums are in double and in the order of
// the text, so that they do not depend on the threads. Thread-safety: one session at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/evaluate/windows.h"
#include "engine/graph/rowwise/observer.h"
#include "formats/imatrix.h"
#include "kvant/embed.h"
#include "kvant/session.h"

namespace kvant::evaluate {

// Whether the output matrix is watched besides those of the layers.
enum class OutputMatrix : uint8_t { kSkipped, kWatched };

class ImportanceCollector final : public graph::MatMulObserver {
 public:
  explicit ImportanceCollector(OutputMatrix output) : output_(output) {}

  std::optional<int> Watch(std::span<const std::string> weights, int64_t cols) override;
  void Observe(int input, const float* values, int64_t stride, int64_t rows,
               const Range& columns) override;
  std::optional<int> WatchExperts(std::span<const std::string> weights, int64_t cols,
                                  int64_t experts) override;
  void ObserveExperts(int input, const float* values, int64_t stride,
                      std::span<const int32_t> offsets, const Range& columns) override;

  // Runs every window whole.
  Status Run(Session& session, const Windows& windows, const WindowProgress& progress);

  // Runs every text through an embedder that the model's own plan serves, with the pooling of the
  // file. A chunk counts as kImatrixChunkRows tokens.
  Status RunTexts(Embedder& embedder, std::span<const EmbedTokens> texts,
                  const WindowProgress& progress);

  // The importances collected so far, without datasets. kCorrupt, naming the matrix, if an
  // activation was not finite.
  Result<formats::Imatrix> Take() const;

 private:
  struct Input {
    std::vector<std::string> weights;
    std::vector<double> sums;   // [matrices][cols]: of experts there is a matrix each
    std::vector<int64_t> rows;  // [matrices]
  };

  std::optional<int> AddInput(std::span<const std::string> weights, int64_t cols, size_t matrices);

  OutputMatrix output_;
  std::vector<Input> inputs_;
  int64_t windows_ = 0;
  int64_t window_size_ = 0;
};

}  // namespace kvant::evaluate
