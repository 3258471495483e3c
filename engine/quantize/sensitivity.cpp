#include "engine/quantize/sensitivity.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "base/counted.h"
#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/table.h"
#include "engine/arch/build_plan.h"
#include "engine/arch/spec.h"
#include "engine/evaluate/distribution.h"
#include "engine/quantize/recipe.h"
#include "formats/quoted.h"
#include "quant/format.h"

namespace kvant::quantize {
namespace {

using formats::GgufFile;
using formats::GgufTensor;
using quant::FormatTraits;

// The rounding of a matrix: in each group of values to multiples of the largest over kProbeSteps. A
// relative error of about 0.01 is small enough for the divergence to grow in proportion to it, and
// large enough to stand out from the rounding of sums.
constexpr int64_t kProbeGroup = 32;
constexpr float kProbeSteps = 6;

void RoundCoarsely(std::span<float> values) {
  for (size_t begin = 0; begin < values.size(); begin += kProbeGroup) {
    const std::span<float> group =
        values.subspan(begin, std::min<size_t>(kProbeGroup, values.size() - begin));
    float largest = 0;
    for (const float value : group) largest = std::max(largest, std::fabs(value));
    if (largest == 0) continue;
    const float step = largest / kProbeSteps;
    for (float& value : group) value = step * std::nearbyint(value / step);
  }
}

// More bytes than a token of a text has on average: a text is read only up to this many for each
// token.
constexpr int64_t kTokenBytes = 64;

// Rounding a value and building its place in a plan take as long as these products.
constexpr double kMacsOfRounding = 50;

// The first bytes, without a piece of a character at the end.
std::string_view BeginningOf(std::string_view text, int64_t bytes) {
  if (std::ssize(text) <= bytes) return text;
  auto end = static_cast<size_t>(bytes);
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

bool IsSet(const std::atomic<bool>* cancel) { return cancel != nullptr && cancel->load(); }

bool IsPlain(const FormatTraits& format) { return format.block_values == 1; }

// The rounded matrix. One whose blocks are quantized already becomes BF16, which holds any of its
// values nearly enough.
enum class Rounding : uint8_t { kNone, kCoarse };
struct RoundedMatrix {
  const FormatTraits* format = nullptr;
  AlignedBuffer bytes;
  double error = 0;  // relative, weighted by the importances
};

Result<RoundedMatrix> RoundMatrix(const cpu::KernelTable& kernels, const MeasuredMatrix& matrix,
                                  Rounding rounding, const std::atomic<bool>* cancel,
                                  ThreadPool& team) {
  const GgufTensor& tensor = *matrix.tensor;
  const int64_t cols = tensor.dims[0];
  RoundedMatrix rounded;
  rounded.format = IsPlain(*tensor.format) ? tensor.format : quant::FindFormat("BF16");
  const int64_t row_bytes = rounded.format->row_bytes(cols);
  KVANT_ASSIGN(rounded.bytes,
               AlignedBuffer::Allocate(static_cast<size_t>(row_bytes * tensor.rows()),
                                       "a matrix with an error"));
  // By row, so that the sums do not depend on the threads.
  std::vector<double> noise(static_cast<size_t>(tensor.rows()));
  std::vector<double> signal(noise.size());
  const auto source = static_cast<size_t>(quant::FormatIndex(*tensor.format));
  const auto target = static_cast<size_t>(quant::FormatIndex(*rounded.format));
  team.Run([&](const ThreadPool::Member& member) {
    std::vector<float> values(static_cast<size_t>(cols));
    std::vector<float> coarse(values.size());
    const Range rows = OwnedRange(tensor.rows(), 1, member.index, member.count);
    for (int64_t row = rows.begin; row < rows.end && !IsSet(cancel); ++row) {
      kernels.decode[source](tensor.data + row * tensor.row_bytes(), values.data(), cols);
      coarse = values;
      if (rounding == Rounding::kCoarse) RoundCoarsely(coarse);
      const float* importance = matrix.importance.empty()
                                    ? nullptr
                                    : matrix.importance.data() + row / tensor.dims[1] * cols;
      for (size_t i = 0; i < values.size(); ++i) {
        const double weight = importance == nullptr ? 1 : UsableWeight(importance[i]);
        const double difference = double{values[i]} - double{coarse[i]};
        noise[static_cast<size_t>(row)] += weight * difference * difference;
        signal[static_cast<size_t>(row)] += weight * double{values[i]} * double{values[i]};
      }
      kernels.encode[target]({.format = rounded.format,
                              .values = coarse.data(),
                              .importance = nullptr,
                              .rows = 1,
                              .cols = cols,
                              .blocks = rounded.bytes.data() + row * row_bytes});
    }
  });
  if (IsSet(cancel)) return MakeError(ErrorCode::kCancelled, "interrupted");
  double noises = 0;
  double signals = 0;
  for (size_t row = 0; row < noise.size(); ++row) {
    noises += noise[row];
    signals += signal[row];
  }
  rounded.error = signals > 0 ? noises / signals : 0;
  return rounded;
}

// The number of the layer in "blk.12.attn_q.weight", and where its role begins.
struct LayerName {
  int64_t layer = 0;
  size_t role = 0;
};
std::optional<LayerName> ReadLayerName(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return {};
  LayerName read;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, read.layer);
  if (error != std::errc() || read.layer < 0) return {};
  read.role = static_cast<size_t>(stop - name.data());
  return read;
}

bool AreOfOneLayer(std::string_view left, std::string_view right) {
  const auto left_name = ReadLayerName(left);
  const auto right_name = ReadLayerName(right);
  return left_name.has_value() && right_name.has_value() && left_name->layer == right_name->layer;
}

// Whether the node multiplies with the tensor, or, where the plan derives matrices from tensors,
// with any of the tensor's layer: the matrix may be a derived one.
bool Multiplies(const graph::Plan& plan, const graph::Node& node, std::string_view tensor) {
  const bool derives = plan.derived_bytes() > 0;
  return std::ranges::any_of(node.Matrices(), [&](const GgufTensor* matrix) {
    return matrix->name == tensor || (derives && AreOfOneLayer(matrix->name, tensor));
  });
}

int64_t CountLayers(std::span<const MeasuredMatrix> matrices) {
  int64_t layers = 0;
  for (const MeasuredMatrix& matrix : matrices) {
    const auto read = ReadLayerName(matrix.tensor->name);
    if (read.has_value()) layers = std::max(layers, read->layer + 1);
  }
  return layers;
}

// Bands are never so wide that there are fewer of them.
constexpr int64_t kBandsMin = 4;

// Equal for matrices of one role in one band of layers. The first two layers and the last one are
// often unlike their neighbours, and stay alone.
std::string BandName(std::string_view name, int64_t band, int64_t layers) {
  const auto read = ReadLayerName(name);
  constexpr int64_t kFirstLayers = 2;
  if (!read.has_value() || read->layer < kFirstLayers || read->layer == layers - 1) {
    return std::string(name);
  }
  return fmt::format("{}{}", (read->layer - kFirstLayers) / band, name.substr(read->role));
}

// The multiply-accumulates of each node of the body and of all after it, by the number of the node.
// Few products of the head are computed.
std::vector<double> MacsFrom(const graph::Plan& plan, int64_t rows) {
  const auto& body = plan.nodes(graph::Stage::kBody);
  const graph::PassShape::Part part = {.rows = rows, .end = rows};
  graph::PassShape shape;
  shape.parts = std::span(&part, 1);
  shape.rows.Set(graph::RowSpace::kPass, rows);
  const auto macs_of = [&](const graph::Node& node) {
    graph::Work work;
    node.AddWork(shape, work);
    return work.macs();
  };
  std::vector<double> from(body.size() + 1);
  for (size_t i = body.size(); i-- > 0;) from[i] = from[i + 1] + macs_of(*body[i]);
  return from;
}

// The file with an output matrix that multiplies floats, as SensitivityTest looks at its input.
Result<GgufFile> WithPlainOutput(const GgufFile& file, const SensitivityOptions& options) {
  GgufFile shared = file.Share();
  const GgufTensor* output = file.FindTensor(kOutputName);
  if (output == nullptr) output = file.FindTensor(kEmbeddingName);
  if (output == nullptr || IsPlain(*output->format)) return shared;
  MeasuredMatrix matrix;
  matrix.tensor = output;
  KVANT_ASSIGN(const cpu::KernelTable* kernels, cpu::ChooseKernelsFromEnvironment());
  ThreadPool team(options.threads);
  KVANT_ASSIGN(RoundedMatrix plain,
               RoundMatrix(*kernels, matrix, Rounding::kNone, options.cancel, team));
  shared.ReplaceTensor(output->name, *plain.format, std::move(plain.bytes));
  return shared;
}

// `count` tokens at equal distances in the distribution's probability, each once, with how often it
// was met.
std::vector<std::pair<TokenId, int64_t>> DrawTokens(const evaluate::Distribution& distribution,
                                                    int64_t count) {
  std::vector<std::pair<TokenId, int64_t>> drawn;
  double sum = 0;
  int64_t next = 0;
  for (TokenId id = 0; id < std::ssize(distribution.logits) && next < count; ++id) {
    sum += std::exp(distribution.LogProb(id));
    const int64_t before = next;
    while (next < count && (static_cast<double>(next) + 0.5) / static_cast<double>(count) < sum) {
      ++next;
    }
    if (next > before) drawn.emplace_back(id, next - before);
  }
  // The probabilities may sum up to a little less than 1.
  if (next < count) drawn.emplace_back(distribution.top, count - next);
  return drawn;
}

// ln(E[e^d]) - E[d], 0 at least.
double DivergenceOf(std::span<const double> parts, std::span<const double> before,
                    std::span<const double> after) {
  double mean = 0;
  for (size_t i = 0; i < parts.size(); ++i) mean += parts[i] * (after[i] - before[i]);
  double sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    sum += parts[i] * std::exp(after[i] - before[i] - mean);
  }
  return std::log(sum);
}

}  // namespace

// ---- Creation -----------------------------------------------------------------------------------

Result<SensitivityTest> SensitivityTest::Create(const GgufFile& file,
                                                std::span<const MeasuredMatrix> matrices,
                                                SensitivityOptions options) {
  KVANT_ASSIGN(GgufFile shared, WithPlainOutput(file, options));
  KVANT_ASSIGN(auto model,
               Model::Create(std::move(shared), {.ignored_keys = options.ignored_keys}));
  KVANT_TRY(model->CheckDecoder());
  if (model->has_encoder()) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: sensitivities are measured on models without an encoder only",
                     file.path());
  }
  SensitivityTest test(std::move(model), std::move(options));
  KVANT_TRY(test.CutText());
  test.FindTargets(matrices, 1);
  if (!test.options_.tokens_max.has_value()) test.LimitWork(matrices);
  return test;
}

Status SensitivityTest::CutText() {
  const int64_t most = options_.tokens_max.value_or(SensitivityOptions::kTokens);
  const std::string_view text = BeginningOf(options_.text, kTokenBytes * most);
  KVANT_ASSIGN(std::vector<TokenId> tokens, model_->tokenizer().Encode(text, {}));
  if (std::ssize(tokens) > most) tokens.resize(static_cast<size_t>(most));
  const int64_t window =
      std::min({options_.window, most, std::ssize(tokens), model_->context_length()});
  if (window < 16) {
    return MakeError(ErrorCode::kInvalid, "--calibrate: the text has {}, expected 16 at least",
                     Counted(tokens.size(), "token"));
  }
  windows_ = evaluate::Windows::Whole(std::move(tokens), model_->tokenizer().special(), window);
  return {};
}

// The targets for bands of so many layers. A matrix that no node of the body multiplies with, and
// that is not the output's, may be read in another way: the whole plan is run for it.
void SensitivityTest::FindTargets(std::span<const MeasuredMatrix> matrices, int64_t band) {
  const graph::Plan& plan = model_->plan();
  const auto& body = plan.nodes(graph::Stage::kBody);
  const auto& head = plan.nodes(graph::Stage::kHead);
  const std::vector<double> from = MacsFrom(plan, windows_.size() - 1);
  targets_.clear();
  std::map<std::string, size_t> of_bands;
  for (size_t m = 0; m < matrices.size(); ++m) {
    const std::string_view name = matrices[m].tensor->name;
    const auto reads = [&](const auto& node) { return Multiplies(plan, *node, name); };
    const auto first = std::ranges::find_if(body, reads);
    auto node = static_cast<size_t>(first - body.begin());
    const bool is_output = name != kEmbeddingName && std::ranges::any_of(head, reads);
    if (first == body.end() && !is_output) node = 0;
    const auto [found, is_new] =
        of_bands.try_emplace(BandName(name, band, CountLayers(matrices)), targets_.size());
    if (is_new) targets_.push_back({{}, node, 0});
    Target& target = targets_[found->second];
    target.matrices.push_back(m);
    target.node = std::min(target.node, node);
    target.macs += kMacsOfRounding * static_cast<double>(matrices[m].tensor->n_values());
  }
  std::ranges::stable_sort(targets_, {}, &Target::node);
  macs_ = 0;
  for (Target& target : targets_) {
    target.macs += static_cast<double>(windows_.count()) * from[target.node];
    macs_ += target.macs;
  }
}

void SensitivityTest::KeepWindows(int64_t count) {
  std::vector<TokenId> tokens(windows_.tokens().begin(),
                              windows_.tokens().begin() + count * windows_.size());
  windows_ =
      evaluate::Windows::Whole(std::move(tokens), model_->tokenizer().special(), windows_.size());
}

// Leaves out windows that would take more than is allowed, then makes bands.
void SensitivityTest::LimitWork(std::span<const MeasuredMatrix> matrices) {
  const auto windows = static_cast<double>(windows_.count());
  const auto wanted = static_cast<int64_t>(windows * SensitivityOptions::kMacs / macs_);
  KeepWindows(std::clamp<int64_t>(wanted, 1, windows_.count()));
  FindTargets(matrices, 1);
  const int64_t widest = CountLayers(matrices) / kBandsMin;
  for (int64_t band = 2; band <= widest && macs_ > SensitivityOptions::kMacs; ++band) {
    FindTargets(matrices, band);
  }
}

// ---- Measuring ----------------------------------------------------------------------------------

// No row follows from the last token of a window.
std::vector<TokenId> SensitivityTest::TokensOf(int64_t window) const {
  std::vector<TokenId> tokens = windows_.Tokens(window);
  tokens.pop_back();
  return tokens;
}

Result<std::unique_ptr<run::PlanReplay>> SensitivityTest::Replay(const graph::Plan& plan,
                                                                 ThreadPool& team) const {
  return run::PlanReplay::Create(plan, team,
                                 {.rows = windows_.size() - 1, .cancel = options_.cancel});
}

// The logits of a row's samples, as the model computes them but for the order of sums.
std::vector<double> SensitivityTest::LogitsOf(const Samples& samples, const GgufTensor& output,
                                              std::span<const float> row) const {
  const auto decode =
      model_->kernels().decode[static_cast<size_t>(quant::FormatIndex(*output.format))];
  const arch::Output& spec = model_->spec().stacks.front().output;
  std::vector<float> weights(row.size());
  std::vector<double> logits;
  for (const TokenId token : samples.tokens) {
    decode(output.data + token * output.row_bytes(), weights.data(), std::ssize(weights));
    double logit = 0;
    for (size_t i = 0; i < row.size(); ++i) logit += double{row[i]} * double{weights[i]};
    logit *= double{spec.scale};
    logits.push_back(spec.cap > 0 ? double{spec.cap} * std::tanh(logit / double{spec.cap}) : logit);
  }
  return logits;
}

Status SensitivityTest::DrawSamples(ThreadPool& team) {
  samples_.assign(static_cast<size_t>(rows()), {});
  KVANT_ASSIGN(const auto replay, Replay(model_->plan(), team));
  const int64_t first = windows_.first_row();
  for (int64_t window = 0; window < windows_.count(); ++window) {
    run::WindowValues values;
    const std::vector<TokenId> tokens = TokensOf(window);
    const auto samples_of = [&](int64_t row) -> Samples& {
      return samples_[static_cast<size_t>(window * windows_.rows() + row - first)];
    };
    KVANT_TRY(replay->Run(tokens, replay->nodes(), values));
    KVANT_TRY(replay->RunHead(first, [&](int64_t row, std::span<const float> logits) {
      Samples& samples = samples_of(row);
      for (const auto& [token, count] :
           DrawTokens(evaluate::Normalize(logits), SensitivityOptions::kSamples)) {
        samples.tokens.push_back(token);
        samples.parts.push_back(static_cast<double>(count) /
                                static_cast<double>(SensitivityOptions::kSamples));
      }
    }));
    KVANT_TRY(replay->RunBeforeOutput(first, [&](int64_t row, std::span<const float> floats) {
      Samples& samples = samples_of(row);
      samples.logits = LogitsOf(samples, replay->output(), floats);
    }));
  }
  values_.assign(static_cast<size_t>(windows_.count()), {});
  return {};
}

Result<std::vector<double>> SensitivityTest::Measure(std::span<const MeasuredMatrix> matrices) {
  std::vector<double> sensitivities(matrices.size());
  ThreadPool team(options_.threads);
  double done = 0;
  const auto report = [&](const Target& target) -> Status {
    if (!options_.on_progress) return {};
    return options_.on_progress(matrices[target.matrices.front()].tensor->name,
                                macs_ > 0 ? done / macs_ : 1);
  };
  if (!targets_.empty()) KVANT_TRY(report(targets_.front()));
  KVANT_TRY(DrawSamples(team));
  KVANT_ASSIGN(const auto unchanged, Replay(model_->plan(), team));
  for (const Target& target : targets_) {
    for (int64_t window = 0; window < windows_.count(); ++window) {
      run::WindowValues& values = values_[static_cast<size_t>(window)];
      if (values.node == target.node) break;
      const std::vector<TokenId> tokens = TokensOf(window);
      KVANT_TRY(unchanged->Run(tokens, target.node, values));
    }
    KVANT_TRY(report(target));
    KVANT_ASSIGN(const double sensitivity, Sensitivity(matrices, target, team));
    for (const size_t matrix : target.matrices) sensitivities[matrix] = sensitivity;
    done += target.macs;
  }
  return sensitivities;
}

Result<double> SensitivityTest::Sensitivity(std::span<const MeasuredMatrix> matrices,
                                            const Target& target, ThreadPool& team) const {
  GgufFile changed = model_->file().Share();
  double error = 0;
  for (const size_t matrix : target.matrices) {
    KVANT_ASSIGN(RoundedMatrix rounded, RoundMatrix(model_->kernels(), matrices[matrix],
                                                    Rounding::kCoarse, options_.cancel, team));
    error += rounded.error;
    changed.ReplaceTensor(matrices[matrix].tensor->name, *rounded.format, std::move(rounded.bytes));
  }
  // Where rounding leaves no error there is nothing to be measured.
  constexpr double kLeastError = 1e-12;
  if (error < kLeastError) return 0.0;
  KVANT_ASSIGN(const auto plan,
               arch::BuildPlan(changed, model_->kernels(), model_->float_gemm(), model_->spec()));
  KVANT_ASSIGN(const auto replay, Replay(*plan, team));
  std::vector<double> divergences(static_cast<size_t>(rows()));
  const int64_t first = windows_.first_row();
  for (int64_t window = 0; window < windows_.count(); ++window) {
    run::WindowValues values = values_[static_cast<size_t>(window)];
    if (!replay->Knows(values)) values = {};
    const std::vector<TokenId> tokens = TokensOf(window);
    KVANT_TRY(replay->Run(tokens, replay->nodes(), values));
    KVANT_TRY(replay->RunBeforeOutput(first, [&](int64_t row, std::span<const float> floats) {
      const auto at = static_cast<size_t>(window * windows_.rows() + row - first);
      const Samples& samples = samples_[at];
      divergences[at] =
          DivergenceOf(samples.parts, samples.logits, LogitsOf(samples, replay->output(), floats));
    }));
  }
  double sum = 0;
  for (const double divergence : divergences) sum += divergence;
  const double divergence = sum / static_cast<double>(divergences.size());
  if (!std::isfinite(divergence)) {
    return MakeError(
        ErrorCode::kCorrupt, "{}: the output is not a number once tensor {} is quantized",
        model_->file().path(), formats::Quoted(matrices[target.matrices.front()].tensor->name));
  }
  return std::max(divergence, 0.0) / error;
}

}  // namespace kvant::quantize
