#include "engine/quantize/plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/counted.h"
#include "base/result.h"
#include "formats/gguf_split.h"
#include "formats/quoted.h"

namespace kvant::quantize {
namespace {

using formats::GgufFile;
using formats::GgufTensor;
using formats::GgufType;
using formats::GgufValue;
using formats::Quoted;
using quant::FormatTraits;

// general.quantization_version: the layout of block formats, unchanged since 2023.
constexpr int64_t kQuantizationVersion = 2;

PCRE2_SPTR Bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

class NamePattern {
 public:
  static Result<NamePattern> Compile(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    NamePattern compiled;
    compiled.code_.reset(
        pcre2_compile(Bytes(pattern), pattern.size(), PCRE2_UTF, &error, &offset, nullptr));
    if (compiled.code_ != nullptr) return compiled;
    char reason[200] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof reason);
    return MakeError(ErrorCode::kInvalid, "pattern {} is no regular expression: {} at character {}",
                     Quoted(pattern), reason, offset);
  }

  // A pattern that exceeds PCRE2's limits for one name, or a name that is no UTF-8, does not match.
  bool Matches(std::string_view name) const {
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
    return pcre2_match(code_.get(), Bytes(name), name.size(), 0, 0, match.get(), nullptr) >= 0;
  }

 private:
  struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  struct FreeMatch {
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  std::unique_ptr<pcre2_code, FreeCode> code_;
};

GgufType NewType(const std::variant<int64_t, double, bool, std::string>& value) {
  if (std::holds_alternative<double>(value)) return GgufType::kFloat32;
  if (std::holds_alternative<bool>(value)) return GgufType::kBool;
  if (std::holds_alternative<std::string>(value)) return GgufType::kString;
  const int64_t integer = std::get<int64_t>(value);
  if (integer >= 0) {
    return integer <= std::numeric_limits<uint32_t>::max() ? GgufType::kUint32 : GgufType::kUint64;
  }
  return integer >= std::numeric_limits<int32_t>::min() ? GgufType::kInt32 : GgufType::kInt64;
}

// Whether the integer fits the type; false for types that hold no integers.
bool FitsInteger(int64_t value, GgufType type) {
  switch (type) {
    case GgufType::kUint8: return std::in_range<uint8_t>(value);
    case GgufType::kInt8: return std::in_range<int8_t>(value);
    case GgufType::kUint16: return std::in_range<uint16_t>(value);
    case GgufType::kInt16: return std::in_range<int16_t>(value);
    case GgufType::kUint32: return std::in_range<uint32_t>(value);
    case GgufType::kInt32: return std::in_range<int32_t>(value);
    case GgufType::kUint64: return std::in_range<uint64_t>(value);
    case GgufType::kInt64: return true;
    default: return false;
  }
}

class Planner {
 public:
  Planner(const GgufFile& file, const PlanOptions& options)
      : file_(file), options_(options), model_(DescribeModel(file)) {
    model_.has_importance = options.importance != nullptr;
  }

  Result<QuantizePlan> Plan() {
    KVANT_TRY(ChooseFormats());
    KVANT_TRY(CheckSources());
    KVANT_TRY(AttachImportance());
    KVANT_TRY(SetMetadata());
    return std::move(plan_);
  }

 private:
  Status ChooseFormats() {
    std::vector<std::pair<NamePattern, const FormatTraits*>> rules;
    for (const TensorRule& rule : options_.tensor_rules) {
      KVANT_ASSIGN(NamePattern pattern, NamePattern::Compile(rule.pattern));
      rules.emplace_back(std::move(pattern), rule.format);
    }
    std::vector<uint64_t> uses(rules.size());
    const std::vector<const FormatTraits*> chosen = ByRecipe();
    for (size_t i = 0; i < file_.tensors().size(); ++i) {
      const GgufTensor& tensor = file_.tensors()[i];
      TensorPlan& planned = plan_.tensors.emplace_back();
      planned.source = &tensor;
      planned.format = tensor.format;
      if (!IsQuantizable(tensor)) continue;
      const FormatTraits* named = chosen[i];
      planned.by_rule = options_.leave_output && tensor.name == kOutputName;
      if (tensor.name == kEmbeddingName && options_.embedding_format != nullptr) {
        named = options_.embedding_format;
        planned.by_rule = true;
      }
      if (tensor.name == kOutputName && options_.output_format != nullptr) {
        named = options_.output_format;
        planned.by_rule = true;
      }
      for (size_t k = 0; k < rules.size(); ++k) {
        if (!rules[k].first.Matches(tensor.name)) continue;
        ++uses[k];
        named = rules[k].second;
        planned.by_rule = true;
        break;
      }
      if (named == nullptr) continue;
      planned.format = &Fitting(*named, planned);
      if (planned.format != named) planned.wanted = named->name;
    }
    for (size_t k = 0; k < rules.size(); ++k) {
      if (uses[k] > 0) continue;
      return MakeError(ErrorCode::kInvalid, "{}: pattern {} matches no matrix", file_.path(),
                       Quoted(options_.tensor_rules[k].pattern));
    }
    NoteFallbacks();
    if (options_.output_format != nullptr) NoteAbsent(kOutputName, "--output-type");
    if (options_.leave_output) NoteAbsent(kOutputName, "--leave-output");
    if (options_.embedding_format != nullptr) NoteAbsent(kEmbeddingName, "--embedding-type");
    return {};
  }

  // Null for tensors that stay as they are.
  std::vector<const FormatTraits*> ByRecipe() const {
    std::vector<const FormatTraits*> formats(file_.tensors().size());
    if (options_.choice != nullptr) return ByChoice();
    if (options_.recipe == nullptr) return formats;
    const FormatTraits* base = quant::FindFormat(options_.recipe->base);
    KVANT_CHECK(base != nullptr);
    if (!options_.pure) {
      formats = ApplyRecipe(*options_.recipe, model_, file_.tensors());
    }
    for (size_t i = 0; i < formats.size(); ++i) {
      const GgufTensor& tensor = file_.tensors()[i];
      if (options_.pure) formats[i] = base;
      if (options_.leave_output && tensor.name == kOutputName) formats[i] = nullptr;
    }
    return formats;
  }

  std::vector<const FormatTraits*> ByChoice() const {
    std::vector<const FormatTraits*> formats(file_.tensors().size());
    for (size_t i = 0; i < formats.size(); ++i) {
      const GgufTensor& tensor = file_.tensors()[i];
      if (options_.leave_output && tensor.name == kOutputName) continue;
      const auto found = options_.choice->find(tensor.name);
      if (found != options_.choice->end()) formats[i] = found->second;
    }
    return formats;
  }

  // The file type of the recipe whose base most values have, as llama.cpp names such files; none
  // where nothing is quantized.
  std::optional<uint32_t> FileTypeOfChoice() const {
    std::map<const FormatTraits*, int64_t> values;
    for (const TensorPlan& planned : plan_.tensors) {
      if (!planned.copied()) values[planned.format] += planned.source->n_values();
    }
    const auto most =
        std::max_element(values.begin(), values.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == values.end()) return std::nullopt;
    for (const Recipe& recipe : AllRecipes()) {
      if (std::string_view(recipe.base) == most->first->name) return recipe.file_type;
    }
    return std::nullopt;
  }

  const FormatTraits& Fitting(const FormatTraits& wanted, const TensorPlan& planned) const {
    const GgufTensor& tensor = *planned.source;
    const bool mixed = options_.recipe != nullptr && !options_.pure && !planned.by_rule;
    return mixed ? FittingFormat(*options_.recipe, model_, tensor, wanted)
                 : FittingFormat(wanted, tensor.dims[0]);
  }

  void NoteAbsent(std::string_view tensor, const char* option) {
    if (file_.FindTensor(tensor) != nullptr) return;
    plan_.notes.push_back(
        fmt::format("{}: has no tensor {}: {} has no effect", file_.path(), tensor, option));
  }

  void NoteFallbacks() {
    const TensorPlan* first = nullptr;
    size_t count = 0;
    for (const TensorPlan& planned : plan_.tensors) {
      if (planned.wanted == nullptr) continue;
      if (count++ == 0) first = &planned;
    }
    if (first == nullptr) return;
    plan_.notes.push_back(
        count == 1
            ? fmt::format("tensor {} has rows of {} values, which {} cannot hold: it becomes {}",
                          Quoted(first->source->name), first->source->dims[0], first->wanted,
                          first->format->name)
            : fmt::format("{} tensors have rows that their formats cannot hold; the first, {} ({} "
                          "values, {}), becomes {}",
                          count, Quoted(first->source->name), first->source->dims[0], first->wanted,
                          first->format->name));
  }

  Status CheckSources() const {
    for (const TensorPlan& planned : plan_.tensors) {
      if (planned.copied() || !planned.source->format->quantized()) continue;
      if (options_.re_quantizing == ReQuantizing::kAllowed) continue;
      // A choice that is still to be made has types that stand for others.
      const bool chosen = options_.choice != nullptr && !planned.by_rule;
      return MakeError(ErrorCode::kInvalid,
                       "{}: tensor {} is quantized already ({}), and making {} of it would lose "
                       "quality: give the F16 or F32 model, or --requantize",
                       file_.path(), Quoted(planned.source->name), planned.source->format->name,
                       chosen ? "another type" : planned.format->name);
    }
    return {};
  }

  Status AttachImportance() {
    size_t absent = 0;
    for (TensorPlan& planned : plan_.tensors) {
      if (planned.copied() || !planned.format->quantized()) continue;
      const GgufTensor& tensor = *planned.source;
      if (options_.importance != nullptr) {
        auto importance = options_.importance->Importance(tensor);
        if (!importance.ok()) {
          return MakeError(importance.error().code, "{}: {}", options_.importance_file,
                           importance.error().message);
        }
        planned.importance = std::move(*importance);
      }
      if (!planned.importance.empty()) continue;
      // No activations are ever collected for the embedding, and rarely for the output.
      const bool is_end = tensor.name == kEmbeddingName || tensor.name == kOutputName;
      absent += is_end ? 0 : 1;
      if (!planned.format->needs_importance) continue;
      if (options_.importance == nullptr) {
        const bool mixed = options_.recipe != nullptr &&
                           std::string_view(options_.recipe->name) != planned.format->name;
        return MakeError(
            ErrorCode::kInvalid,
            "{}: tensor {}: {}{} needs an importance matrix, or the model is garbage: make one "
            "with `kvant imatrix` and give it with --imatrix",
            file_.path(), Quoted(tensor.name), planned.format->name,
            mixed ? fmt::format(", which {} is mixed with,", options_.recipe->name) : "");
      }
      if (is_end) continue;
      return MakeError(ErrorCode::kInvalid,
                       "{}: no entry for tensor {}, which {} cannot do without: expected an "
                       "importance matrix of this model",
                       options_.importance_file, Quoted(tensor.name), planned.format->name);
    }
    if (options_.importance == nullptr || absent == 0) return {};
    if (std::all_of(plan_.tensors.begin(), plan_.tensors.end(),
                    [](const TensorPlan& planned) { return planned.importance.empty(); })) {
      return MakeError(ErrorCode::kInvalid, "{}: has entries for none of the tensors of {}",
                       options_.importance_file, file_.path());
    }
    plan_.notes.push_back(fmt::format("{}: no entries for {}, quantized without",
                                      options_.importance_file,
                                      Counted(absent, "matrix", "matrices")));
    return {};
  }

  Status SetMetadata() {
    std::vector<MetadataChange> changes;
    if (options_.recipe != nullptr) {
      changes.push_back({"general.quantization_version", kQuantizationVersion});
      changes.push_back({"general.file_type", int64_t{options_.recipe->file_type}});
    } else if (options_.choice != nullptr) {
      changes.push_back({"general.quantization_version", kQuantizationVersion});
      const std::optional<uint32_t> file_type = FileTypeOfChoice();
      if (file_type) changes.push_back({"general.file_type", int64_t{*file_type}});
    }
    if (const formats::Imatrix* imatrix = options_.importance) {
      std::string datasets;
      for (const std::string& name : imatrix->datasets) {
        datasets += (datasets.empty() ? "" : ", ") + name;
      }
      changes.push_back({"quantize.imatrix.file", options_.importance_file});
      if (!datasets.empty()) changes.push_back({"quantize.imatrix.dataset", datasets});
      changes.push_back(
          {"quantize.imatrix.entries_count", static_cast<int64_t>(imatrix->entries.size())});
      changes.push_back({"quantize.imatrix.chunks_count", int64_t{imatrix->chunk_count}});
    }
    changes.insert(changes.end(), options_.metadata.begin(), options_.metadata.end());
    for (MetadataChange& change : changes) {
      if (change.key == formats::kGgufAlignmentKey || formats::IsSplitKey(change.key)) {
        return MakeError(ErrorCode::kInvalid,
                         "key {} describes how the file is laid out and follows from it: it cannot "
                         "be set",
                         Quoted(change.key));
      }
      KVANT_ASSIGN(const GgufType type, TypeFor(change));
      plan_.metadata.push_back({std::move(change), type});
    }
    return {};
  }

  // The type that the key has in the file, or the natural one of a new key.
  Result<GgufType> TypeFor(const MetadataChange& change) const {
    const GgufValue* old = file_.Find(change.key);
    if (old == nullptr) return NewType(change.value);
    const auto* integer = std::get_if<int64_t>(&change.value);
    const bool fits = integer != nullptr ? FitsInteger(*integer, old->type)
                      : std::holds_alternative<double>(change.value)
                          ? std::holds_alternative<double>(old->value)
                      : std::holds_alternative<bool>(change.value) ? old->type == GgufType::kBool
                                                                   : old->type == GgufType::kString;
    if (fits) return old->type;
    return MakeError(ErrorCode::kInvalid,
                     "{}: key {} has a value of type {}, which the given one does not fit: readers "
                     "would refuse it",
                     file_.path(), Quoted(change.key), formats::GgufTypeName(old->type));
  }

  const GgufFile& file_;
  const PlanOptions& options_;
  RecipeModel model_;
  QuantizePlan plan_;
};

}  // namespace

uint64_t QuantizePlan::size_bytes() const {
  uint64_t bytes = 0;
  for (const TensorPlan& planned : tensors) bytes += planned.size_bytes();
  return bytes;
}

double QuantizePlan::bits_per_weight() const {
  double values = 0;
  for (const TensorPlan& planned : tensors)
    values += static_cast<double>(planned.source->n_values());
  return values > 0 ? 8 * static_cast<double>(size_bytes()) / values : 0;
}

Result<QuantizePlan> PlanQuantization(const GgufFile& file, const PlanOptions& options) {
  return Planner(file, options).Plan();
}

}  // namespace kvant::quantize
