// Adapters of tasks, as jina-embeddings-v3 keeps them in its weights: for each matrix X a tensor
// X.parametrizations.weight.original, and X.parametrizations.weight.0.lora_A and lora_B with a pair
// of narrow matrices for each task of "lora_adaptations" in config.json. What a task multiplies
// with is
//
//   weight = original + lora_alpha / rank * B A      A [rank, in], B [out, rank]
//   weight = original + lora_alpha / rank * A B      A [rows, rank], B [rank, columns]
//
// the latter in tables of rows. Errors name the file and the key or tensor: kInvalid for a task
// that is not there, kNotSupported where no task is named, kCorrupt. Thread-safety: const after
// Merge.
#pragma once

#include <cstddef>
#include <deque>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/json_object.h"
#include "formats/safetensors.h"

namespace kvant::convert {

// Whether a folder keeps such adapters beside its weights.
bool HasTaskAdapters(const formats::SafetensorsModel& weights);

class TaskWeights {
 public:
  // The tensors of a folder with the adapters of a task merged, in the types of the originals. "":
  // no task. `weights` must outlive the object.
  static Result<TaskWeights> Merge(const formats::SafetensorsModel& weights,
                                   const formats::JsonObject& config, std::string_view task);

  const formats::SafetensorsModel& model() const { return model_; }

 private:
  TaskWeights() = default;

  std::deque<std::vector<std::byte>> merged_;
  formats::SafetensorsModel model_;
};

}  // namespace kvant::convert
