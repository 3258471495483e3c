#include "engine/quantize/size_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/aligned_buffer.h"
#include "engine/quantize/typical_sensitivity.h"
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
    KVANT_TRY(ListFormats(file_, request_.measure, matrices_));
    KVANT_TRY(CheckSize());
    SizePlan plan;
    KVANT_ASSIGN(std::optional<SensitivityTest> test, CreateTest(plan.notes));
    KVANT_TRY(MeasureErrors(file_, request_.measure, matrices_));
    std::vector<double> measured;
    if (test.has_value()) {
      KVANT_ASSIGN(measured, test->Measure(matrices_));
      plan.calibration_tokens = test->tokens();
    }
    const std::vector<double> sensitivities = Sensitivities(measured);
    KVANT_ASSIGN(const std::vector<size_t> chosen, Choose(sensitivities));
    NoteFallbacks(plan.notes);
    for (size_t i = 0; i < matrices_.size(); ++i) {
      plan.choice[std::string(matrices_[i].tensor->name)] = matrices_[i].rows[chosen[i]].format;
      plan.matrices.push_back({std::move(matrices_[i]), sensitivities[i], chosen[i]});
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

  // Nothing where typical sensitivities are to do.
  Result<std::optional<SensitivityTest>> CreateTest(std::vector<std::string>& notes) const {
    if (!request_.calibration.has_value()) return std::optional<SensitivityTest>();
    const bool asked = request_.calibrates == SizeRequest::Calibration::kAsked;
    auto test = SensitivityTest::Create(file_, matrices_, *request_.calibration);
    if (!test.ok()) {
      if (asked) return test.error();
      notes.push_back(fmt::format("takes typical sensitivities: {}", test.error().message));
      return std::optional<SensitivityTest>();
    }
    if (!asked && test->macs() > kUnaskedMacs) {
      notes.push_back(
          "takes typical sensitivities, since measuring those of a model of this size takes long: "
          "--calibrate TEXT does it");
      return std::optional<SensitivityTest>();
    }
    return std::optional<SensitivityTest>(std::move(*test));
  }

  void NoteFallbacks(std::vector<std::string>& notes) const {
    const MeasuredMatrix* first = nullptr;
    size_t count = 0;
    for (const MeasuredMatrix& matrix : matrices_) {
      if (!matrix.fallback) continue;
      if (count++ == 0) first = &matrix;
    }
    if (first == nullptr) return;
    const std::string name =
        fmt::format("{} (rows of {} values{})", Quoted(first->tensor->name), first->tensor->dims[0],
                    first->importance.empty() ? ", no importances" : "");
    notes.push_back(
        count == 1 ? fmt::format("none of the types can hold matrix {}: it gets another", name)
                   : fmt::format("none of the types can hold {} matrices, the first of them {}: "
                                 "they get others",
                                 count, name));
  }

  // `measured` is empty without a text.
  std::vector<double> Sensitivities(const std::vector<double>& measured) const {
    const int64_t layers = DescribeModel(file_).layers;
    const OutputMatrix output =
        file_.FindTensor(kOutputName) != nullptr ? OutputMatrix::kOwn : OutputMatrix::kEmbedding;
    std::vector<double> sensitivities;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const double typical = TypicalSensitivity(matrices_[i].tensor->name, layers, output);
      // A text may not reach a matrix, such as one that only drafts use. Indexers choose nothing in
      // texts that are no longer than what they choose.
      constexpr double kLeastPart = 0.05;
      const bool of_indexer = matrices_[i].tensor->name.find(".indexer.") != std::string::npos;
      const double least = of_indexer ? typical : kLeastPart * typical;
      sensitivities.push_back(measured.empty() ? typical : std::max(measured[i], least));
    }
    return sensitivities;
  }

  // The candidates of all matrices. Errors that are not measured count nothing.
  std::vector<std::vector<BudgetCandidate>> Items(const std::vector<double>& sensitivities) const {
    std::vector<std::vector<BudgetCandidate>> items;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      auto& item = items.emplace_back();
      for (const MeasuredMatrix::Row& row : matrices_[i].rows) {
        // With bits per weight, bytes are counted without padding.
        const uint64_t bytes = request_.bits ? row.tensor_bytes : row.bytes;
        item.push_back({bytes, CostOf(sensitivities[i], row.error)});
      }
    }
    return items;
  }

  // The bytes that no choice changes.
  uint64_t BytesAround() const { return request_.bits ? kept_bytes_ : rest_bytes_; }

  // The bytes that matrices may take; below 0 if the rest alone takes more than is wanted.
  double BytesLeft() const {
    const double wanted =
        request_.bits ? *request_.bits * values_ / 8 : static_cast<double>(*request_.file_bytes);
    return wanted - static_cast<double>(BytesAround());
  }

  Status CheckSize() const {
    const uint64_t least = LeastBytes(Items(std::vector<double>(matrices_.size())));
    if (BytesLeft() >= static_cast<double>(least)) return {};
    if (request_.bits) {
      return MakeError(
          ErrorCode::kInvalid,
          "{}: {:.3f} bits per weight cannot be reached: the smallest types take {:.3f}",
          file_.path(), *request_.bits,
          std::ceil(8000 * static_cast<double>(BytesAround() + least) / values_) / 1000);
    }
    return MakeError(ErrorCode::kInvalid,
                     "{}: a file of {} bytes cannot be reached: with the smallest types it has {}",
                     file_.path(), *request_.file_bytes, BytesAround() + least);
  }

  Result<std::vector<size_t>> Choose(const std::vector<double>& sensitivities) const {
    constexpr double kMost = 0x1p62;
    return ChooseWithin(Items(sensitivities), static_cast<uint64_t>(std::min(BytesLeft(), kMost)),
                        request_.on_choosing);
  }

  const GgufFile& file_;
  const PlanOptions& options_;
  const SizeRequest& request_;
  std::vector<MeasuredMatrix> matrices_;
  double values_ = 0;        // of all tensors
  uint64_t kept_bytes_ = 0;  // of tensors that are not free, without padding
  uint64_t rest_bytes_ = 0;  // of the files without the free matrices
};

constexpr std::string_view kBlanks = " \t\r";

std::string_view Trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// A name as it stands in a choice.
std::string WrittenName(std::string_view name) {
  const bool plain =
      !name.empty() && !name.starts_with('#') && !name.starts_with('"') &&
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (plain) return std::string(name);
  std::string text = "\"";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (byte >= ' ' && byte < 0x7f) {
      text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else {
      text += fmt::format("\\x{:02x}", byte);
    }
  }
  return text + '"';
}

// The name that stands there; nothing for quotes that do not close and for escapes that
// WrittenName does not write.
std::optional<std::string> ReadName(std::string_view text) {
  if (!text.starts_with('"')) return std::string(text);
  std::string name;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') return i + 1 == text.size() ? std::optional(name) : std::nullopt;
    if (text[i] != '\\') {
      name += text[i];
      continue;
    }
    const char escape = ++i < text.size() ? text[i] : '\0';
    if (escape == '"' || escape == '\\') {
      name += escape;
    } else if (escape == 'n') {
      name += '\n';
    } else if (escape == 'x' && i + 2 < text.size()) {
      unsigned char byte = 0;
      const char* end = text.data() + i + 3;
      const auto [stop, error] = std::from_chars(text.data() + i + 1, end, byte, 16);
      if (error != std::errc() || stop != end) return std::nullopt;
      name += static_cast<char>(byte);
      i += 2;
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<SizePlan> PlanForSize(const GgufFile& file, const PlanOptions& options,
                             const SizeRequest& request) {
  return SizePlanner(file, options, request).Plan();
}

std::string ChoiceText(const TypeChoice& choice) {
  std::string text;
  for (const auto& [tensor, format] : choice) {
    text += fmt::format("{} {}\n", WrittenName(tensor), format->name);
  }
  return text;
}

Result<TypeChoice> ParseChoice(std::string_view text, const std::string& name) {
  TypeChoice choice;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    const size_t space = line.find_last_of(kBlanks);
    const std::optional<std::string> tensor =
        space == std::string_view::npos ? std::nullopt : ReadName(Trimmed(line.substr(0, space)));
    const quant::FormatTraits* format =
        tensor.has_value() ? quant::FindFormat(line.substr(space + 1)) : nullptr;
    if (format == nullptr) {
      return MakeError(ErrorCode::kInvalid,
                       "{}: line {}: expected the name of a tensor, a space and a type, found {}",
                       name, number, Quoted(line));
    }
    if (!choice.emplace(*tensor, format).second) {
      return MakeError(ErrorCode::kInvalid, "{}: line {}: tensor {} has a type already", name,
                       number, Quoted(*tensor));
    }
  }
  if (choice.empty()) {
    return MakeError(ErrorCode::kInvalid, "{}: expected lines with a tensor and a type, found none",
                     name);
  }
  return choice;
}

}  // namespace kvant::quantize
