// The options of `kvant quantize` that choose types by the size of the file, and what they do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/quantize/plan.h"
#include "engine/quantize/quantize.h"
#include "engine/quantize/size_plan.h"
#include "formats/gguf.h"
#include "tools/options/command_line.h"
#include "tools/options/groups/model_group.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

struct SizeGroup {
  uint64_t size = 0;  // bytes; 0: not given
  std::optional<float> bits;
  std::optional<std::string> types;
  bool fastest = false;
  std::optional<std::string> calibrate;
  std::optional<int64_t> calibrate_tokens;
  bool no_calibrate = false;
  ModelGroup model;  // the keys to ignore while it runs
  std::optional<std::string> save_choice;
  std::optional<std::string> choice;

  void Add(OptionList& list);

  // Whether types come from these options rather than from a mix.
  bool Chooses() const { return size > 0 || bits.has_value() || choice.has_value(); }
  // kInvalid for options that contradict each other, and for options that would have no effect.
  Status Check(const OptionList& list) const;

  // Neither the model nor the choice may be written over another file of the command.
  Status CheckOutputs(const formats::GgufFile& file, const std::string& output,
                      const std::optional<std::string>& imatrix) const;

  // The choice, measured or read from a file. Measured values go to `out`.
  Result<quantize::TypeChoice> Choose(const formats::GgufFile& file,
                                      const quantize::PlanOptions& plan_options,
                                      const quantize::WriteOptions& write, ResultStream& out) const;

 private:
  Result<quantize::TypeChoice> ReadChoice(const formats::GgufFile& file) const;
  Result<std::vector<const quant::FormatTraits*>> Formats(
      const quantize::PlanOptions& plan_options) const;
  Status Calibrate(StatusLine& progress, quantize::SizeRequest& request) const;
  Status DropSlow(int threads, std::vector<const quant::FormatTraits*>& formats) const;
  Result<quantize::SizePlan> Measure(const formats::GgufFile& file,
                                     const quantize::PlanOptions& plan_options,
                                     const quantize::WriteOptions& write) const;
};

}  // namespace kvant::tools
