// Folders of CTranslate2 in tests/reference/ctranslate2 with the files of their tokenizers, and
// changes of their weights.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/convert/convert.h"
#include "formats/ctranslate2.h"
#include "kvant/model.h"
#include "tests/formats/ctranslate2_bytes.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {

inline std::string ReferencePath(const std::string& name) {
  return SourcePath("tests/reference/" + name);
}

// A copy of a folder with the files of its tokenizer.
class CTranslate2Copy {
 public:
  explicit CTranslate2Copy(const std::string& name)
      : case_(
            nlohmann::json::parse(std::ifstream(ReferencePath("ctranslate2/" + name + ".json")))) {
    for (const auto& entry :
         std::filesystem::directory_iterator(ReferencePath("ctranslate2/" + name))) {
      std::filesystem::copy_file(entry.path(), folder_ / entry.path().filename().string());
    }
    for (const auto& [file, where] : case_["tokenizer"].items()) {
      std::filesystem::copy_file(ReferencePath(where), folder_ / file);
    }
  }

  const nlohmann::json& given() const { return case_; }
  std::string operator/(const std::string& name) const { return folder_ / name; }
  std::string Path() const { return folder_.path(); }
  nlohmann::json ReadJson(const std::string& name) const {
    return nlohmann::json::parse(std::ifstream(folder_ / name));
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  void Set(const std::string& name, const std::string& key, const nlohmann::json& value) const {
    nlohmann::json content = ReadJson(name);
    content[key] = value;
    Write(name, content.dump());
  }

  // The weights as they are, for changes.
  CTranslate2Builder Weights() const {
    const auto model = formats::CTranslate2Model::Open(folder_ / "model.bin");
    EXPECT_TRUE(model.ok()) << model.error().message;
    CTranslate2Builder builder;
    builder.spec = model->spec();
    for (const auto& variable : model->variables()) {
      const std::vector<uint32_t> shape(variable.shape.begin(), variable.shape.end());
      constexpr std::string_view kTypes[] = {"F32", "I8", "I16", "I32", "F16", "BF16"};
      const auto type = std::ranges::find(kTypes, variable.type->name) - std::begin(kTypes);
      builder.variables.push_back(
          {variable.name, shape, static_cast<uint8_t>(type),
           std::string(reinterpret_cast<const char*>(variable.data), variable.size_bytes)});
    }
    // Variables that CTranslate2's converter found to be equal.
    std::vector<std::string> names = {"encoder/embeddings_0/weight", "decoder/projection/weight",
                                      "encoder/position_encodings/encodings"};
    for (const char* stack : {"encoder", "decoder"}) {
      names.push_back(std::string(stack) + "/layer_1/self_attention/relative_attention_bias");
    }
    for (const std::string& name : names) {
      const auto* variable = model->Find(name);
      const bool is_alias = variable != nullptr && variable->name != name;
      if (is_alias) builder.aliases.emplace_back(name, variable->name);
    }
    return builder;
  }

  // Without aliases every stack has weights of its own, as in files of older versions.
  CTranslate2Builder WeightsWithoutAliases() const {
    CTranslate2Builder builder = Weights();
    for (const auto& [alias, name] : builder.aliases) {
      // An alias means the scales of the variable, too.
      for (const char* ending : {"", "_scale"}) {
        if (!builder.Has(name + ending)) continue;
        CTranslate2Variable copy = builder[name + ending];
        copy.name = alias + ending;
        builder.variables.push_back(copy);
      }
    }
    builder.aliases.clear();
    return builder;
  }

  Result<std::string> Convert(const std::string& type = "f32") const {
    const std::string output = out_ / "out.gguf";
    KVANT_TRY(convert::ConvertFolder(folder_.path(), output, {.type = type, .threads = 1}));
    return output;
  }
  std::string Message() const {
    const auto path = Convert();
    return path.ok() ? "accepted" : path.error().message;
  }
  std::string MessageWith(const CTranslate2Builder& weights) const {
    weights.Write(folder_ / "model.bin");
    return Message();
  }

 private:
  TemporaryFolder folder_;
  TemporaryFolder out_;
  nlohmann::json case_;
};

inline std::shared_ptr<const Model> OpenConverted(const CTranslate2Copy& copy) {
  const auto path = copy.Convert();
  EXPECT_TRUE(path.ok()) << path.error().message;
  if (!path.ok()) return nullptr;
  auto model = Model::Open(*path);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *model : nullptr;
}

}  // namespace kvant::test
