// Models of tests/reference/seeded: small Hugging Face folders whose weights are made again from
// the names of their tensors, with the logits that transformers computes from them. How numbers
// follow from a name is told in tests/reference/make_seeded_models.py.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/convert/convert.h"
#include "kvant/model.h"
#include "tests/engine/convert/hf_folder.h"
#include "tests/shared_data.h"

namespace kvant::test {

// The folders of encoder-decoders, of those that read frames, and of encoders alone.
inline constexpr const char* kSeededPairs = "encoder_decoders/";
inline constexpr const char* kSeededSpeech = "speech/";
inline constexpr const char* kSeededEncoders = "encoders/";
// The folders of embedding models and rerankers.
inline constexpr const char* kSeededEmbedders = "embedders/";

// "gemma", "olmo2" and so on.
inline std::vector<std::string> SeededModelNames(const std::string& folder = "") {
  std::vector<std::string> names;
  const std::string path = SourcePath("tests/reference/seeded/" + folder);
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The numbers of a tensor, by its row of the reference.
inline HfWeights SeededWeights(const nlohmann::json& row) {
  HfWeights weights{row["shape"].get<std::vector<int64_t>>(), {}};
  int64_t count = 1;
  for (const int64_t size : weights.shape) count *= size;
  uint64_t state = 0xcbf29ce484222325;
  for (const char byte : row["name"].get<std::string>()) {
    state = (state ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  const double mean = row["mean"];
  const double spread = row["spread"];
  for (int64_t i = 0; i < count; ++i) {
    state += 0x9e3779b97f4a7c15;
    uint64_t x = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
    const double top = static_cast<double>(x >> 48);
    weights.values.push_back(static_cast<float>(mean + spread * ((top - 32767.5) / 32768.0)));
  }
  return weights;
}

class SeededModel {
 public:
  explicit SeededModel(const std::string& name)
      : path_(SourcePath("tests/reference/seeded/" + name)),
        json_(nlohmann::json::parse(std::ifstream(path_ + ".json"))),
        config(json_["config"]) {}

  int64_t context() const { return json_["context"]; }
  std::vector<TokenId> Tokens() const { return json_["tokens"].get<std::vector<TokenId>>(); }
  std::string LogitsPath() const { return path_ + ".npy"; }
  // The tokens of an encoder-decoder's source; EncodedPath() has the encoder's output.
  std::vector<TokenId> Source() const { return json_["source"].get<std::vector<TokenId>>(); }
  // The frames of a model that reads frames, [values of a frame][frames]. Every EncodedStep()-th
  // row of the encoder's output is in the file.
  std::vector<float> Frames() const { return SeededWeights(json_["frames"]).values; }
  size_t EncodedStep() const { return json_.value("encoded_step", size_t{1}); }
  std::string EncodedPath() const { return path_ + ".encoded.npy"; }
  // The segments of an embedding model's source; empty where all are 0. The vector that the source
  // becomes, and the logits of a reranker; empty where there are none.
  std::vector<int32_t> Types() const { return ListOf<int32_t>("types"); }
  std::vector<float> Vector() const { return ListOf<float>("vector"); }
  std::vector<float> Logits() const { return ListOf<float>("logits"); }
  std::string SearchesPath() const { return path_ + ".searches.jsonl"; }

  // The model as a GGUF file of 32-bit floats.
  Result<std::string> Convert() {
    folder_.config = config;
    folder_.weights.clear();
    for (const auto& row : json_["tensors"])
      folder_.weights[rename(row["name"])] = SeededWeights(row);
    for (const auto& [name, weights] : extra) folder_.weights[name] = weights;
    if (change_weights) change_weights(folder_.weights);
    folder_.integers = integers;
    for (const auto& token : added_tokens) folder_.tokenizer["added_tokens"].push_back(token);
    folder_.Write();
    if (!config_text.empty()) folder_.WriteText("config.json", config_text);
    if (!generation.is_null()) folder_.WriteJson("generation_config.json", generation);
    if (!vocabulary_file.empty()) folder_.WriteText(vocabulary_file, "pieces");
    WriteFurtherFiles();
    if (!model_folder.empty()) MoveModel();
    const std::string output = folder_ / "out.gguf";
    KVANT_TRY(convert::ConvertFolder(folder_.Path(), output, {.task = task, .threads = 1}));
    return output;
  }

  // Tensors of the folder get other names.
  std::function<std::string(const std::string&)> rename = [](const std::string& name) {
    return name;
  };

  // A file beside tokenizer.json; "": there is none.
  std::string vocabulary_file;

  // The folder in the folder that has the model; "": the model lies beside the further files.
  std::string model_folder;

  std::string task;  // ConvertOptions::task

  // generation_config.json; null: there is none.
  nlohmann::json generation;

  // Further tokens of the folder's tokenizer.json.
  std::vector<nlohmann::json> added_tokens;

  // Changes the folder's tensors. Empty: nothing does.
  std::function<void(std::map<std::string, HfWeights>&)> change_weights;

  // The text of config.json; "": that of `config`.
  std::string config_text;

  // Further tensors of the folder.
  std::map<std::string, HfWeights> extra;
  std::map<std::string, std::vector<int64_t>> integers;

  // The message that refuses the folder; "accepted" if none does.
  std::string Message() {
    const auto path = Convert();
    return path.ok() ? "accepted" : path.error().message;
  }

  std::shared_ptr<const Model> Open(const ModelOptions& options = {}) {
    const auto path = Convert();
    EXPECT_TRUE(path.ok()) << path.error().message;
    if (!path.ok()) return nullptr;
    auto model = Model::Open(*path, options);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? *model : nullptr;
  }

 private:
  template <class T>
  std::vector<T> ListOf(const char* key) const {
    return json_.value(key, nlohmann::json::array()).get<std::vector<T>>();
  }

  // Files in folders of the folder, as sentence-transformers has them.
  void WriteFurtherFiles() {
    const auto make_folder = [this](const std::string& name) {
      std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    };
    for (const auto& [name, content] : files.items()) {
      make_folder(name);
      folder_.WriteJson(name, content);
    }
    const auto tensors = json_.value("file_tensors", nlohmann::json::object());
    for (const auto& [name, rows] : tensors.items()) {
      make_folder(name);
      SafetensorsBuilder builder;
      for (const auto& row : rows) {
        const HfWeights weights = SeededWeights(row);
        builder.AddF32(row["name"], weights.shape, weights.values);
      }
      builder.Write(folder_ / name);
    }
  }

  void MoveModel() const {
    std::filesystem::create_directories(folder_ / model_folder);
    for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
      std::filesystem::rename(folder_ / name, folder_ / model_folder + "/" + name);
    }
  }

  std::string path_;
  nlohmann::json json_;
  HfFolder folder_;

 public:
  nlohmann::json config;  // of the folder, to be changed by a test
  // Further files of the folder by their names, to be changed by a test.
  nlohmann::json files = json_.value("files", nlohmann::json::object());
};

}  // namespace kvant::test
