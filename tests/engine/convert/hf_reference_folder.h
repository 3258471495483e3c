// Folders of tests/reference that hold a random Hugging Face model with what transformers computes
// from it: copied, changed as a test needs, and converted.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/convert/convert.h"
#include "kvant/model.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {

class HfReferenceFolder {
 public:
  // `name` is "gemma3/usual".
  explicit HfReferenceFolder(const std::string& name)
      : source_(SourcePath("tests/reference/" + name)) {
    std::filesystem::copy(source_, folder_.path(), std::filesystem::copy_options::recursive);
    config = nlohmann::json::parse(std::ifstream(source_ + "/config.json"));
  }

  std::string operator/(const std::string& name) const { return folder_ / name; }
  void Remove(const std::string& name) const { std::filesystem::remove(folder_ / name); }

  Result<std::string> Convert(const std::string& type = "") const {
    std::ofstream(folder_ / "config.json") << config;
    const std::string output = folder_ / "out.gguf";
    KVANT_TRY(
        convert::ConvertFolder(folder_.path().string(), output, {.type = type, .threads = 1}));
    return output;
  }

  // The error of a folder that cannot be converted; "accepted" if it can.
  std::string Message() const {
    const auto path = Convert();
    return path.ok() ? "accepted" : path.error().message;
  }

  std::shared_ptr<const Model> Open(const ModelOptions& options = {}) const {
    const auto path = Convert();
    EXPECT_TRUE(path.ok()) << path.error().message;
    if (!path.ok()) return nullptr;
    auto model = Model::Open(*path, options);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? *model : nullptr;
  }

  // The tokens, and the logits of each.
  std::vector<TokenId> Tokens() const { return ReadTokenList(source_ + "/tokens.txt"); }
  std::string LogitsPath() const { return source_ + "/logits.npy"; }

  nlohmann::json Texts() const {
    return nlohmann::json::parse(std::ifstream(source_ + "/texts.json"));
  }

  nlohmann::json config;

 private:
  std::string source_;
  TemporaryFolder folder_;
};

}  // namespace kvant::test
