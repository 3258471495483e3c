#include "tools/model_files/quantize_size.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/counted.h"
#include "base/output_file.h"
#include "engine/quantize/calibration_text.h"
#include "engine/quantize/recipe.h"
#include "engine/quantize/type_speed.h"
#include "formats/gguf_resplit.h"
#include "tools/options/evaluation_options.h"
#include "tools/options/option_values.h"

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
  const bool measured = plan.calibration_tokens > 0;
  double total = 0;
  for (const SizedMatrix& matrix : plan.matrices) total += matrix.cost();
  out.Write(fmt::format("{:<{}}  {:<7}  {:>6}  {:>9}  {:>11}  {:>6}\n", "matrix", widest, "type",
                        "bits", "error", measured ? "sensitivity" : "weight", "share"));
  for (const SizedMatrix& matrix : plan.matrices) {
    const auto& row = matrix.row();
    out.Write(fmt::format("{:<{}}  {:<7}  {:>6.3f}  {:>9.2e}  {:>11.4g}  {:>5.1f}%\n",
                          Visible(matrix.measured.tensor->name), widest, row.format->name,
                          8 * static_cast<double>(row.tensor_bytes) /
                              static_cast<double>(matrix.measured.tensor->n_values()),
                          row.error, matrix.sensitivity,
                          total > 0 ? 100 * matrix.cost() / total : 0.0));
  }
  // Typical sensitivities tell which choice is better, and not how good it is.
  const std::string divergence = measured
                                     ? fmt::format("divergence about {:.4g} nats, by {} tokens; ",
                                                   total, plan.calibration_tokens)
                                     : "";
  out.Write(fmt::format("{}file of {} bytes\n", divergence, plan.file_bytes));
}

// Types that llama.cpp reads.
std::vector<const FormatTraits*> StandardFormats() {
  std::vector<const FormatTraits*> formats;
  for (const FormatTraits& format : quant::AllFormats()) {
    if (static_cast<uint32_t>(format.type) < kFirstTypeOfIk) formats.push_back(&format);
  }
  return formats;
}

std::vector<const FormatTraits*> WithoutImportance(std::vector<const FormatTraits*> formats) {
  std::erase_if(formats, [](const FormatTraits* format) { return format->needs_importance; });
  return formats;
}

// Types of fewer bits lose much without importances, and more than a sum of errors foresees.
constexpr double kLeastBitsWithoutImportance = 3;

std::vector<const FormatTraits*> WithoutFewBits(std::vector<const FormatTraits*> formats) {
  std::erase_if(formats, [](const FormatTraits* format) {
    return format->bits_per_value() < kLeastBitsWithoutImportance;
  });
  return formats;
}

// "Q4_0, Q4_K": the first that are not among the second.
std::string NamesOfMissing(const std::vector<const FormatTraits*>& formats,
                           const std::vector<const FormatTraits*>& kept) {
  std::string names;
  for (const FormatTraits* format : formats) {
    if (std::find(kept.begin(), kept.end(), format) != kept.end()) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", format->name);
  }
  return names;
}

bool IsSameFile(const std::string& left, const std::string& right) {
  std::error_code error;
  return left == right || std::filesystem::equivalent(left, right, error);
}

Status NotInterrupted() {
  if (CancelFlag().load()) return MakeError(ErrorCode::kCancelled, "interrupted");
  return {};
}

}  // namespace

void SizeGroup::Add(OptionList& list) {
  list.Group("Types by size, instead of TYPE");
  const auto take_size = [this](const std::string& text) {
    return TakeSize(text, "4.5GiB or 800M", &size);
  };
  list.Checked(
      "--size", take_size, "SIZE",
      "Choose the types with the least error that make a file of at most this size: 4.5GiB");
  list.Real("--bits", &bits, {0.5f, 32},
            "Choose the types with the least error that take at most N bits per weight", "");
  list.Text("--types", &types, "LIST",
            "Types to choose from, with commas, Q4_K,Q6_K; or standard: the types that llama.cpp "
            "reads (default); or all: the types of ik_llama.cpp, too. Without --imatrix both lack "
            "types below 3 bits");
  list.Flag("--fastest", &fastest,
            "Leave out types that are slower on this machine than larger types");
  list.Text("--calibrate", &calibrate, "TEXT",
            "Run the model on this text, in place of a built-in one, to measure how much errors of "
            "each matrix change the output");
  list.Integer("--calibrate-tokens", &calibrate_tokens, {16, 1 << 20},
               "Most tokens of the text to use", "what takes about a minute on two cores");
  list.Flag("--no-calibrate", &no_calibrate,
            "Measure nothing: take a table of what errors of matrices typically do");
  model.AddIgnoredKeys(list);
  list.Text(
      "--save-choice", &save_choice, "FILE",
      "Write the chosen types to this file, a line for each matrix; works with --dry-run, too");
  list.Text("--choice", &choice, "FILE",
            "Take the types from a file that --save-choice has written");
}

Status SizeGroup::Check(const OptionList& list) const {
  const int ways = int{size > 0} + int{bits.has_value()} + int{choice.has_value()};
  if (ways > 1) {
    return MakeError(ErrorCode::kInvalid, "--size, --bits and --choice exclude each other");
  }
  if (size == 0 && !bits.has_value()) {
    KVANT_TRY(list.Need({"--types", "--fastest", "--calibrate", "--calibrate-tokens",
                         "--no-calibrate", "--ignore-keys", "--save-choice"},
                        "--size or --bits"));
  }
  if (no_calibrate) {
    KVANT_TRY(
        list.Exclude({"--calibrate", "--calibrate-tokens", "--ignore-keys"}, "--no-calibrate"));
  }
  return ways > 0 ? list.Exclude({"--pure"}, "types by size") : Status();
}

Result<std::vector<const FormatTraits*>> SizeGroup::Formats(
    const quantize::PlanOptions& plan_options) const {
  const std::string list = types.value_or("standard");
  const bool all = list == "all";
  const bool named = !all && list != "standard";
  std::vector<const FormatTraits*> formats;
  if (all) {
    for (const FormatTraits& format : quant::AllFormats()) formats.push_back(&format);
  } else if (!named) {
    formats = StandardFormats();
  }
  for (size_t begin = 0; named && begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    const FormatTraits* format = quant::FindFormat(name);
    if (format == nullptr) {
      return MakeError(ErrorCode::kInvalid,
                       "--types: expected standard, all or names of types with commas, found '{}'",
                       Visible(name));
    }
    formats.push_back(format);
    begin = end + 1;
  }
  if (plan_options.importance != nullptr) return formats;
  std::vector<const FormatTraits*> kept = WithoutImportance(formats);
  if (!named) return WithoutFewBits(std::move(kept));
  if (kept.empty()) {
    return MakeError(ErrorCode::kInvalid, "--types: {} {} an importance matrix (--imatrix)", list,
                     formats.size() == 1 ? "needs" : "need");
  }
  const std::string dropped = NamesOfMissing(formats, kept);
  if (!dropped.empty()) {
    Note(fmt::format("--types: without an importance matrix (--imatrix), left out: {}", dropped));
  }
  return kept;
}

Status SizeGroup::DropSlow(int threads, std::vector<const FormatTraits*>& formats) const {
  StatusLine progress(StatusUse::kShown);
  KVANT_ASSIGN(const std::vector<double> seconds,
               quantize::MeasureSpeeds(formats, threads, [&](const FormatTraits& format) {
                 progress.Set(fmt::format("timing types: {}", format.name));
                 return NotInterrupted();
               }));
  progress.Clear();
  std::vector<const FormatTraits*> kept = quantize::FastestFormats(formats, seconds);
  const std::string slow = NamesOfMissing(formats, kept);
  if (!slow.empty()) Note(fmt::format("slower here than larger types, left out: {}", slow));
  formats = std::move(kept);
  return {};
}

Result<SizePlan> SizeGroup::Measure(const formats::GgufFile& file,
                                    const quantize::PlanOptions& plan_options,
                                    const quantize::WriteOptions& write) const {
  quantize::SizeRequest request;
  if (size > 0) request.file_bytes = size;
  if (bits) request.bits = *bits;
  request.write = write;
  StatusLine progress(StatusUse::kShown);
  request.measure.threads = write.threads;
  request.measure.non_finite = write.non_finite;
  request.measure.on_progress = [&](std::string_view tensor, size_t done, size_t count) {
    progress.Set(
        fmt::format("measuring errors: matrix {} of {}, {}", done + 1, count, Visible(tensor)));
    return NotInterrupted();
  };
  request.measure.fallbacks = WithoutFewBits(WithoutImportance(StandardFormats()));
  request.on_choosing = [&](double done) {
    progress.Set(fmt::format("choosing types: {:.0f} %", 100 * done));
    return NotInterrupted();
  };
  KVANT_ASSIGN(request.measure.formats, Formats(plan_options));
  if (!no_calibrate) KVANT_TRY(Calibrate(progress, request));
  if (fastest) KVANT_TRY(DropSlow(write.threads, request.measure.formats));
  auto plan = quantize::PlanForSize(file, plan_options, request);
  progress.Clear();
  return plan;
}

Status SizeGroup::Calibrate(StatusLine& progress, quantize::SizeRequest& request) const {
  quantize::SensitivityOptions& calibration = request.calibration.emplace();
  const bool asked = calibrate.has_value() || calibrate_tokens.has_value();
  if (!asked) request.calibrates = quantize::SizeRequest::Calibration::kUnasked;
  calibration.text = quantize::kCalibrationText;
  if (calibrate.has_value()) {
    KVANT_ASSIGN(calibration.text, ReadText(*calibrate));
  }
  calibration.tokens_max = calibrate_tokens;
  calibration.threads = request.write.threads;
  calibration.ignored_keys = model.Options().ignored_keys;
  calibration.cancel = &CancelFlag();
  std::optional<std::chrono::steady_clock::time_point> begun;
  calibration.on_progress = [&progress, begun](std::string_view tensor, double done) mutable {
    if (!begun.has_value()) begun = std::chrono::steady_clock::now();
    const double seconds = SecondsSince(*begun);
    // The first percent says nothing of the rest yet.
    constexpr double kLeastPart = 0.01;
    const std::string left =
        done < kLeastPart ? "" : fmt::format(", {:.0f} s left", seconds * (1 - done) / done);
    progress.Set(
        fmt::format("measuring sensitivities: {:.0f} %{}, {}", 100 * done, left, Visible(tensor)));
    return NotInterrupted();
  };
  return {};
}

Status SizeGroup::CheckOutputs(const formats::GgufFile& file, const std::string& output,
                               const std::optional<std::string>& imatrix) const {
  KVANT_TRY(formats::CheckOutputIsNoInput(file, output));
  for (const auto& read : {imatrix, calibrate, choice}) {
    if (!read || !IsSameFile(*read, output)) continue;
    return MakeError(ErrorCode::kInvalid, "{}: the output is also an input", Visible(output));
  }
  if (!save_choice) return {};
  KVANT_TRY(formats::CheckOutputIsNoInput(file, *save_choice));
  for (const auto& other : {std::optional(output), imatrix, calibrate}) {
    if (!other || !IsSameFile(*other, *save_choice)) continue;
    return MakeError(ErrorCode::kInvalid,
                     "--save-choice: {} is another file of this command: expected one of its own",
                     Visible(*save_choice));
  }
  return {};
}

Result<TypeChoice> SizeGroup::ReadChoice(const formats::GgufFile& file) const {
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
    Note(fmt::format("{}: no lines for {}, so only an option can change the type", *choice,
                     Counted(absent, "matrix", "matrices")));
  }
  return read;
}

Result<TypeChoice> SizeGroup::Choose(const formats::GgufFile& file,
                                     const quantize::PlanOptions& plan_options,
                                     const quantize::WriteOptions& write, ResultStream& out) const {
  if (choice) return ReadChoice(file);
  // Created before the work, which takes minutes.
  OutputFile saved;
  if (save_choice) {
    KVANT_ASSIGN(saved, OutputFile::Create(*save_choice));
  }
  KVANT_ASSIGN(SizePlan plan, Measure(file, plan_options, write));
  for (const std::string& note : plan.notes) Note(note);
  if (save_choice) {
    const std::string text = quantize::ChoiceText(plan.choice);
    KVANT_TRY(saved.Write(std::as_bytes(std::span(text))));
    KVANT_TRY(saved.Commit());
  }
  ShowSizePlan(plan, out);
  return std::move(plan.choice);
}

}  // namespace kvant::tools
