#include "tools/quantize_size.h"

#include <algorithm>
#include <filesystem>

#include "base/output_file.h"
#include "engine/quantize/recipe.h"
#include "engine/quantize/type_speed.h"
#include "formats/gguf_resplit.h"
#include "tools/common_options.h"
#include "tools/evaluation_options.h"
#include "tools/model_facts.h"

namespace kvant::tools {
namespace {

using quant::FormatTraits;
using quantize::SizedMatrix;
using quantize::SizePlan;
using quantize::TypeChoice;

// The ids of ik_llama.cpp's types begin here; programs made of llama.cpp cannot read them.
constexpr uint32_t kFirstTypeOfIk = 133;

void ShowSizePlan(const SizePlan& plan, ResultStream& out) {
  size_t widest = 6;
  for (const SizedMatrix& matrix : plan.matrices) {
    widest = std::max(widest, Visible(matrix.measured.tensor->name).size());
  }
  double total = 0;
  for (const SizedMatrix& matrix : plan.matrices) total += matrix.cost();
  out.Write(fmt::format("{:<{}}  {:<7}  {:>6}  {:>9}  {:>11}  {:>6}\n", "matrix", widest, "type",
                        "bits", "error", "sensitivity", "share"));
  for (const SizedMatrix& matrix : plan.matrices) {
    const auto& row = matrix.row();
    out.Write(fmt::format("{:<{}}  {:<7}  {:>6.3f}  {:>9.2e}  {:>11.4g}  {:>5.1f}%\n",
                          Visible(matrix.measured.tensor->name), widest, row.format->name,
                          8 * static_cast<double>(row.tensor_bytes) /
                              static_cast<double>(matrix.measured.tensor->n_values()),
                          row.error, matrix.sensitivity,
                          total > 0 ? 100 * matrix.cost() / total : 0.0));
  }
  out.Write(fmt::format("error {:.4g}, file of {} bytes\n", total, plan.file_bytes));
}

Status SaveText(const std::string& path, const std::string& text) {
  KVANT_ASSIGN(OutputFile file, OutputFile::Create(path));
  KVANT_TRY(file.Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

}  // namespace

void SizeGroup::Add(OptionList& list) {
  list.Group("Types by size, instead of TYPE");
  const auto take_size = [this](const std::string& text) {
    return TakeSize(text, "4.5GiB or 800M", &size);
  };
  list.Checked("--size", take_size, "SIZE",
               "The types that leave the least error in a file of at most so many bytes");
  list.Real("--bits", &bits, {0.5f, 32}, "The same with at most so many bits per weight", "");
  list.Text("--types", &types, "LIST",
            "Types to choose from, with commas: Q4_K,Q6_K; standard: those that llama.cpp reads "
            "(default); all: those of ik_llama.cpp, too");
  list.Flag("--fastest", &fastest,
            "Leave out types that this machine computes more slowly than larger ones");
  list.Text("--calibrate", &calibrate, "TEXT",
            "Run a text to measure how much the output suffers from each matrix");
  list.Integer("--calibrate-tokens", &calibrate_tokens, {16, 1 << 20},
               "Tokens of the text, at most");
  list.Text("--save-choice", &save_choice, "FILE",
            "Write what was chosen, a line for each matrix; with --dry-run, too");
  list.Text("--choice", &choice, "FILE", "Take the types from such a file, to repeat a choice");
}

Status SizeGroup::Check() const {
  const int ways = int{size > 0} + int{bits.has_value()} + int{choice.has_value()};
  if (ways > 1) {
    return MakeError(ErrorCode::kInvalid, "--size, --bits and --choice exclude each other");
  }
  const bool measures = size > 0 || bits.has_value();
  const std::pair<bool, const char*> kNeedSize[] = {{types.has_value(), "--types"},
                                                    {fastest, "--fastest"},
                                                    {calibrate.has_value(), "--calibrate"},
                                                    {save_choice.has_value(), "--save-choice"}};
  for (const auto& [given, name] : kNeedSize) {
    if (given && !measures) {
      return MakeError(ErrorCode::kInvalid, "{} needs --size or --bits", name);
    }
  }
  return {};
}

Result<std::vector<const FormatTraits*>> SizeGroup::Formats(
    const quantize::PlanOptions& plan_options, int threads) const {
  std::vector<const FormatTraits*> formats;
  const std::string list = types.value_or("standard");
  const bool all = list == "all";
  if (all || list == "standard") {
    for (const FormatTraits& format : quant::AllFormats()) {
      if (all || static_cast<uint32_t>(format.type) < kFirstTypeOfIk) formats.push_back(&format);
    }
  } else {
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      const std::string name = list.substr(begin, end - begin);
      const FormatTraits* format = quant::FindFormat(name);
      if (format == nullptr) {
        return MakeError(
            ErrorCode::kInvalid,
            "--types: expected standard, all or names of types with commas, found '{}'",
            Visible(name));
      }
      formats.push_back(format);
      begin = end + 1;
    }
  }
  if (plan_options.importance == nullptr) {
    std::erase_if(formats, [](const FormatTraits* format) { return format->needs_importance; });
  }
  if (formats.empty()) {
    return MakeError(ErrorCode::kInvalid, "--types: {} needs an importance matrix (--imatrix)",
                     list);
  }
  if (!fastest) return formats;
  KVANT_ASSIGN(const std::vector<double> seconds, quantize::MeasureSpeeds(formats, threads));
  std::vector<const FormatTraits*> kept = quantize::FastestFormats(formats, seconds);
  std::string slow;
  for (size_t i = 0; i < formats.size(); ++i) {
    if (std::find(kept.begin(), kept.end(), formats[i]) != kept.end()) continue;
    slow += fmt::format("{}{}", slow.empty() ? "" : ", ", formats[i]->name);
  }
  if (!slow.empty()) Note(fmt::format("slower here than larger types, left out: {}", slow));
  return kept;
}

Result<SizePlan> SizeGroup::Measure(const formats::GgufFile& file,
                                    const quantize::PlanOptions& plan_options,
                                    const quantize::WriteOptions& write) const {
  quantize::SizeRequest request;
  if (size > 0) request.file_bytes = size;
  if (bits) request.bits = *bits;
  request.write = write;
  KVANT_ASSIGN(request.measure.formats, Formats(plan_options, write.threads));
  request.measure.threads = write.threads;
  request.measure.non_finite = write.non_finite;
  StatusLine progress(StatusUse::kShown);
  const char* what = "errors";
  request.measure.on_progress = [&](std::string_view tensor, size_t done, size_t count) -> Status {
    progress.Set(
        fmt::format("measuring {}: matrix {} of {}, {}", what, done + 1, count, Visible(tensor)));
    if (CancelFlag().load()) return MakeError(ErrorCode::kCancelled, "interrupted");
    return {};
  };
  if (calibrate) {
    quantize::SensitivityOptions& calibration = request.calibration.emplace();
    KVANT_ASSIGN(calibration.text, ReadText(*calibrate));
    calibration.tokens_max = calibrate_tokens;
    calibration.threads = write.threads;
    calibration.on_progress = [&](std::string_view tensor, size_t done, size_t count) {
      what = "sensitivities";
      return request.measure.on_progress(tensor, done, count);
    };
  }
  auto plan = quantize::PlanForSize(file, plan_options, request);
  progress.Clear();
  return plan;
}

// Neither the model nor the choice may be written over another file of the command.
Status SizeGroup::CheckOutputs(const formats::GgufFile& file,
                               const quantize::PlanOptions& plan_options,
                               const std::string& output) const {
  KVANT_TRY(formats::CheckOutputIsNoInput(file, output));
  if (!save_choice) return {};
  KVANT_TRY(formats::CheckOutputIsNoInput(file, *save_choice));
  for (const std::string& other : {output, plan_options.importance_file, calibrate.value_or("")}) {
    std::error_code error;
    if (other != *save_choice && !std::filesystem::equivalent(other, *save_choice, error)) continue;
    return MakeError(ErrorCode::kInvalid,
                     "--save-choice: {} is another file of this command: expected one of its own",
                     Visible(*save_choice));
  }
  return {};
}

Result<TypeChoice> SizeGroup::Choose(const formats::GgufFile& file,
                                     const quantize::PlanOptions& plan_options,
                                     const quantize::WriteOptions& write, const std::string& output,
                                     ResultStream* out) const {
  KVANT_TRY(CheckOutputs(file, plan_options, output));
  if (choice) {
    KVANT_ASSIGN(const std::string text, ReadText(*choice));
    KVANT_ASSIGN(TypeChoice read, quantize::ParseChoice(text, *choice));
    for (const auto& [tensor, format] : read) {
      const formats::GgufTensor* found = file.FindTensor(tensor);
      if (found != nullptr && quantize::IsQuantizable(*found)) continue;
      return MakeError(ErrorCode::kInvalid, "{}: {} has no matrix '{}' that can be quantized",
                       *choice, file.path(), Visible(tensor));
    }
    size_t absent = 0;
    for (const formats::GgufTensor& tensor : file.tensors()) {
      absent += quantize::IsQuantizable(tensor) && read.find(tensor.name) == read.end() ? 1 : 0;
    }
    if (absent > 0) {
      Note(
          fmt::format("{}: no lines for {} matrices, which keep their types unless an option says "
                      "otherwise",
                      *choice, absent));
    }
    return read;
  }
  KVANT_ASSIGN(SizePlan plan, Measure(file, plan_options, write));
  if (save_choice) KVANT_TRY(SaveText(*save_choice, quantize::ChoiceText(plan.choice)));
  if (out != nullptr) ShowSizePlan(plan, *out);
  return std::move(plan.choice);
}

}  // namespace kvant::tools
