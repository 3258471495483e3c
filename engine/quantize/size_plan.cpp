#include "engine/quantize/size_plan.h"

#include <algorithm>
#include <cmath>

#include "base/aligned_buffer.h"
#include "engine/quantize/budget.h"
#include "formats/quoted.h"

namespace kvant::quantize {
namespace {

using formats::GgufFile;
using formats::GgufTensor;
using formats::Quoted;

class SizePlanner {
 public:
  SizePlanner(const GgufFile& file, const PlanOptions& options, const SizeRequest& request)
      : file_(file), options_(options), request_(request) {}

  Result<SizePlan> Plan() {
    KVANT_TRY(FindMatrices());
    std::vector<MeasuredMatrix> matrices = std::move(matrices_);
    KVANT_TRY(MeasureErrors(file_, request_.measure, matrices));
    KVANT_ASSIGN(const std::vector<double> sensitivities, Sensitivities(matrices));
    KVANT_ASSIGN(const std::vector<size_t> chosen, Choose(matrices, sensitivities));
    SizePlan plan;
    for (size_t i = 0; i < matrices.size(); ++i) {
      plan.choice[std::string(matrices[i].tensor->name)] = matrices[i].rows[chosen[i]].format;
      plan.matrices.push_back({std::move(matrices[i]), sensitivities[i], chosen[i]});
    }
    KVANT_ASSIGN(plan.file_bytes, BytesOf(plan.choice));
    return plan;
  }

 private:
  Result<QuantizePlan> PlanOf(const TypeChoice& choice) const {
    PlanOptions options = options_;
    options.recipe = nullptr;
    options.choice = &choice;
    return PlanQuantization(file_, options);
  }

  Result<uint64_t> BytesOf(const TypeChoice& choice) const {
    KVANT_ASSIGN(const QuantizePlan plan, PlanOf(choice));
    return OutputBytes(file_, plan, request_.write);
  }

  // The matrices that are free to choose, and the bytes of all the rest.
  Status FindMatrices() {
    TypeChoice halves;
    const quant::FormatTraits* half = quant::FindFormat("F16");
    for (const GgufTensor& tensor : file_.tensors()) {
      if (IsQuantizable(tensor)) halves[std::string(tensor.name)] = half;
    }
    KVANT_ASSIGN(const QuantizePlan plan, PlanOf(halves));
    KVANT_ASSIGN(rest_bytes_, OutputBytes(file_, plan, request_.write));
    for (const TensorPlan& planned : plan.tensors) {
      const GgufTensor& tensor = *planned.source;
      values_ += static_cast<double>(tensor.n_values());
      if (planned.by_rule || halves.find(tensor.name) == halves.end()) {
        kept_bytes_ += planned.size_bytes();
        continue;
      }
      rest_bytes_ -= RoundUp(planned.size_bytes(), file_.alignment());
      MeasuredMatrix matrix;
      matrix.tensor = &tensor;
      if (options_.importance != nullptr) {
        auto importance = options_.importance->Importance(tensor);
        if (!importance.ok()) {
          return MakeError(importance.error().code, "{}: {}", options_.importance_file,
                           importance.error().message);
        }
        matrix.importance = std::move(*importance);
      }
      matrices_.push_back(std::move(matrix));
    }
    if (!matrices_.empty()) return {};
    return MakeError(ErrorCode::kInvalid,
                     "{}: no matrix is left whose type could be chosen: expected some that no "
                     "option decides on",
                     file_.path());
  }

  Result<std::vector<double>> Sensitivities(const std::vector<MeasuredMatrix>& matrices) const {
    std::vector<double> measured;
    if (request_.calibration.has_value()) {
      KVANT_ASSIGN(measured, MeasureSensitivities(file_.path(), matrices, *request_.calibration));
    }
    const int64_t layers = DescribeModel(file_).layers;
    const OutputMatrix output =
        file_.FindTensor(kOutputName) != nullptr ? OutputMatrix::kOwn : OutputMatrix::kEmbedding;
    std::vector<double> sensitivities;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const double typical = TypicalSensitivity(matrices[i].tensor->name, layers, output);
      // A text may not reach a matrix, such as one that only drafts use.
      constexpr double kLeastPart = 0.05;
      sensitivities.push_back(measured.empty() ? typical
                                               : std::max(measured[i], kLeastPart * typical));
    }
    return sensitivities;
  }

  Result<std::vector<size_t>> Choose(const std::vector<MeasuredMatrix>& matrices,
                                     const std::vector<double>& sensitivities) const {
    std::vector<std::vector<BudgetCandidate>> items;
    for (size_t i = 0; i < matrices.size(); ++i) {
      auto& item = items.emplace_back();
      for (const MeasuredMatrix::Row& row : matrices[i].rows) {
        // With bits per weight, bytes are those of the tensors without padding.
        const uint64_t bytes = request_.bits ? row.tensor_bytes : row.bytes;
        item.push_back({bytes, CostOf(sensitivities[i], row.error)});
      }
    }
    const uint64_t around = request_.bits ? kept_bytes_ : rest_bytes_;
    const double wanted =
        request_.bits ? *request_.bits * values_ / 8 : static_cast<double>(*request_.file_bytes);
    const double left = wanted - static_cast<double>(around);
    std::optional<std::vector<size_t>> chosen;
    constexpr double kMost = 0x1p62;
    if (left >= 0) chosen = ChooseWithin(items, static_cast<uint64_t>(std::min(left, kMost)));
    if (chosen.has_value()) return std::move(*chosen);
    const uint64_t least = around + LeastBytes(items);
    if (request_.bits) {
      return MakeError(ErrorCode::kInvalid,
                       "{}: {:.3f} bits per weight cannot be reached: the smallest types take "
                       "{:.3f}",
                       file_.path(), *request_.bits,
                       std::ceil(8000 * static_cast<double>(least) / values_) / 1000);
    }
    return MakeError(ErrorCode::kInvalid,
                     "{}: a file of {} bytes cannot be reached: with the smallest types it has {}",
                     file_.path(), *request_.file_bytes, least);
  }

  const GgufFile& file_;
  const PlanOptions& options_;
  const SizeRequest& request_;
  std::vector<MeasuredMatrix> matrices_;
  double values_ = 0;        // of all tensors
  uint64_t kept_bytes_ = 0;  // of tensors that are not free, without padding
  uint64_t rest_bytes_ = 0;  // of the files without the free matrices
};

}  // namespace

Result<SizePlan> PlanForSize(const GgufFile& file, const PlanOptions& options,
                             const SizeRequest& request) {
  return SizePlanner(file, options, request).Plan();
}

std::string ChoiceText(const TypeChoice& choice) {
  std::string text;
  for (const auto& [tensor, format] : choice) text += fmt::format("{} {}\n", tensor, format->name);
  return text;
}

Result<TypeChoice> ParseChoice(std::string_view text, const std::string& name) {
  TypeChoice choice;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    const size_t space = line.rfind(' ');
    const quant::FormatTraits* format =
        space == std::string_view::npos ? nullptr : quant::FindFormat(line.substr(space + 1));
    if (format == nullptr) {
      return MakeError(ErrorCode::kInvalid,
                       "{}: line {}: expected the name of a tensor, a space and a type, found {}",
                       name, number, Quoted(line));
    }
    if (!choice.emplace(line.substr(0, space), format).second) {
      return MakeError(ErrorCode::kInvalid, "{}: line {}: tensor {} has a type already", name,
                       number, Quoted(line.substr(0, space)));
    }
  }
  if (choice.empty()) {
    return MakeError(ErrorCode::kInvalid, "{}: expected lines with a tensor and a type, found none",
                     name);
  }
  return choice;
}

}  // namespace kvant::quantize
