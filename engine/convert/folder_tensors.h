// The tensors of a Hugging Face folder by the names of a family: where each is found, which one two
// stacks share, and which have not been used.
//
// Thread-safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/convert/quantization.h"
#include "formats/json_object.h"
#include "formats/safetensors.h"

namespace kvant::convert {

// Puts the number of a layer into a name, or that of an expert into a name that has its layer
// already.
std::string WithNumber(std::string_view name, int64_t number);

// Whether a name has room for a number: the tensor belongs to a layer.
bool HasNumberMark(std::string_view name);

// kCorrupt for another shape; vectors may be matrices of one row.
Status CheckShape(const formats::SafetensorsModel& model, const formats::SafetensorsTensor& source,
                  const std::vector<int64_t>& expected);
// The check of a tensor that holds bytes, of the shape `expected`.
Status CheckBytes(const formats::SafetensorsModel& model, const formats::SafetensorsTensor& source,
                  const std::vector<int64_t>& expected);

class FolderTensors {
 public:
  // Finds out whether the output's weights are the embedding's.
  static Result<FolderTensors> Create(const arch::HfFamily& family,
                                      const formats::SafetensorsModel& model,
                                      const formats::JsonObject& config,
                                      const Quantization& quantization);

  // A tensor under its full name, or without the beginning that folders may leave out; null if the
  // folder has none.
  const formats::SafetensorsTensor* Find(std::string_view hf_name) const;

  // How many layers behind the `layers` of a model predict further tokens and are kept.
  static int64_t CountPredictors(const arch::HfFamily& family,
                                 const formats::SafetensorsModel& model, int64_t layers);
  // From then on Find finds tensors of layers from number `layers` on also as those of "mtp".
  void TakePredictorsFrom(int64_t layers) { predictors_from_ = layers; }

  // The family's row of a tensor, or null.
  const arch::HfTensor* Row(std::string_view gguf_name) const;

  // The folder's name of a tensor of a layer.
  std::string SourceName(const arch::HfTensor& row, int64_t layer) const;

  bool HasExperts(int64_t layer) const;
  bool tied() const { return tied_; }  // the output's weights are the embedding's

  // The name of a tensor for messages: that in the folder's network "mtp" for one of its layers.
  std::string ShownName(std::string_view hf_name) const;

  void Use(const formats::SafetensorsTensor& tensor) { used_.emplace(tensor.name); }

  // kNotSupported for a tensor that was not used and has no place in the model. Logs a warning
  // where layers, parts of a model or scales of activations are left out. `shape`: of the whole
  // model.
  Status CheckAllUsed(const arch::HfShape& shape) const;

 private:
  FolderTensors(const arch::HfFamily& family, const formats::SafetensorsModel& model)
      : family_(family), model_(model) {}

  const formats::SafetensorsTensor* FindInTextModel(std::string_view hf_name) const;
  const formats::SafetensorsTensor* FindAsItIs(std::string_view hf_name) const;
  std::optional<std::string> NameOfPredictor(std::string_view hf_name) const;
  const formats::SafetensorsTensor* FindPredictor(std::string_view hf_name) const;
  Status FindTying(const formats::JsonObject& config);
  Status FindEmbedding(const arch::HfTensor& embedding);

  const arch::HfFamily& family_;
  const formats::SafetensorsModel& model_;
  std::string class_;
  int64_t predictors_from_ = -1;  // the number of the first such layer; -1: none is kept
  bool tied_ = false;
  bool of_more_than_text_ = false;
  bool quantized_ = false;      // weights have scales
  std::string tied_embedding_;  // where the embedding is found under the output's name
  std::set<std::string, std::less<>> used_;
};

}  // namespace kvant::convert
