// Plans a quantization by its size: the types of a model's matrices that leave the least error, and
// so the least divergence, in a file of a given size.
//
// The errors are measured (engine/quantize/error_table.h) and weighted by sensitivities
// (engine/quantize/sensitivity.h); engine/quantize/budget.h chooses. Matrices about which an option
// of their own decides (--tensor, --output-type, --embedding-type, --leave-output) keep that.
//
// Errors: the errors of its parts; kInvalid for a size that no choice can reach, with the smallest
// size that one can. Thread-safety: calls are independent.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/quantize/budget.h"
#include "engine/quantize/error_table.h"
#include "engine/quantize/plan.h"
#include "engine/quantize/quantize.h"
#include "engine/quantize/sensitivity.h"

namespace kvant::quantize {

inline constexpr double kErrorGrowth = 8;

// Some minutes on two cores with AVX2.
inline constexpr double kUnaskedMacs = 1e13;

struct SizeRequest {
  std::optional<uint64_t> file_bytes;  // of all files, metadata included, at most
  std::optional<double> bits;          // or per weight of all tensors, at most
  MeasureOptions measure;
  std::optional<SensitivityOptions> calibration = {};  // none: typical sensitivities
  // A calibration that nobody asked for gives way to typical sensitivities, with a note, where it
  // is not possible or takes more than kUnaskedMacs.
  enum class Calibration : uint8_t { kAsked, kUnasked };
  Calibration calibrates = Calibration::kAsked;
  WriteOptions write;               // how the file is split
  BudgetProgress on_choosing = {};  // once everything is measured
};

// Weighs an error. The divergence grows in proportion to small errors, and faster when they are no
// longer small. kErrorGrowth was chosen so that types of 2 bits are not taken where they make
// models worse than Q2_K does, whose error is 0.07 (bench/results/quantization.md).
inline double CostOf(double sensitivity, double error) {
  return sensitivity * error * (1 + kErrorGrowth * error);
}

// The measurements of a matrix, and the type that was chosen for it.
struct SizedMatrix {
  MeasuredMatrix measured;
  double sensitivity = 0;
  size_t chosen = 0;  // row of `measured`

  const MeasuredMatrix::Row& row() const { return measured.rows[chosen]; }
  double cost() const { return CostOf(sensitivity, row().error); }
};

struct SizePlan {
  TypeChoice choice;
  std::vector<SizedMatrix> matrices;  // in the order of the file
  uint64_t file_bytes = 0;
  // The tokens on which sensitivities were measured; 0: they are typical ones, which tell the
  // better of two choices, but no divergence.
  int64_t calibration_tokens = 0;
  std::vector<std::string> notes;  // what the user may not expect, one line each
};

// `options.recipe` and `options.choice` are not read. Before anything is measured the size, the
// text and the model are checked.
Result<SizePlan> PlanForSize(const formats::GgufFile& file, const PlanOptions& options,
                             const SizeRequest& request);

// A choice as text, a line "TENSOR TYPE" for each matrix, and back. Names that hold anything but
// visible ASCII, or begin with a quote or #, stand in quotes: "a \"b\" \\ \n \x80". Lines that are
// empty or begin with # say nothing. kInvalid, naming the line, for text that is no such list.
std::string ChoiceText(const TypeChoice& choice);
Result<TypeChoice> ParseChoice(std::string_view text, const std::string& name);

}  // namespace kvant::quantize
