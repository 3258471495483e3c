#include "engine/convert/ctranslate2/folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/convert/ctranslate2/class_config.h"
#include "engine/convert/ctranslate2/ranked_merges.h"
#include "engine/convert/ctranslate2/variables_as_tensors.h"

namespace kvant::convert {
namespace {

namespace fs = std::filesystem;
using arch::HfFamily;
using arch::HfShape;
using arch::TranslatorFiles;
using formats::Json;

bool HasFileIn(const std::string& folder, std::string_view name) {
  std::error_code error;
  return fs::is_regular_file(PathIn(folder, name), error);
}

// {"text": id} of the first `count` tokens; of equal texts the first counts.
Json IdsOf(const TokenList& list, size_t count) {
  Json ids = Json::object();
  for (size_t id = 0; id < std::min(count, list.tokens.size()); ++id) {
    ids.emplace(list.tokens[id], id);
  }
  return ids;
}

// The number of tokens before the first one that stands for a language, "__de__" for the code "de".
size_t TokensBeforeLanguages(const TokenList& list, std::span<const std::string_view> codes) {
  size_t first = list.tokens.size();
  for (const std::string_view code : codes) {
    const auto id = list.Find(fmt::format("__{}__", code));
    if (id) first = std::min(first, static_cast<size_t>(*id));
  }
  return first;
}

// Models of another kind are built as M2M-100, and their texts are cut otherwise.
Status CheckLanguages(const TokenList& list, const HfFamily& family) {
  const bool any = std::ranges::any_of(family.translator.fairseq_languages, [&](auto language) {
    return list.Find(language).has_value();
  });
  if (any) return {};
  return MakeError(
      ErrorCode::kNotSupported,
      "{}: a Transformer built as M2M-100, but no language of M2M-100 or NLLB is among "
      "its tokens: Pegasus and models of OpenNMT cannot be converted",
      list.file);
}

// config.json, which models of CTranslate2 before version 3 lack.
Result<FolderConfig> ReadConfigs(const std::string& folder) {
  if (HasFileIn(folder, "config.json")) return FolderConfig::Read(folder);
  return FolderConfig::ReadWithoutModel(folder);
}

// T5's tokenizers add as many tokens as the number in the first one's name says.
void AddExtraIds(const TokenList& list, Json& tokenizer) {
  size_t first = 0;
  while (first < list.tokens.size() && !list.tokens[first].starts_with("<extra_id_")) ++first;
  size_t count = 0;
  while (first + count < list.tokens.size() &&
         list.tokens[first + count].starts_with("<extra_id_")) {
    ++count;
    if (list.tokens[first + count - 1] == "<extra_id_0>") break;
  }
  const bool complete = count > 1 && list.tokens[first] == fmt::format("<extra_id_{}>", count - 1);
  tokenizer["extra_ids"] = complete ? count : 0;
}

}  // namespace

bool IsCTranslate2Folder(const std::string& folder) {
  return HasFileIn(folder, formats::kCTranslate2File) && !HasFileIn(folder, "model.safetensors") &&
         !HasFileIn(folder, "model.safetensors.index.json");
}

Result<CTranslate2Folder> CTranslate2Folder::Open(const std::string& folder) {
  KVANT_ASSIGN(auto model,
               formats::CTranslate2Model::Open(PathIn(folder, formats::kCTranslate2File)));
  KVANT_TRY(CheckSpec(model));
  KVANT_ASSIGN(FolderConfig found, ReadConfigs(folder));
  CTranslate2Folder out(std::move(model), std::move(found));
  KVANT_ASSIGN(out.lists_, ReadTokenLists(folder));
  KVANT_ASSIGN(ClassConfig made, MakeClassConfig(out.model_, out.config_.model, out.lists_));
  // Files of Hugging Face that lie in the folder, too, know better.
  FolderConfig& config = out.config_;
  config.model = std::move(made.model);
  config.generation = made.generation.With(config.generation);
  config.tokenizer = made.tokenizer.With(config.tokenizer);
  KVANT_ASSIGN(const HfFamily* family, arch::FindHfFamily(config.model));
  KVANT_ASSIGN(const HfShape shape, arch::ReadHfShape(*family, config.model));
  KVANT_ASSIGN(const auto tied, config.model.Bool("tie_word_embeddings"));
  VariablesAsTensors variables(
      out.model_, *family, shape,
      {.has_zero_token = made.has_zero_token, .tied = tied.value_or(false)});
  KVANT_ASSIGN(out.tensors_, variables.Make());
  out.buffers_ = variables.Buffers();
  KVANT_TRY(out.MakeStandIns(*family));
  KVANT_TRY(out.CheckTokenizerFiles(*family));
  return out;
}

Result<formats::SafetensorsModel> CTranslate2Folder::Tensors() const {
  return formats::SafetensorsModel::FromTensors(tensors_, model_.path());
}

Status CTranslate2Folder::PlacePositions(std::vector<arch::ComputedTensor>& tensors) const {
  for (arch::ComputedTensor& tensor : tensors) {
    for (const std::string_view stack : {"encoder", "decoder"}) {
      if (tensor.name != fmt::format("{}.position_embd.weight", stack.substr(0, 3))) continue;
      KVANT_ASSIGN(auto table,
                   FloatsOf(model_, fmt::format("{}/position_encodings/encodings", stack)));
      if (table.size() != tensor.values.size()) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: the positions of the {} are {} values, expected {}", model_.path(),
                         stack, table.size(), tensor.values.size());
      }
      tensor.values = std::move(table);
    }
  }
  return {};
}

Status CTranslate2Folder::CheckTokens(const Vocabulary& source, const Vocabulary* target) const {
  KVANT_TRY(lists_.source.Compare(source));
  if (lists_.target && target != nullptr) return lists_.target->Compare(*target);
  return {};
}

// CTranslate2's lists name the tokens, but only speech's say how texts are cut.
Status CTranslate2Folder::CheckTokenizerFiles(const HfFamily& family) const {
  const std::string& folder = config_.folder;
  const auto missing = [&](std::string_view files) {
    return MakeError(ErrorCode::kIo,
                     "{}: CTranslate2's list of tokens does not say how texts are cut; expected "
                     "{} of the original model in the folder",
                     folder, files);
  };
  if (family.has_speech_tokens) return {};
  if (family.translator.files == TranslatorFiles::kSourceAndTarget) {
    const bool both = HasFileIn(folder, "source.spm") && HasFileIn(folder, "target.spm");
    return both ? Status() : missing("source.spm and target.spm");
  }
  const bool has_pieces = !FindSentencePieceFile(folder).empty();
  const bool has_json = HasFileIn(folder, "tokenizer.json");
  return has_pieces || has_json
             ? Status()
             : missing("sentencepiece.bpe.model, spiece.model or tokenizer.json");
}

Status CTranslate2Folder::MakeStandIns(const HfFamily& family) {
  auto& stand_ins = config_.stand_ins;
  const auto add = [&](const char* name, Json json) {
    stand_ins[name] = std::make_shared<const Json>(std::move(json));
  };
  const auto tokenizer_with = [&](const Json& json) -> Status {
    KVANT_ASSIGN(const auto more,
                 formats::JsonObject::Parse(json.dump(), config_.tokenizer.where()));
    config_.tokenizer = more.With(config_.tokenizer);
    return {};
  };
  const TokenList& list = lists_.source;
  if (family.has_speech_tokens) {
    const bool has_own =
        HasFileIn(config_.folder, "tokenizer.json") ||
        (HasFileIn(config_.folder, "vocab.json") && HasFileIn(config_.folder, "merges.txt"));
    if (has_own) return {};
    const auto end = list.Find("<|endoftext|>");
    KVANT_ASSIGN(Json json,
                 TokenizerOfRanks(list.tokens, static_cast<size_t>(end.value_or(0)), list.file));
    add("tokenizer.json", std::move(json));
    return {};
  }
  if (family.translator.files == TranslatorFiles::kSourceAndTarget) {
    const auto with_zero = [&](const TokenList& one) {
      Json ids = IdsOf(one, one.tokens.size());
      ids.emplace(std::string(kZeroToken), one.tokens.size());
      return ids;
    };
    add("vocab.json", with_zero(list));
    if (lists_.target) add("target_vocab.json", with_zero(*lists_.target));
    return {};
  }
  if (family.translator.files == TranslatorFiles::kManyLanguages) {
    const size_t first = TokensBeforeLanguages(list, family.translator.codes);
    if (first == list.tokens.size()) return CheckLanguages(list, family);
    add("vocab.json", IdsOf(list, first));
    // The languages of models of fewer of them follow the others in an order of their own.
    const bool others = !list.Find(fmt::format("__{}__", family.translator.codes.front()));
    return others ? tokenizer_with({{"language_codes", family.translator.other_set}}) : Status();
  }
  Json extra = Json::object();
  AddExtraIds(list, extra);
  return tokenizer_with(extra);
}

}  // namespace kvant::convert
