// kvant quantize: a model in fewer bits.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <map>
#include <utility>

#include "base/counted.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/limits.h"
#include "engine/quantize/plan.h"
#include "engine/quantize/quantize.h"
#include "formats/gguf.h"
#include "formats/imatrix.h"
#include "tools/commands.h"
#include "tools/model_files/quantize_size.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/model_facts.h"
#include "tools/options/model_names.h"
#include "tools/options/nearest_word.h"
#include "tools/options/stopwatch.h"
#include "tools/terminal/console.h"
#include "tools/terminal/transfer_progress.h"

namespace kvant::tools {
namespace {

using quantize::Recipe;

// The recipes, one a line, behind the description.
const char* QuantizeDescription() {
  static const std::string text = [] {
    std::string lines =
        "Quantizes the matrices of a GGUF model. TYPE is the name of a mix (Q4_K_M), which gives\n"
        "each tensor the format that llama-quantize gives it, or COPY, which changes metadata "
        "only.\n"
        "\nTypes:\n";
    for (const Recipe& recipe : quantize::AllRecipes()) {
      lines += fmt::format("  {:<10}{}\n", recipe.name, recipe.summary);
    }
    lines +=
        "\n"
        "With --size or --bits each matrix gets a type of its own. The table shows:\n"
        "  bits         bits per weight, scales included\n"
        "  error        the squared error as a share of the matrix's sum of squares, both\n"
        "               weighted by importance; 0.01 is 1 %\n"
        "  sensitivity  divergence of the output, in nats, per unit of a small error, measured\n"
        "  weight       in its place with --no-calibrate: typical for the role of the matrix,\n"
        "               good for comparing matrices only\n"
        "  share        the matrix's part of the sum over all; measured ones add up to about\n"
        "               the mean divergence of the output\n";
    lines.pop_back();
    return lines;
  }();
  return text.c_str();
}

constexpr const char* kQuantizeExamples =
    "  kvant quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M\n"
    "  kvant quantize model-f16.gguf model-iq2_m.gguf IQ2_M --imatrix model.imatrix\n"
    "  kvant quantize model-f16.gguf out.gguf Q4_K_M --tensor 'ffn_down=Q6_K' --dry-run\n"
    "  kvant quantize model-f16.gguf out.gguf --size 4.5GiB --imatrix model.imatrix\n";

struct QuantizeOptions {
  std::optional<std::string> imatrix;
  std::vector<std::string> tensors;
  std::vector<std::string> overrides;
  std::optional<std::string> output_type;
  std::optional<std::string> embedding_type;
  bool leave_output = false;
  bool pure = false;
  bool keep_split = false;
  bool requantize = false;
  bool allow_nonfinite = false;
  bool dry_run = false;
  SizeGroup by_size;
  SessionGroup session;

  void Add(OptionList& list) {
    list.Group("Quantization");
    list.Text("--imatrix", &imatrix, "FILE", "Importance matrix, as `kvant imatrix` makes it");
    list.Texts("--tensor,--tensor-type", &tensors, "REGEX=TYPE",
               "Format of the matrices whose names match; the first that matches wins");
    list.Text("--output-type,--output-tensor-type", &output_type, "TYPE",
              "Format of output.weight");
    list.Text("--embedding-type,--token-embedding-type", &embedding_type, "TYPE",
              "Format of token_embd.weight");
    list.Flag("--leave-output,--leave-output-tensor", &leave_output, "Keep output.weight as it is");
    list.Flag("--pure", &pure, "Give all matrices one format instead of a mix");
    list.Flag("--requantize,--allow-requantize", &requantize,
              "Accept matrices that are quantized already; quality suffers");
    list.Flag("--allow-nonfinite", &allow_nonfinite, "Accept weights that are NaN or infinite");
    list.Flag("--keep-split", &keep_split,
              "Write shards like those of the input; OUT is their prefix");
    list.Texts("--override-kv", &overrides, "KEY=TYPE:VALUE",
               "Set a metadata entry; TYPE is int, float, bool or str");
    list.Flag("--dry-run", &dry_run, "Show the type that each tensor would get, and write nothing");
    session.AddThreads(list);
    by_size.Add(list);
  }
};

Result<const quant::FormatTraits*> ParseFormat(std::string_view option, std::string_view name) {
  if (const auto* format = quant::FindFormat(name)) return format;
  std::string known;
  for (const auto& format : quant::AllFormats()) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", format.name);
  }
  return MakeError(ErrorCode::kInvalid, "{}: unknown tensor type '{}', expected one of {}", option,
                   Visible(name), known);
}

Result<quantize::TensorRule> ParseTensorRule(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return MakeError(ErrorCode::kInvalid, "--tensor: expected REGEX=TYPE, found '{}'",
                     Visible(text));
  }
  KVANT_ASSIGN(const auto* format, ParseFormat("--tensor", text.substr(equals + 1)));
  return quantize::TensorRule{text.substr(0, equals), format};
}

template <class T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && stop == text.data() + text.size();
}

Result<quantize::MetadataChange> ParseOverride(const std::string& text) {
  const auto wrong = [&] {
    return MakeError(
        ErrorCode::kInvalid,
        "--override-kv: expected KEY=int:N, KEY=float:X, KEY=bool:true or KEY=str:TEXT, "
        "found '{}'",
        Visible(text));
  };
  const size_t equals = text.find('=');
  const size_t colon = text.find(':', equals == std::string::npos ? 0 : equals);
  if (equals == std::string::npos || equals == 0 || colon == std::string::npos) return wrong();
  quantize::MetadataChange change{text.substr(0, equals), {}};
  const std::string type = text.substr(equals + 1, colon - equals - 1);
  const std::string value = text.substr(colon + 1);
  int64_t integer = 0;
  double number = 0;
  if (type == "int" && ParseNumber(value, &integer)) {
    change.value = integer;
  } else if (type == "float" && ParseNumber(value, &number)) {
    change.value = number;
  } else if (type == "bool" && (value == "true" || value == "false")) {
    change.value = value == "true";
  } else if (type == "str") {
    change.value = value;
  } else {
    return wrong();
  }
  return change;
}

Result<const Recipe*> ParseType(const std::string& name) {
  if (name == "COPY" || name == "copy") return static_cast<const Recipe*>(nullptr);
  if (const Recipe* recipe = quantize::FindRecipe(name)) return recipe;
  // llama-quantize's numbers.
  uint32_t number = 0;
  if (ParseNumber(name, &number)) {
    for (const Recipe& recipe : quantize::AllRecipes()) {
      if (recipe.file_type == number) return &recipe;
    }
  }
  std::vector<std::string> names{"COPY"};
  for (const Recipe& recipe : quantize::AllRecipes()) names.emplace_back(recipe.name);
  const std::string near = Nearest(name, names);
  return MakeError(ErrorCode::kInvalid, "unknown type '{}'{}; `kvant quantize --help` lists them",
                   Visible(name), near.empty() ? "" : fmt::format(", did you mean {}?", near));
}

// `imatrix` outlives the result.
Result<quantize::PlanOptions> PlanOptionsOf(const QuantizeOptions& options, const std::string& type,
                                            formats::Imatrix& imatrix) {
  quantize::PlanOptions plan;
  if (!type.empty()) {
    KVANT_ASSIGN(plan.recipe, ParseType(type));
  }
  plan.pure = options.pure;
  plan.leave_output = options.leave_output;
  if (options.requantize) plan.re_quantizing = quantize::ReQuantizing::kAllowed;
  for (const std::string& text : options.tensors) {
    KVANT_ASSIGN(quantize::TensorRule rule, ParseTensorRule(text));
    plan.tensor_rules.push_back(std::move(rule));
  }
  for (const std::string& text : options.overrides) {
    KVANT_ASSIGN(quantize::MetadataChange change, ParseOverride(text));
    plan.metadata.push_back(std::move(change));
  }
  if (options.output_type) {
    KVANT_ASSIGN(plan.output_format, ParseFormat("--output-type", *options.output_type));
  }
  if (options.embedding_type) {
    KVANT_ASSIGN(plan.embedding_format, ParseFormat("--embedding-type", *options.embedding_type));
  }
  if (options.imatrix) {
    KVANT_ASSIGN(imatrix, formats::ReadImatrix(*options.imatrix));
    plan.importance = &imatrix;
    plan.importance_file = *options.imatrix;
  }
  return plan;
}

std::string ShapeText(const formats::GgufTensor& tensor) {
  std::string text;
  for (int d = 0; d < tensor.n_dims; ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : " x ", tensor.dims[d]);
  }
  return text;
}

void ShowPlan(const quantize::QuantizePlan& plan, ResultStream& out) {
  size_t widest = 0;
  for (const auto& planned : plan.tensors) {
    widest = std::max(widest, Visible(planned.source->name).size());
  }
  for (const auto& planned : plan.tensors) {
    const auto& tensor = *planned.source;
    const char* change = planned.copied()             ? "  kept"
                         : planned.importance.empty() ? ""
                                                      : "  weighed";
    out.Write(fmt::format("{:<{}}  {:>16}  {:>7} -> {:<7}  {:>10} -> {:>10}{}\n",
                          Visible(tensor.name), widest, ShapeText(tensor), tensor.format->name,
                          planned.format->name, SizeText(tensor.size_bytes),
                          SizeText(planned.size_bytes()), change));
  }
}

// " (rows that do not fit: 180 IQ4_NL for Q2_K, 30 Q5_0 for Q4_K)", "" where all rows fit.
std::string FallbackText(const quantize::QuantizePlan& plan) {
  std::map<std::pair<std::string, std::string>, size_t> counts;
  for (const auto& planned : plan.tensors) {
    if (planned.wanted != nullptr) ++counts[{planned.wanted, planned.format->name}];
  }
  std::string text;
  for (const auto& [types, count] : counts) {
    text +=
        fmt::format("{}{} {} for {}", text.empty() ? "" : ", ", count, types.second, types.first);
  }
  return text.empty() ? "" : fmt::format(" (rows that do not fit: {})", text);
}

std::string Total(const formats::GgufFile& file, const quantize::QuantizePlan& plan) {
  uint64_t before = 0;
  for (const auto& tensor : file.tensors()) before += tensor.size_bytes;
  return fmt::format("{}, {} -> {}, {:.2f} bits per weight{}",
                     Counted(plan.tensors.size(), "tensor"), SizeText(before),
                     SizeText(plan.size_bytes()), plan.bits_per_weight(), FallbackText(plan));
}

void NoteUnpacked(const formats::UnpackedTensors& unpacked) {
  if (unpacked.tensors == 0) return;
  Note(fmt::format("rows that were interleaved ({}) become plain: those of {}", unpacked.types,
                   Counted(unpacked.tensors, "tensor")));
}

// kInvalid for options that contradict each other, and for options that would have no effect.
Status CheckOptions(const QuantizeOptions& options, const std::string& type,
                    const OptionList& list) {
  KVANT_TRY(options.by_size.Check(list));
  if (type == "COPY" || type == "copy") KVANT_TRY(list.Exclude({"--pure"}, "COPY"));
  if (options.leave_output) return list.Exclude({"--output-type"}, "--leave-output");
  return {};
}

Status Quantize(const QuantizeOptions& options, const std::vector<std::string>& arguments,
                ResultStream& out) {
  const auto start = std::chrono::steady_clock::now();
  formats::Imatrix imatrix;
  const std::string type = arguments.size() > 2 ? arguments[2] : "";
  KVANT_ASSIGN(auto plan_options, PlanOptionsOf(options, type, imatrix));
  KVANT_ASSIGN(const std::string path, FindModel(arguments[0]));
  KVANT_ASSIGN(const auto file, formats::GgufFile::Open(path));
  NoteUnpacked(file.unpacked());
  quantize::WriteOptions write;
  write.keep_split = options.keep_split;
  write.threads = options.session.ThreadCount();
  if (options.allow_nonfinite) write.non_finite = quantize::NonFinite::kAllowed;
  if (options.keep_split && file.shards() == 1) {
    Note(fmt::format("{}: is one file, so --keep-split has no effect", file.path()));
  }
  KVANT_TRY(options.by_size.CheckOutputs(file, arguments[1], options.imatrix));
  if (!options.dry_run) KVANT_TRY(quantize::CheckOutput(file, arguments[1], write));
  quantize::TypeChoice choice;
  if (options.by_size.Chooses()) {
    KVANT_ASSIGN(choice, options.by_size.Choose(file, plan_options, write, out));
    plan_options.choice = &choice;
  }
  KVANT_ASSIGN(const auto plan, quantize::PlanQuantization(file, plan_options));
  for (const std::string& note : plan.notes) Note(note);
  if (options.dry_run) {
    if (!options.by_size.Chooses() || options.by_size.choice) ShowPlan(plan, out);
    out.Write(Total(file, plan) + "\n");
    return {};
  }

  TransferProgress progress("quantized");
  write.on_progress = [&](const quantize::QuantizeProgress& now) {
    return progress.Update(now.bytes_done, now.bytes_total, now.tensor);
  };
  KVANT_ASSIGN(const auto paths, quantize::WriteQuantized(file, plan, arguments[1], write));
  progress.Clear();
  const double seconds = SecondsSince(start);
  for (const std::string& written : paths) out.Write(Visible(written) + "\n");
  out.Write(fmt::format("{}, {:.1f} s\n", Total(file, plan), seconds));
  return {};
}

}  // namespace

int QuantizeCommand(CommandLine& line) {
  const HelpText help = {"IN OUT (TYPE | --size SIZE | --bits N) [OPTIONS]", QuantizeDescription(),
                         kQuantizeExamples};
  QuantizeOptions options;
  OptionList list;
  options.Add(list);
  std::vector<std::string> offered = ModelNames();
  for (const Recipe& recipe : quantize::AllRecipes()) offered.emplace_back(recipe.name);
  list.Values("", std::move(offered));
  if (const auto code = line.Parse(list, help)) return *code;
  std::vector<std::string> words = line.positionals();
  // llama-quantize takes the number of threads as the last word.
  int64_t threads = 0;
  const size_t usual = options.by_size.Chooses() ? 2 : 3;
  if (words.size() == usual + 1 && ParseNumber(words.back(), &threads)) {
    if (threads < 1 || threads > kThreadsMax) {
      return line.UsageError(fmt::format(
          "threads: expected a whole number from 1 to {}, found '{}'", kThreadsMax, words.back()));
    }
    options.session.settings.options.threads = static_cast<int>(threads);
    words.pop_back();
  }
  const size_t count = words.size();
  if (options.by_size.Chooses() && count != 2) {
    return line.UsageError(
        "expected the model and the file to write, and either TYPE or --size, --bits or --choice");
  }
  if (!options.by_size.Chooses() && count != 3) {
    return line.UsageError(
        "expected the model, the file to write and the type, or --size, --bits or --choice");
  }
  const Status possible = CheckOptions(options, count > 2 ? words[2] : std::string(), list);
  if (!possible.ok()) return Fail(possible.error());
  ResultStream out;
  const Status status = Quantize(options, words, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
