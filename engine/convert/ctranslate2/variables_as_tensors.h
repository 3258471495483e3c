// The variables of CTranslate2's model.bin as the tensors that a Hugging Face folder of the same
// model would have. Queries, keys and values lie in one matrix there, and its rows are cut without
// a copy; integers keep the numbers that divide them.
//
// Errors name the file and the variable: kCorrupt for one that is missing, has another shape than
// the others make, or has broken scales; kNotSupported for one that the class has no place for.
// Thread-safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "formats/ctranslate2.h"
#include "formats/safetensors.h"

namespace kvant::convert {

struct EmbeddingForm {
  bool has_zero_token = false;  // embeddings get a last row of zeros
  bool tied = false;            // the output's weights are the embedding's
};

class VariablesAsTensors {
 public:
  // All must outlive the object.
  VariablesAsTensors(const formats::CTranslate2Model& model, const arch::HfFamily& family,
                     const arch::HfShape& shape, const EmbeddingForm& form)
      : model_(model), family_(family), shape_(shape), form_(form) {}

  // The tensors, whose bytes lie in the model or in what Buffers gives. Called once.
  Result<std::vector<formats::SafetensorsTensor>> Make();

  // The bytes that were made anew. The tensors need them.
  std::vector<std::vector<std::byte>> Buffers() { return std::move(buffers_); }

 private:
  // The variable that a tensor is one of several equal parts of.
  struct Place {
    std::string variable;
    int64_t part;
    int64_t parts;
  };
  Status AddRow(const arch::HfTensor& row, const arch::HfShape& shape, int64_t layer);
  Status AddPlace(const Place& place, const arch::HfTensor& row, const arch::HfShape& shape,
                  int64_t layer);
  Result<const std::byte*> DivisorsOf(const formats::SafetensorsTensor& variable);
  Status CheckQueryScales() const;
  Status CheckAllUsed() const;
  void AddZeroRow(formats::SafetensorsTensor& tensor);
  Status AddRowsBefore(int64_t rows, formats::SafetensorsTensor& tensor);
  std::byte* NewBuffer(size_t bytes);

  const formats::CTranslate2Model& model_;
  const arch::HfFamily& family_;
  const arch::HfShape& shape_;
  EmbeddingForm form_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<formats::SafetensorsTensor> tensors_;
};

// The values of a variable as floats; nothing where there is no such variable. kNotSupported for
// integers.
Result<std::vector<float>> FloatsOf(const formats::CTranslate2Model& model, std::string_view name);

}  // namespace kvant::convert
