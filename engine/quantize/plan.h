// The plan of a quantization: what becomes of each tensor and each metadata entry. It is made
// before anything is written, shown by `kvant quantize --dry-run`, carried out by
// engine/quantize/quantize.h.
//
// Errors name the file and the tensor, key or pattern: kInvalid for what cannot be asked of this
// model (importance matrix of another one, already quantized input, a format that needs an
// importance matrix, a pattern that is none). Thread-safety: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/quantize/recipe.h"
#include "formats/gguf.h"
#include "formats/imatrix.h"
#include "quant/format.h"

namespace kvant::quantize {

// Tensors whose names a Perl-compatible regular expression matches somewhere.
struct TensorRule {
  std::string pattern;
  const quant::FormatTraits* format = nullptr;
};

// A metadata entry to set. Numbers keep the type that the key has in the file; new ones are uint32
// (int32 below zero, 64 bits where needed) and float32.
struct MetadataChange {
  std::string key;
  std::variant<int64_t, double, bool, std::string> value;
};

enum class ReQuantizing : uint8_t { kRefused, kAllowed };

// A format for each of some tensors, by name: instead of a recipe.
using TypeChoice = std::map<std::string, const quant::FormatTraits*, std::less<>>;

struct PlanOptions {
  const Recipe* recipe = nullptr;        // null: copy all tensors
  const TypeChoice* choice = nullptr;    // instead of a recipe; tensors without an entry are copied
  bool pure = false;                     // the base format for every matrix
  std::vector<TensorRule> tensor_rules;  // the first that matches wins over the recipe
  const quant::FormatTraits* output_format = nullptr;
  const quant::FormatTraits* embedding_format = nullptr;
  bool leave_output = false;  // output.weight stays as it is
  ReQuantizing re_quantizing = ReQuantizing::kRefused;
  const formats::Imatrix* importance = nullptr;
  std::string importance_file;  // for the metadata
  std::vector<MetadataChange> metadata;
};

struct TensorPlan {
  const formats::GgufTensor* source = nullptr;
  const quant::FormatTraits* format = nullptr;  // the new one; that of the source: copied as it is
  std::vector<float> importance;                // [dims[3] * dims[2], dims[0]] or empty
  const char* wanted = nullptr;  // the format that the rows were too odd for, or null
  bool by_rule = false;          // an option about this tensor alone decided on its format

  bool copied() const { return format == source->format; }
  uint64_t size_bytes() const {
    return static_cast<uint64_t>(format->row_bytes(source->dims[0]) * source->rows());
  }
};

struct PlannedEntry {
  MetadataChange change;
  formats::GgufType type{};
};

struct QuantizePlan {
  std::vector<TensorPlan> tensors;  // in the order of the file
  // Entries on top of the file's own; the file's entries that say how it was split go.
  std::vector<PlannedEntry> metadata;
  std::vector<std::string> notes;  // what the user may not expect, one line each

  uint64_t size_bytes() const;  // of the tensors, without padding
  double bits_per_weight() const;
};

// The plan points into `file`.
Result<QuantizePlan> PlanQuantization(const formats::GgufFile& file, const PlanOptions& options);

}  // namespace kvant::quantize
