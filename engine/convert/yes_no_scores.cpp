#include "engine/convert/yes_no_scores.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "formats/quoted.h"
#include "kvant/pooling.h"
#include "quant/format.h"

namespace kvant::convert {
namespace {

namespace fs = std::filesystem;
using formats::SafetensorsModel;
using formats::SafetensorsTensor;

constexpr std::string_view kRerankerName = "qwen3-reranker";
constexpr std::string_view kRerankerArch = kRerankerName.substr(0, kRerankerName.find('-'));
constexpr std::array<std::string_view, 2> kAnswers = {"yes", "no"};
constexpr size_t kTitleBytes = size_t{64} << 10;  // of README.md that are looked at

// The output's rows, or the embedding's where they are its.
constexpr std::string_view kOutputs[] = {"lm_head.weight", "model.embed_tokens.weight",
                                         "embed_tokens.weight"};

constexpr std::string_view kTemplate =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
    "answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

std::string InLowerCase(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// Whether a title of the text begins with the model's name.
bool HasTitle(std::string_view text) {
  const std::string lower = InLowerCase(text.substr(0, kTitleBytes));
  return lower.find(fmt::format("# {}", kRerankerName)) != std::string::npos;
}

Result<const SafetensorsTensor*> FindOutput(const SafetensorsModel& model,
                                            const arch::HfShape& shape) {
  for (const std::string_view name : kOutputs) {
    const SafetensorsTensor* found = model.Find(name);
    if (found == nullptr) continue;
    const std::vector<int64_t> expected = {shape.vocab, shape.dim};
    const quant::FormatTraits* format = quant::FindFormat(found->type->name);
    if (found->shape == expected && format != nullptr && format->block_values == 1) return found;
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected {} rows of {} floats",
                     model.FileOf(*found), formats::Quoted(name), shape.vocab, shape.dim);
  }
  return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing", model.files().front(),
                   kOutputs[0]);
}

}  // namespace

bool AsksYesOrNo(const std::string& folder, const arch::HfFamily& family) {
  if (family.arch != kRerankerArch) return false;
  std::error_code error;
  const fs::path path = fs::weakly_canonical(folder, error);
  if (InLowerCase(path.filename().string()).starts_with(kRerankerName)) return true;
  const auto file = MappedFile::Open((fs::path(folder) / "README.md").string());
  if (!file.ok()) return false;
  const auto bytes = file->bytes();
  return HasTitle({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Status AddYesNoScores(const std::string& folder, const Vocabulary& vocabulary,
                      const SafetensorsModel& model, const arch::HfShape& shape,
                      arch::Parameters& out) {
  KVANT_ASSIGN(const SafetensorsTensor* output, FindOutput(model, shape));
  const quant::FormatTraits& format = *quant::FindFormat(output->type->name);
  const auto columns = static_cast<size_t>(shape.dim);
  arch::ComputedTensor rows{"cls.output.weight", {}, shape.dim};
  std::vector<float> row(columns);
  for (const std::string_view answer : kAnswers) {
    const auto id = vocabulary.Find(answer);
    if (!id) {
      return MakeError(ErrorCode::kCorrupt, "{}: the vocabulary has no token {}", folder,
                       formats::Quoted(answer));
    }
    const std::byte* first = output->data + *id * format.row_bytes(shape.dim);
    const std::vector<std::byte> bytes(first, first + format.row_bytes(shape.dim));
    format.decode(bytes.data(), row.data(), shape.dim);
    rows.values.insert(rows.values.end(), row.begin(), row.end());
  }
  out.tensors.push_back(std::move(rows));
  out.writer->AddU32(out.Key("pooling_type"), static_cast<uint32_t>(Pooling::kRank));
  out.writer->AddStrings(out.Key("classifier.output_labels"), {"yes", "no"});
  out.writer->AddString("tokenizer.chat_template.rerank", std::string(kTemplate));
  return {};
}

}  // namespace kvant::convert
