#include "engine/quantize/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "base/available_memory.h"
#include "base/counted.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/kernels/table.h"
#include "engine/quantize/recipe.h"
#include "formats/quoted.h"
#include "kvant/session.h"
#include "quant/format.h"

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

// More bytes than a token of a text has on average: a text is read only up to this many for each
// token.
constexpr int64_t kTokenBytes = 64;

// The first bytes, without a piece of a character at the end.
std::string_view BeginningOf(std::string_view text, int64_t bytes) {
  if (std::ssize(text) <= bytes) return text;
  auto end = static_cast<size_t>(bytes);
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

bool IsSet(const std::atomic<bool>* cancel) { return cancel != nullptr && cancel->load(); }

// A tensor in another format, encoded by all threads.
Result<AlignedBuffer> EncodeTensor(const cpu::KernelTable& kernels, const MeasuredMatrix& matrix,
                                   const FormatTraits& format, const std::atomic<bool>* cancel,
                                   ThreadPool& pool) {
  const GgufTensor& tensor = *matrix.tensor;
  const int64_t cols = tensor.dims[0];
  const int64_t row_bytes = format.row_bytes(cols);
  KVANT_ASSIGN(AlignedBuffer bytes,
               AlignedBuffer::Allocate(static_cast<size_t>(row_bytes * tensor.rows()),
                                       "a matrix with an error"));
  pool.Run([&](const ThreadPool::Member& member) {
    std::vector<float> values(static_cast<size_t>(cols));
    const Range rows = OwnedRange(tensor.rows(), 1, member.index, member.count);
    for (int64_t row = rows.begin; row < rows.end && !IsSet(cancel); ++row) {
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
  if (IsSet(cancel)) return MakeError(ErrorCode::kCancelled, "interrupted");
  return bytes;
}

}  // namespace

Result<SensitivityTest> SensitivityTest::Create(const GgufFile& file, SensitivityOptions options) {
  KVANT_ASSIGN(auto model, Model::Create(file.Share()));
  KVANT_TRY(model->CheckDecoder());
  if (model->has_encoder()) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: sensitivities are measured on models without an encoder only",
                     file.path());
  }
  SensitivityTest test(std::move(model), std::move(options));
  KVANT_TRY(test.CutText());
  KVANT_TRY(test.ReserveRows());
  return test;
}

Status SensitivityTest::CutText() {
  const std::string_view text = BeginningOf(options_.text, kTokenBytes * options_.tokens_max);
  KVANT_ASSIGN(std::vector<TokenId> tokens, model_->tokenizer().Encode(text, {}));
  if (std::ssize(tokens) > options_.tokens_max) {
    tokens.resize(static_cast<size_t>(options_.tokens_max));
  }
  const int64_t window = std::min(
      {options_.window, options_.tokens_max, std::ssize(tokens), model_->context_length()});
  if (window < 16) {
    return MakeError(ErrorCode::kInvalid, "--calibrate: the text has {}, expected 16 at least",
                     Counted(tokens.size(), "token"));
  }
  windows_ = evaluate::Windows::Whole(std::move(tokens), model_->tokenizer().special(), window);
  return {};
}

Status SensitivityTest::ReserveRows() {
  const uint64_t bytes =
      static_cast<uint64_t>(rows()) * static_cast<uint64_t>(model_->vocab_size()) * sizeof(float);
  const uint64_t available = AvailableMemory();
  if (bytes > available) {
    return MakeError(ErrorCode::kOutOfMemory,
                     "measuring sensitivities on {} tokens takes {} MiB for {} rows of {} logits, "
                     "and {} MiB are available: expected fewer (--calibrate-tokens)",
                     windows_.count() * windows_.size(), bytes >> 20, rows(), model_->vocab_size(),
                     available >> 20);
  }
  KVANT_ASSIGN(logits_, AlignedBuffer::Allocate(bytes, "the rows of the unchanged model"));
  return {};
}

Result<std::vector<double>> SensitivityTest::Measure(std::span<const MeasuredMatrix> matrices) {
  if (options_.on_progress && !matrices.empty()) {
    KVANT_TRY(options_.on_progress(matrices[0].tensor->name, 0, matrices.size()));
  }
  KVANT_TRY(RunBase());
  ThreadPool pool(options_.threads);
  std::vector<double> sensitivities;
  for (const MeasuredMatrix& matrix : matrices) {
    const std::string_view name = matrix.tensor->name;
    if (options_.on_progress) {
      KVANT_TRY(options_.on_progress(name, sensitivities.size(), matrices.size()));
    }
    const MeasuredMatrix::Row& probe = ProbeOf(matrix);
    KVANT_ASSIGN(AlignedBuffer encoded,
                 EncodeTensor(model_->kernels(), matrix, *probe.format, options_.cancel, pool));
    KVANT_ASSIGN(const double divergence, Divergence(name, *probe.format, std::move(encoded)));
    if (!std::isfinite(divergence)) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: the output is not a number once tensor {} is quantized",
                       model_->file().path(), formats::Quoted(name));
    }
    // Where no type leaves an error there is nothing to be measured.
    constexpr double kLeastError = 1e-12;
    const bool has_error = probe.error > kLeastError;
    sensitivities.push_back(has_error ? std::max(divergence, 0.0) / probe.error : 0);
  }
  return sensitivities;
}

// The rows of the unchanged model, with which others are compared.
Status SensitivityTest::RunBase() {
  const auto vocab = static_cast<size_t>(model_->vocab_size());
  auto* logits = reinterpret_cast<float*>(logits_.data());
  base_.resize(static_cast<size_t>(rows()));
  return Run(model_, [&](int64_t row, std::span<const float> of_row) {
    const auto at = static_cast<size_t>(row);
    std::copy(of_row.begin(), of_row.end(), logits + at * vocab);
    base_[at] = evaluate::Normalize(std::span<const float>(logits + at * vocab, vocab));
  });
}

// The mean divergence of the model with another tensor.
Result<double> SensitivityTest::Divergence(std::string_view tensor, const FormatTraits& format,
                                           AlignedBuffer bytes) {
  GgufFile changed = model_->file().Share();
  changed.ReplaceTensor(tensor, format, std::move(bytes));
  KVANT_ASSIGN(const auto model, Model::Create(std::move(changed)));
  std::vector<double> divergences(static_cast<size_t>(rows()));
  KVANT_TRY(Run(model, [&](int64_t row, std::span<const float> logits) {
    const auto at = static_cast<size_t>(row);
    divergences[at] = evaluate::KlDivergence(base_[at], evaluate::Normalize(logits));
  }));
  double sum = 0;
  for (const double divergence : divergences) sum += divergence;
  return sum / static_cast<double>(divergences.size());
}

Status SensitivityTest::Run(const std::shared_ptr<const Model>& model, const OnRow& on_row) {
  SessionOptions session_options;
  session_options.threads = options_.threads;
  session_options.context = windows_.size();
  session_options.cancel = options_.cancel;
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

double TypicalSensitivity(std::string_view tensor, int64_t layers, OutputMatrix output) {
  if (tensor == (output == OutputMatrix::kOwn ? kOutputName : kEmbeddingName)) return 1;
  if (tensor == kEmbeddingName) return 0.1;
  // Pieces of names, the first one found counts; times the layers. Rounded from what
  // SensitivityTest says of the models that come with kvant.
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
