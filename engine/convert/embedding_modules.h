// A folder of sentence-transformers says more than the model: modules.json has the pooling, the
// matrices and the norm behind the encoder, config_sentence_transformers.json has prompts, and
// sentence_bert_config.json the greatest length.
//
// Keys: pooling_type; dense_2_feat_in, dense_2_feat_out, dense_2_activation and the same of
// dense_3, with the tensors dense_2 and dense_3; max_sequence_length, beyond which
// sentence-transformers cuts texts; general.prompts.names, general.prompts.texts and
// general.prompts.default. A vector has length 1 unless the caller wants another one, so the norm
// at the end has no key.
//
// Errors name the file and the key: kNotSupported for modules and settings that are not understood,
// kCorrupt for contradicting ones. Thread-safety: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "formats/gguf_writer.h"
#include "kvant/pooling.h"

namespace kvant::convert {

// A matrix behind the pooling, with what is applied to its result.
struct DenseModule {
  int64_t inputs = 0;
  int64_t outputs = 0;
  std::string activation;      // "identity", "tanh"
  std::vector<float> weights;  // [outputs][inputs]
  std::vector<float> bias;     // [outputs], or empty
};

struct EmbeddingModules {
  std::string model_folder;  // the encoder's: the folder itself, or one in it
  std::optional<Pooling> pooling;
  std::vector<DenseModule> dense;  // in their order
  std::optional<int64_t> max_length;
  bool lower_case = false;  // texts become lower case before they are tokenized
  std::vector<std::string> prompt_names;
  std::vector<std::string> prompts;
  std::string default_prompt;  // a name, or ""

  // Nothing for a folder without modules.json.
  static Result<std::optional<EmbeddingModules>> Read(const std::string& folder);

  // Texts get the prompt of this name, if there is one, unless another is the default.
  void NameDefault(const std::string& name);

  // Writes the keys, and appends the matrices. kCorrupt where a matrix does not fit `shape`.
  Status AddTo(const arch::HfShape& shape, const std::string& folder, arch::Parameters& out) const;
};

}  // namespace kvant::convert
