#include "engine/quantize/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "engine/evaluate/distribution.h"
#include "engine/evaluate/windows.h"
#include "engine/quantize/recipe.h"
#include "formats/gguf.h"
#include "formats/quoted.h"
#include "kvant/model.h"
#include "kvant/session.h"

namespace kvant::quantize {
namespace {

using formats::GgufFile;
using formats::GgufTensor;
using quant::FormatTraits;

// The relative error that a matrix is given: small enough for the divergence to grow in proportion
// to it, and large enough to stand out from the rounding of activations.
constexpr double kProbeError = 0.01;

const MeasuredMatrix::Row& ProbeOf(const MeasuredMatrix& matrix) {
  const auto distance = [](const MeasuredMatrix::Row& row) {
    return std::fabs(std::log(std::max(row.error, 1e-12) / kProbeError));
  };
  return *std::min_element(matrix.rows.begin(), matrix.rows.end(),
                           [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
}

// A tensor in another format, encoded by all threads.
Result<AlignedBuffer> EncodeTensor(const cpu::KernelTable& kernels, const MeasuredMatrix& matrix,
                                   const FormatTraits& format, ThreadPool& pool) {
  const GgufTensor& tensor = *matrix.tensor;
  const int64_t cols = tensor.dims[0];
  const int64_t row_bytes = format.row_bytes(cols);
  KVANT_ASSIGN(AlignedBuffer bytes,
               AlignedBuffer::Allocate(static_cast<size_t>(row_bytes * tensor.rows()),
                                       "a matrix with an error"));
  pool.Run([&](const ThreadPool::Member& member) {
    std::vector<float> values(static_cast<size_t>(cols));
    const Range rows = OwnedRange(tensor.rows(), 1, member.index, member.count);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const auto source = static_cast<size_t>(quant::FormatIndex(*tensor.format));
      kernels.decode[source](tensor.data + row * tensor.row_bytes(), values.data(), cols);
      const float* importance = matrix.importance.empty()
                                    ? nullptr
                                    : matrix.importance.data() + row / tensor.dims[1] * cols;
      kernels.encode[static_cast<size_t>(quant::FormatIndex(format))](
          {.format = &format,
           .values = values.data(),
           .importance = importance,
           .rows = 1,
           .cols = cols,
           .blocks = bytes.data() + row * row_bytes});
    }
  });
  return bytes;
}

// Runs the windows of a text through a model.
class Prober {
 public:
  Prober(const std::string& path, const SensitivityOptions& options)
      : path_(path), options_(options) {}

  // The rows of the unchanged model, with which others are compared.
  Status Start() {
    KVANT_ASSIGN(const auto model, Model::Open(path_));
    KVANT_TRY(model->CheckDecoder());
    if (model->has_encoder()) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: sensitivities are measured on models without an encoder only", path_);
    }
    KVANT_ASSIGN(std::vector<TokenId> tokens, model->tokenizer().Encode(options_.text, {}));
    if (std::ssize(tokens) > options_.tokens_max) {
      tokens.resize(static_cast<size_t>(options_.tokens_max));
    }
    const int64_t window = std::min(
        {options_.window, options_.tokens_max, std::ssize(tokens), model->context_length()});
    if (window < 16) {
      return MakeError(ErrorCode::kInvalid,
                       "the text has {} tokens, expected 16 at least to measure sensitivities on",
                       tokens.size());
    }
    windows_ = evaluate::Windows::Whole(std::move(tokens), model->tokenizer().special(), window);
    vocab_ = model->vocab_size();
    base_.resize(static_cast<size_t>(windows_.count() * windows_.rows() * vocab_));
    return Run(model, [&](int64_t row, std::span<const float> logits) {
      std::copy(logits.begin(), logits.end(), base_.begin() + row * vocab_);
    });
  }

  // The mean divergence of a model with another tensor.
  Result<double> Divergence(const std::string& tensor, const FormatTraits& format,
                            AlignedBuffer bytes) {
    ModelOptions model_options;
    model_options.on_file = [&](GgufFile& file) -> Status {
      file.ReplaceTensor(tensor, format, std::move(bytes));
      return {};
    };
    KVANT_ASSIGN(const auto model, Model::Open(path_, model_options));
    std::vector<double> rows(static_cast<size_t>(windows_.count() * windows_.rows()));
    KVANT_TRY(Run(model, [&](int64_t row, std::span<const float> logits) {
      const auto base = std::span<const float>(base_).subspan(static_cast<size_t>(row * vocab_),
                                                              static_cast<size_t>(vocab_));
      rows[static_cast<size_t>(row)] =
          evaluate::KlDivergence(evaluate::Normalize(base), evaluate::Normalize(logits));
    }));
    double sum = 0;
    for (const double row : rows) sum += row;
    return sum / static_cast<double>(rows.size());
  }

 private:
  using OnRow = std::function<void(int64_t row, std::span<const float> logits)>;

  Status Run(const std::shared_ptr<const Model>& model, const OnRow& on_row) {
    SessionOptions session_options;
    session_options.threads = options_.threads;
    session_options.context = windows_.size();
    KVANT_ASSIGN(const auto session, Session::Create(model, session_options));
    for (int64_t window = 0; window < windows_.count(); ++window) {
      KVANT_TRY(session->Rewind(0));
      std::vector<TokenId> tokens = windows_.Tokens(window);
      tokens.pop_back();  // no row follows from the last token
      const int64_t first = windows_.first_row();
      KVANT_TRY(session->AppendScoring(tokens, first, [&](int64_t i, std::span<const float> row) {
        on_row(window * windows_.rows() + i - first, row);
      }));
    }
    return {};
  }

  std::string path_;
  const SensitivityOptions& options_;
  evaluate::Windows windows_;
  int64_t vocab_ = 0;
  std::vector<float> base_;  // [rows][vocab]
};

}  // namespace

Result<std::vector<double>> MeasureSensitivities(const std::string& model_path,
                                                 std::span<const MeasuredMatrix> matrices,
                                                 const SensitivityOptions& options) {
  KVANT_ASSIGN(const cpu::KernelTable* kernels, cpu::ChooseKernelsFromEnvironment());
  Prober prober(model_path, options);
  KVANT_TRY(prober.Start());
  ThreadPool pool(options.threads);
  std::vector<double> sensitivities;
  for (const MeasuredMatrix& matrix : matrices) {
    if (options.on_progress) {
      KVANT_TRY(options.on_progress(matrix.tensor->name, sensitivities.size(), matrices.size()));
    }
    const MeasuredMatrix::Row& probe = ProbeOf(matrix);
    KVANT_ASSIGN(AlignedBuffer encoded, EncodeTensor(*kernels, matrix, *probe.format, pool));
    KVANT_ASSIGN(const double divergence, prober.Divergence(std::string(matrix.tensor->name),
                                                            *probe.format, std::move(encoded)));
    if (!std::isfinite(divergence)) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: the output is not a number once tensor {} is quantized", model_path,
                       formats::Quoted(matrix.tensor->name));
    }
    sensitivities.push_back(probe.error > 0 ? std::max(divergence, 0.0) / probe.error : 0);
  }
  return sensitivities;
}

double TypicalSensitivity(std::string_view tensor, int64_t layers, OutputMatrix output) {
  if (tensor == (output == OutputMatrix::kOwn ? kOutputName : kEmbeddingName)) return 1;
  if (tensor == kEmbeddingName) return 0.1;
  // Pieces of names, the first one found counts; times the layers. Rounded from what
  // MeasureSensitivities says of the models that come with kvant.
  constexpr std::pair<std::string_view, double> kRoles[] = {
      {"attn_qkv", 0.15}, {"attn_q", 0.04},  {"attn_k", 0.04},   {"attn_v", 0.12},
      {"ffn_gate", 0.06}, {"ffn_up", 0.06},  {"ffn_down", 0.22}, {"attn_output", 0.18},
      {"ssm_out", 0.18},  {"in_proj", 0.22},
  };
  double of_role = 0.1;
  for (const auto& [part, sensitivity] : kRoles) {
    if (tensor.find(part) == std::string_view::npos) continue;
    of_role = sensitivity;
    break;
  }
  return of_role / static_cast<double>(std::max<int64_t>(layers, 1));
}

}  // namespace kvant::quantize
