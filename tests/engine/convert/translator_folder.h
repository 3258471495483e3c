// Folders of translators in tests/reference/translators with the weights that belong to them, and
// what transformers makes of texts with them (make_translator_cases.py).
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/convert/convert.h"
#include "engine/text/languages.h"
#include "kvant/model.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/formats/safetensors_bytes.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {

class TranslatorFolder {
 public:
  // `name` is that of the cases; `files` that of the folder, where it is another one. `change` is
  // done to the cases before the weights are made.
  explicit TranslatorFolder(
      const std::string& name, const std::string& files = "",
      const std::function<void(nlohmann::json&)>& change = [](nlohmann::json&) {})
      : cases(Read(name + ".json")) {
    change(cases);
    const std::string folder = files.empty() ? name : files;
    Copy(folder == "nllb-legacy" ? "nllb" : folder);
    if (folder == "marian-two") {
      for (const char* spm : {"source.spm", "target.spm"}) CopyFile("marian", spm);
    }
    if (folder == "nllb-json") CopyFile("nllb", "config.json");
    if (folder == "nllb-legacy") {
      Change("tokenizer_config.json", [](auto& config) { config["legacy_behaviour"] = true; });
    }
    SafetensorsBuilder builder;
    for (const auto& row : cases["tensors"]) {
      HfWeights weights = SeededWeights(row);
      if (row["name"] == "final_logits_bias" && cases["pad_bias"] != 0) {
        const auto config = nlohmann::json::parse(std::ifstream(folder_ / "config.json"));
        weights.values[config["pad_token_id"].get<size_t>()] = cases["pad_bias"];
      }
      builder.AddF32(row["name"], weights.shape, weights.values);
    }
    builder.Write(folder_ / "model.safetensors");
  }

  static nlohmann::json Read(const std::string& name) {
    return nlohmann::json::parse(std::ifstream(SourcePath("tests/reference/translators/" + name)));
  }

  std::string Path(const std::string& name) const { return folder_ / name; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  template <class F>
  void Change(const std::string& name, F change) const {
    auto content = nlohmann::json::parse(std::ifstream(folder_ / name));
    change(content);
    Write(name, content.dump());
  }

  Result<std::string> Convert() const {
    const std::string output = folder_ / "out.gguf";
    KVANT_TRY(convert::ConvertFolder(folder_.path(), output, {.threads = 1}));
    return output;
  }
  std::string Message() const {
    const auto path = Convert();
    return path.ok() ? "accepted" : path.error().message;
  }
  std::shared_ptr<const Model> Open() const {
    const auto path = Convert();
    EXPECT_TRUE(path.ok()) << path.error().message;
    if (!path.ok()) return nullptr;
    auto model = Model::Open(*path);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? *model : nullptr;
  }

  // The languages of the cases.
  LanguageNames Languages() const {
    LanguageNames names;
    if (cases["source_language"].is_string()) names.source = cases["source_language"];
    if (cases["target_language"].is_string()) names.target = cases["target_language"];
    return names;
  }

  nlohmann::json cases;

 private:
  void Copy(const std::string& name) const {
    const std::string from = SourcePath("tests/reference/translators/" + name);
    for (const auto& entry : std::filesystem::directory_iterator(from)) {
      CopyFile(name, entry.path().filename().string());
    }
  }
  void CopyFile(const std::string& name, const std::string& file) const {
    std::filesystem::copy_file(SourcePath("tests/reference/translators/" + name + "/" + file),
                               folder_ / file);
  }

  TemporaryFolder folder_;
};

}  // namespace kvant::test
