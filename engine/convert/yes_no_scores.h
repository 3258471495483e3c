// Qwen3-Reranker: a Qwen 3 that writes "yes" or "no" behind a question about a query and a
// document. Its score needs two rows of the output alone, which become the classifier of the file,
// and the question becomes a template. Its folders say so in their README.md and nowhere else.
//
// Source of the question: the model's card, and llama.cpp's converter for the names of the keys.
// Errors name the file. Thread-safety: pure.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/convert/vocabulary.h"
#include "formats/safetensors.h"

namespace kvant::convert {

// Whether the folder is one of these rerankers: by its own name, or by the title of its README.md.
bool AsksYesOrNo(const std::string& folder, const arch::HfFamily& family);

// Writes the classifier, the names of its labels, the way of pooling and the template. kCorrupt
// where there is no token "yes" or "no", or no matrix of the output.
Status AddYesNoScores(const std::string& folder, const Vocabulary& vocabulary,
                      const formats::SafetensorsModel& model, const arch::HfShape& shape,
                      arch::Parameters& out);

}  // namespace kvant::convert
