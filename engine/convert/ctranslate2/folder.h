// A CTranslate2 folder (model.bin, config.json, lists of tokens) as the Hugging Face folder of the
// same model: its settings, its tensors, and stand-ins for files that it lacks.
//
// Errors name the file and what was expected. Thread-safety: const after Open.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/convert/ctranslate2/token_lists.h"
#include "engine/convert/special_tokens.h"
#include "engine/convert/vocabulary.h"
#include "formats/ctranslate2.h"
#include "formats/safetensors.h"

namespace kvant::convert {

// Whether a folder has CTranslate2's weights and none in safetensors.
bool IsCTranslate2Folder(const std::string& folder);

class CTranslate2Folder {
 public:
  static Result<CTranslate2Folder> Open(const std::string& folder);

  const FolderConfig& config() const { return config_; }

  // The tensors under the names of Hugging Face's class; their bytes lie in this object.
  Result<formats::SafetensorsModel> Tensors() const;

  // Replaces computed tables of positions by those of the folder.
  Status PlacePositions(std::vector<arch::ComputedTensor>& tensors) const;

  // kCorrupt where the files of the tokenizer name other tokens than CTranslate2's lists.
  Status CheckTokens(const Vocabulary& source, const Vocabulary* target) const;

 private:
  CTranslate2Folder(formats::CTranslate2Model model, FolderConfig config)
      : config_(std::move(config)), model_(std::move(model)) {}

  Status MakeStandIns(const arch::HfFamily& family);
  Status CheckTokenizerFiles(const arch::HfFamily& family) const;

  FolderConfig config_;
  formats::CTranslate2Model model_;
  TokenLists lists_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<formats::SafetensorsTensor> tensors_;
};

}  // namespace kvant::convert
