#include "engine/evaluate/importance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/result.h"

namespace kvant::evaluate {

std::optional<int> ImportanceCollector::Watch(std::span<const std::string> weights, int64_t cols) {
  return AddInput(weights, cols, 1);
}

std::optional<int> ImportanceCollector::WatchExperts(std::span<const std::string> weights,
                                                     int64_t cols, int64_t experts) {
  return AddInput(weights, cols, static_cast<size_t>(experts));
}

std::optional<int> ImportanceCollector::AddInput(std::span<const std::string> weights, int64_t cols,
                                                 size_t matrices) {
  Input input;
  for (const std::string& name : weights) {
    const bool layer = name.starts_with("blk.");
    const bool output = name == "output.weight" && output_ == OutputMatrix::kWatched;
    if (layer || output) input.weights.push_back(name);
  }
  if (input.weights.empty()) return std::nullopt;
  input.sums.resize(static_cast<size_t>(cols) * matrices);
  input.rows.resize(matrices);
  inputs_.push_back(std::move(input));
  return static_cast<int>(inputs_.size()) - 1;
}

void ImportanceCollector::Observe(int input, const float* values, int64_t stride, int64_t rows,
                                  const Range& columns) {
  const int32_t offsets[] = {0, static_cast<int32_t>(rows)};
  ObserveExperts(input, values, stride, offsets, columns);
}

void ImportanceCollector::ObserveExperts(int input, const float* values, int64_t stride,
                                         std::span<const int32_t> offsets, const Range& columns) {
  Input& into = inputs_[static_cast<size_t>(input)];
  const size_t cols = into.sums.size() / into.rows.size();
  for (size_t matrix = 0; matrix < into.rows.size(); ++matrix) {
    double* sums = into.sums.data() + matrix * cols;
    for (int64_t row = offsets[matrix]; row < offsets[matrix + 1]; ++row) {
      const float* x = values + row * stride;
      for (int64_t col = columns.begin; col < columns.end; ++col) {
        sums[col] += static_cast<double>(x[col]) * static_cast<double>(x[col]);
      }
    }
    // One member owns the first column.
    if (columns.begin == 0) into.rows[matrix] += offsets[matrix + 1] - offsets[matrix];
  }
}

Status ImportanceCollector::Run(Session& session, const Windows& windows,
                                const WindowProgress& progress) {
  window_size_ = windows.size();
  for (int64_t window = 0; window < windows.count(); ++window) {
    KVANT_TRY(session.Rewind(0));
    const std::vector<TokenId> tokens = windows.Tokens(window);
    const int64_t first_logits = output_ == OutputMatrix::kWatched ? 0 : windows.size();
    KVANT_TRY(session.AppendScoring(tokens, first_logits, [](int64_t, std::span<const float>) {}));
    ++windows_;
    if (progress) KVANT_TRY(progress(window + 1));
  }
  return session.Rewind(0);
}

Status ImportanceCollector::RunTexts(Embedder& embedder, std::span<const EmbedTokens> texts,
                                     const WindowProgress& progress) {
  int64_t tokens = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (embedder.pooling() == Pooling::kRank) {
      KVANT_TRY(embedder.Rank({&texts[i], 1}));
    } else {
      KVANT_TRY(embedder.Embed({&texts[i], 1}));
    }
    tokens += std::ssize(texts[i].ids);
    if (progress) KVANT_TRY(progress(static_cast<int64_t>(i) + 1));
  }
  window_size_ = formats::kImatrixChunkRows;
  windows_ = (tokens + window_size_ - 1) / window_size_;
  return {};
}

Result<formats::Imatrix> ImportanceCollector::Take() const {
  formats::Imatrix imatrix;
  imatrix.chunk_count = static_cast<uint32_t>(windows_);
  imatrix.chunk_size = static_cast<uint32_t>(window_size_);
  for (const Input& input : inputs_) {
    const bool finite = std::all_of(input.sums.begin(), input.sums.end(), [](double sum) {
      return std::isfinite(sum) && sum <= double{std::numeric_limits<float>::max()};
    });
    for (const std::string& name : input.weights) {
      if (!finite) {
        return MakeError(ErrorCode::kCorrupt,
                         "tensor {}: its input holds values that are not finite, or too large to "
                         "be squared",
                         name);
      }
      imatrix.entries[name] = {input.sums, input.rows};
    }
  }
  return imatrix;
}

}  // namespace kvant::evaluate
