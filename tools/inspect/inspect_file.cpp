#include "tools/inspect/inspect_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "base/counted.h"
#include "engine/text/languages.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

Json ModelJson(const formats::GgufFile& file, const ModelFacts& facts) {
  Json types = Json::array();
  for (const ModelFacts::TypeShare& share : facts.types) {
    types.push_back({{"type", share.name},
                     {"tensors", share.tensors},
                     {"values", share.values},
                     {"bytes", share.bytes}});
  }
  return {{"file", file.path()},
          {"gguf_version", file.version()},
          {"shards", file.shards()},
          {"file_bytes", file.file_bytes()},
          {"alignment", file.alignment()},
          {"architecture", facts.architecture},
          {"parameters", facts.parameters},
          {"tensors", file.tensors().size()},
          {"tensor_bytes", facts.tensor_bytes},
          {"bits_per_weight", facts.bits_per_weight()},
          {"types", std::move(types)}};
}

std::string ModelText(const Json& model) {
  std::string out = fmt::format(
      "file          {}\n"
      "format        GGUF v{}, {}, {}\n"
      "architecture  {}\n"
      "parameters    {} ({})\n"
      "weights       {} in {}, {:.2f} bits per weight\n",
      Visible(model["file"].get<std::string>()), model["gguf_version"].get<uint32_t>(),
      Counted(model["shards"].get<int>(), "shard"), SizeText(model["file_bytes"].get<uint64_t>()),
      model["architecture"].get<std::string>().empty() ? "not named in the file"
                                                       : model["architecture"].get<std::string>(),
      CountText(model["parameters"].get<uint64_t>()), model["parameters"].get<uint64_t>(),
      SizeText(model["tensor_bytes"].get<uint64_t>()),
      Counted(model["tensors"].get<size_t>(), "tensor"), model["bits_per_weight"].get<double>());
  for (const Json& type : model["types"]) {
    out += fmt::format(
        "  {:<10}  {:>5} tensor{}  {:>10} values  {:>12}\n", type["type"].get<std::string>(),
        type["tensors"].get<uint64_t>(), type["tensors"].get<uint64_t>() == 1 ? " " : "s",
        CountText(type["values"].get<uint64_t>()), SizeText(type["bytes"].get<uint64_t>()));
  }
  return out;
}

Json TokenizerJson(const formats::GgufFile& file, const TokenizerOptions& options) {
  const auto created = Tokenizer::Create(file, options);
  if (!created.ok()) return {{"error", created.error().message}};
  const Tokenizer& tokenizer = **created;
  const SpecialTokens& special = tokenizer.special();
  Json out = {{"kind", tokenizer.kind()},
              {"pre", tokenizer.pre_tokenizer()},
              {"vocab_size", tokenizer.vocab_size()},
              {"add_bos", special.add_bos},
              {"add_eos", special.add_eos}};
  const std::pair<const char*, std::optional<TokenId>> named[] = {
      {"bos", special.bos}, {"eos", special.eos}, {"eot", special.eot}, {"unk", special.unk},
      {"sep", special.sep}, {"pad", special.pad}, {"cls", special.cls}, {"mask", special.mask}};
  for (const auto& [name, id] : named) {
    if (id.has_value()) out[name] = {{"id", *id}, {"piece", std::string(tokenizer.piece(*id))}};
  }
  out["end_of_generation"] = special.end_of_generation;
  const auto arch = file.GetString("general.architecture");
  if (!arch.ok() || !*arch) return out;
  const auto languages = ReadLanguages(file, **arch, tokenizer.vocab_size());
  if (!languages.ok()) return {{"error", languages.error().message}};
  for (const TokenId token : languages->tokens) {
    out["languages"].push_back(std::string(LanguageName(tokenizer.piece(token))));
  }
  return out;
}

std::string TokenizerText(const Json& tokenizer) {
  if (tokenizer.contains("error")) {
    return fmt::format("tokenizer     not usable: {}\n",
                       Visible(tokenizer["error"].get<std::string>()));
  }
  const std::string pre = tokenizer["pre"].get<std::string>();
  std::string out = fmt::format("tokenizer     {}{}, {}", tokenizer["kind"].get<std::string>(),
                                pre.empty() ? "" : " (" + Visible(pre) + ")",
                                Counted(tokenizer["vocab_size"].get<int32_t>(), "token"));
  for (const char* name : {"bos", "eos", "eot", "unk", "sep", "pad", "cls", "mask"}) {
    if (!tokenizer.contains(name)) continue;
    const Json& token = tokenizer[name];
    out += fmt::format(", {} {} {}", name, token["id"].get<TokenId>(),
                       Visible(token["piece"].get<std::string>()));
  }
  out += tokenizer["add_bos"].get<bool>() ? ", BOS is added\n" : "\n";
  if (!tokenizer.contains("languages")) return out;
  std::string names;
  for (const Json& name : tokenizer["languages"]) {
    names += (names.empty() ? "" : ", ") + Visible(name.get<std::string>());
  }
  return out + fmt::format("languages     {}: {}\n", tokenizer["languages"].size(), names);
}

Json TensorsJson(const formats::GgufFile& file) {
  Json out = Json::array();
  for (const formats::GgufTensor& tensor : file.tensors()) {
    out.push_back({{"name", std::string(tensor.name)},
                   {"type", formats::TensorTypeName(tensor)},
                   {"shape", std::vector<int64_t>(tensor.dims, tensor.dims + tensor.n_dims)},
                   {"bytes", tensor.size_bytes},
                   {"shard", tensor.shard}});
  }
  return out;
}

std::string TensorsText(const Json& tensors) {
  std::string out;
  for (const Json& tensor : tensors) {
    out += fmt::format(
        "  {:<36} {:<6} {:>20} {:>12}\n", Visible(tensor["name"].get<std::string>()),
        tensor["type"].get<std::string>(),
        fmt::format("{}", fmt::join(tensor["shape"].get<std::vector<int64_t>>(), " x ")),
        SizeText(tensor["bytes"].get<uint64_t>()));
  }
  return out;
}

}  // namespace kvant::tools
