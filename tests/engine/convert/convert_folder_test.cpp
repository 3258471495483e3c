// Conversion of whole folders: against a file that another converter made, against the definition
// of the permutation, and one clear error for everything that cannot be converted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>

#include "base/half.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/arch/family.h"
#include "engine/convert/convert.h"
#include "formats/gguf.h"
#include "tests/engine/arch/attentions.h"
#include "tests/engine/convert/hf_folder.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using convert::ConvertOptions;
using formats::GgufFile;
using formats::GgufTensor;
using testing::HasSubstr;

Result<GgufFile> Convert(const HfFolder& folder, const std::string& type = "") {
  const std::string output = folder / "out.gguf";
  KVANT_ASSIGN(const auto summary,
               convert::ConvertFolder(folder.Path(), output, {.type = type, .threads = 2}));
  EXPECT_GT(summary.tensors, 0);
  return GgufFile::Open(output);
}

// The error of a folder that was changed, "accepted" if there is none.
std::string Message(const std::function<void(HfFolder&)>& change,
                    const std::string& hf_class = "LlamaForCausalLM") {
  HfFolder folder(hf_class);
  change(folder);
  folder.Write();
  const auto file = Convert(folder);
  EXPECT_EQ(std::filesystem::exists(folder / "out.gguf"), file.ok());
  return file.ok() ? "accepted" : file.error().message;
}

std::vector<float> Values(const GgufFile& file, const std::string& name) {
  const GgufTensor* tensor = file.FindTensor(name);
  if (tensor == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(tensor->n_values()));
  tensor->format->decode(tensor->data, values.data(), tensor->n_values());
  return values;
}

// transformers turns rows i and i + head_dim / 2 of a head together; llama.cpp rows 2 i and 2 i
// + 1.
std::vector<float> Interleaved(const std::vector<float>& values, int64_t heads, int64_t head_dim,
                               int64_t columns) {
  std::vector<float> out(values.size());
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t from = head * head_dim + half * (head_dim / 2) + pair;
        const int64_t to = head * head_dim + 2 * pair + half;
        for (int64_t c = 0; c < columns; ++c) {
          out[static_cast<size_t>(to * columns + c)] =
              values[static_cast<size_t>(from * columns + c)];
        }
      }
    }
  }
  return out;
}

TEST(ConvertFolder, TrainedModelEqualsItsGguf) {
  const std::string folder = SharedPath("models/tinystories-656k");
  KVANT_SKIP_WITHOUT(folder);
  TemporaryFolder temporary;
  const auto summary = convert::ConvertFolder(folder, temporary / "out.gguf", ConvertOptions{});
  ASSERT_TRUE(summary.ok()) << summary.error().message;
  EXPECT_EQ(summary->type, "f32");
  const auto ours = GgufFile::Open(temporary / "out.gguf");
  const auto theirs = GgufFile::Open(folder + "/TinyStories-656K-f32.gguf");
  ASSERT_TRUE(ours.ok() && theirs.ok());
  ASSERT_EQ(ours->tensors().size(), theirs->tensors().size());
  for (const GgufTensor& expected : theirs->tensors()) {
    const GgufTensor* found = ours->FindTensor(expected.name);
    ASSERT_NE(found, nullptr) << expected.name;
    EXPECT_EQ(found->format, expected.format);
    ASSERT_EQ(found->size_bytes, expected.size_bytes) << expected.name;
    EXPECT_EQ(std::memcmp(found->data, expected.data, found->size_bytes), 0) << expected.name;
  }
  for (const auto& [key, expected] : theirs->metadata()) {
    if (key == "general.name") continue;
    const auto* found = ours->Find(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_EQ(found->type, expected.type) << key;
    const auto* array = std::get_if<formats::GgufArray>(&expected.value);
    if (array == nullptr) {
      EXPECT_TRUE(std::visit(
          [&](const auto& value) {
            using Value = std::decay_t<decltype(value)>;
            if constexpr (std::is_same_v<Value, formats::GgufArray>)
              return false;
            else
              return std::get<Value>(found->value) == value;
          },
          expected.value))
          << key;
      continue;
    }
    const auto& found_array = std::get<formats::GgufArray>(found->value);
    EXPECT_EQ(found_array.strings, array->strings) << key;
    ASSERT_EQ(found_array.count, array->count) << key;
    if (array->strings.empty()) {
      EXPECT_EQ(std::memcmp(found_array.data, array->data, array->count * 4), 0) << key;
    }
  }
}

TEST(ConvertFolder, InterleavesTheRowsOfQAndK) {
  HfFolder folder;
  folder.Add("model.layers.1.self_attn.q_proj.bias", {32});
  folder.Add("model.layers.0.self_attn.rotary_emb.inv_freq", {4});  // left out
  folder.Write();
  const auto file = Convert(folder);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 3u + 2 * 9 + 1);
  const auto source = [&](const char* name) { return folder.weights.at(name).values; };
  EXPECT_EQ(Values(*file, "blk.1.attn_q.weight"),
            Interleaved(source("model.layers.1.self_attn.q_proj.weight"), 4, 8, 32));
  EXPECT_EQ(Values(*file, "blk.1.attn_k.weight"),
            Interleaved(source("model.layers.1.self_attn.k_proj.weight"), 2, 8, 32));
  EXPECT_EQ(Values(*file, "blk.1.attn_q.bias"),
            Interleaved(source("model.layers.1.self_attn.q_proj.bias"), 4, 8, 1));
  EXPECT_EQ(Values(*file, "blk.1.attn_v.weight"), source("model.layers.1.self_attn.v_proj.weight"));
  EXPECT_EQ(Values(*file, "blk.0.ffn_down.weight"), source("model.layers.0.mlp.down_proj.weight"));
  EXPECT_EQ(Values(*file, "output.weight"), source("lm_head.weight"));
  EXPECT_EQ(file->FindTensor("blk.0.ffn_down.weight")->dims[0], HfFolder::kFfn);
  const auto spec = arch::ReadSpec(*file);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(test::Attentions(spec->stacks.front())[0]->kv_heads, 2);
}

TEST(ConvertFolder, KeepsFusedMatricesAndLongRopeFactors) {
  HfFolder folder("Phi3ForCausalLM");
  folder.config["original_max_position_embeddings"] = 32;
  folder.config["sliding_window"] = 16;
  folder.config["rope_scaling"] = {{"type", "longrope"},
                                   {"short_factor", {1.0, 1.5, 2.0, 2.5}},
                                   {"long_factor", {1.0, 10.0, 20.0, 40.5}}};
  folder.Write();
  const auto file = Convert(folder);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(Values(*file, "blk.1.attn_qkv.weight"),
            folder.weights.at("model.layers.1.self_attn.qkv_proj.weight").values);
  const auto spec = arch::ReadSpec(*file);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(test::Attentions(spec->stacks.front())[1]->mask.window, 16);
  EXPECT_EQ(spec->ropes.front().original_context, 32);
  EXPECT_THAT(spec->ropes.front().factors, testing::ElementsAre(1.0f, 1.5f, 2.0f, 2.5f));
  EXPECT_THAT(spec->ropes.front().factors_long, testing::ElementsAre(1.0f, 10.0f, 20.0f, 40.5f));
  EXPECT_FLOAT_EQ(spec->ropes.front().amplitude,
                  std::sqrt(1.0f + std::log(4.0f) / std::log(32.0f)));
}

TEST(ConvertFolder, Llama3FactorsFollowTheDefinition) {
  HfFolder folder;
  folder.config["rope_theta"] = 500000.0;
  folder.config["rope_scaling"] = {{"rope_type", "llama3"},
                                   {"factor", 8.0},
                                   {"low_freq_factor", 1.0},
                                   {"high_freq_factor", 4.0},
                                   {"original_max_position_embeddings", 8192}};
  folder.Write();
  const auto file = Convert(folder);
  ASSERT_TRUE(file.ok()) << file.error().message;
  // Wavelengths 6.3 and 167 are short; 4443 lies between 8192 / 4 and 8192 / 1; 118142 is long.
  const double smooth = (8192 / (2 * M_PI * std::pow(500000.0, 0.5)) - 1.0) / 3.0;
  const double blended = 1 / ((1 - smooth) / 8 + smooth);
  EXPECT_THAT(
      Values(*file, "rope_freqs.weight"),
      testing::ElementsAre(1.0f, 1.0f, testing::FloatEq(static_cast<float>(blended)), 8.0f));
}

TEST(ConvertFolder, TiedWeightsAreWrittenOnce) {
  for (const char* left_out : {"lm_head.weight", "model.embed_tokens.weight", ""}) {
    HfFolder folder;
    folder.config["tie_word_embeddings"] = true;
    const auto expected = folder.weights.at("model.embed_tokens.weight").values;
    folder.weights["lm_head.weight"] = folder.weights.at("model.embed_tokens.weight");
    folder.weights.erase(left_out);
    folder.Write();
    const auto file = Convert(folder);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->FindTensor("output.weight"), nullptr);
    EXPECT_EQ(Values(*file, "token_embd.weight"), expected) << left_out;
  }
}

// Folders of models that were trained further may say that the output is the embedding, and hold
// another one. transformers 5 takes what the folder holds.
TEST(ConvertFolder, OutputsThatDifferFromTheEmbeddingAreKept) {
  for (const bool last_differs : {false, true}) {
    HfFolder folder;
    folder.config["tie_word_embeddings"] = true;
    if (last_differs) {
      folder.weights["lm_head.weight"] = folder.weights.at("model.embed_tokens.weight");
      folder.weights["lm_head.weight"].values.back() += 1e-3f;
    }
    folder.Write();
    std::vector<std::string> said;
    SetLogSink([&](LogLevel, std::string_view line) { said.emplace_back(line); });
    const auto file = Convert(folder);
    SetLogSink({});
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(Values(*file, "output.weight"), folder.weights.at("lm_head.weight").values);
    EXPECT_EQ(Values(*file, "token_embd.weight"),
              folder.weights.at("model.embed_tokens.weight").values);
    EXPECT_THAT(said, testing::ElementsAre(HasSubstr(
                          "tensors \"lm_head.weight\" and \"model.embed_tokens.weight\" differ")));
  }
}

TEST(ConvertFolder, TypesOfMatricesAndVectors) {
  HfFolder folder;
  folder.weights.at("model.norm.weight").values[3] = std::numeric_limits<float>::quiet_NaN();
  folder.weights.at("lm_head.weight").values[0] = std::numeric_limits<float>::infinity();
  folder.Write();
  struct Expected {
    const char* type;
    const char* format;
    uint32_t file_type;
  };
  for (const Expected& expected :
       {Expected{"f32", "F32", 0}, {"f16", "F16", 1}, {"bf16", "BF16", 32}, {"q8_0", "Q8_0", 7}}) {
    const auto file = Convert(folder, expected.type);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->FindTensor("blk.0.ffn_up.weight")->format->name, std::string(expected.format));
    EXPECT_EQ(file->FindTensor("blk.0.ffn_norm.weight")->format->name, std::string("F32"));
    EXPECT_EQ(**file->GetU32("general.file_type"), expected.file_type);
    EXPECT_TRUE(std::isnan(Values(*file, "output_norm.weight")[3]));
    // The encoders have their own tests; here only that every row went through one.
    const auto values = Values(*file, "blk.1.ffn_down.weight");
    const auto& source = folder.weights.at("model.layers.1.mlp.down_proj.weight").values;
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], source[i], 0.01f) << i;
  }
  const auto f16 = Convert(folder, "f16");
  const auto values = Values(*f16, "blk.1.ffn_gate.weight");
  const auto& source = folder.weights.at("model.layers.1.mlp.gate_proj.weight").values;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], F16ToF32(F32ToF16(source[i]))) << i;
  }
  EXPECT_FALSE(Convert(folder, "q4_0").ok());
}

TEST(ConvertFolder, ShardsAndOtherFloatsGiveTheSameFile) {
  HfFolder whole;
  whole.Write();
  const auto expected = Convert(whole, "f32");
  ASSERT_TRUE(expected.ok());
  HfFolder sharded;
  sharded.Write();
  std::filesystem::remove(sharded / "model.safetensors");
  SafetensorsBuilder shards[2];
  int count = 0;
  for (const auto& [name, tensor] : sharded.weights) {
    const std::vector<double> doubles(tensor.values.begin(), tensor.values.end());
    const std::string bytes(reinterpret_cast<const char*>(doubles.data()), doubles.size() * 8);
    shards[count++ % 2].Add(name, "F64", tensor.shape, bytes);
  }
  shards[0].Write(sharded / "model-00001-of-00002.safetensors");
  shards[1].Write(sharded / "model-00002-of-00002.safetensors");
  const auto file = Convert(sharded, "f32");
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (const GgufTensor& tensor : expected->tensors()) {
    EXPECT_EQ(Values(*file, std::string(tensor.name)), Values(*expected, std::string(tensor.name)));
  }
}

TEST(ConvertFolder, RefusesWhatItCannotExpress) {
  using F = HfFolder;
  const auto config = [](const char* key, nlohmann::json value) {
    return Message([&](F& folder) { folder.config[key] = value; });
  };
  EXPECT_THAT(config("architectures", {"XLNetLMHeadModel"}),
              HasSubstr("class \"XLNetLMHeadModel\" cannot be converted; 'kvant convert "
                        "--list-classes' lists the classes that can"));
  for (const auto& [name, meaning] :
       {std::pair{"AlbertModel", "cannot be converted: it is an encoder as BERT"},
        std::pair{"CLIPModel", "it reads images"}, std::pair{"Wav2Vec2ForCTC", "it reads sound"},
        std::pair{"GemmaForSequenceClassification", "it gives labels, not texts"},
        std::pair{"GemmaModel", "it is the inner part of GemmaForCausalLM"},
        std::pair{"LlamaModel", "it is the inner part of another class"},
        std::pair{"WhisperModel", "it is the inner part of WhisperForConditionalGeneration"}}) {
    const std::string message = config("architectures", {name});
    EXPECT_THAT(message, HasSubstr(meaning));
    EXPECT_LT(message.size(), 400u);
  }
  EXPECT_THAT(config("architectures", nullptr), HasSubstr("architectures is missing"));
  EXPECT_THAT(config("quantization_config", {{"quant_method", "gptq"}}),
              HasSubstr("quantized already (gptq)"));
  EXPECT_THAT(config("num_local_experts", 8), HasSubstr("mixture of experts (8 experts)"));
  EXPECT_THAT(config("hidden_act", "gelu"), HasSubstr("hidden_act \"gelu\""));
  EXPECT_THAT(
      config("rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}),
      HasSubstr("type \"dynamic\" is not supported (known: default, linear, llama3, yarn)"));
  EXPECT_THAT(config("rope_scaling", {{"type", "linear"}, {"factor", -1}}),
              HasSubstr("factor is -1, expected a positive number"));
  EXPECT_THAT(config("hidden_size", 48), HasSubstr("but the sizes in config.json make [10, 48]"));
  EXPECT_THAT(config("hidden_size", "big"), HasSubstr("hidden_size is \"big\", expected"));
  EXPECT_THAT(config("num_key_value_heads", 3), HasSubstr("expected a divisor of 4"));
  EXPECT_THAT(config("num_hidden_layers", 3),
              HasSubstr("model.layers.2.input_layernorm.weight is missing"));
  EXPECT_THAT(config("num_hidden_layers", 1), HasSubstr("with 1 layers"));
  EXPECT_THAT(config("vocab_size", 8), HasSubstr("but config.json says that there are 8 tokens"));
  EXPECT_THAT(config("rms_norm_eps", nullptr), HasSubstr("rms_norm_eps is missing"));
  EXPECT_THAT(Message([](F& folder) { folder.weights.erase("lm_head.weight"); }),
              HasSubstr("lm_head.weight is missing, and config.json says"));
  EXPECT_THAT(Message([](F& folder) {
                folder.Add("model.layers.0.adapter.weight", {2, 2});
              }),
              HasSubstr("\"model.layers.0.adapter.weight\" has no place"));
  const auto phi3 = [](nlohmann::json scaling) {
    return Message([&](F& folder) { folder.config["rope_scaling"] = scaling; }, "Phi3ForCausalLM");
  };
  EXPECT_THAT(phi3({{"type", "longrope"}, {"long_factor", {1, 2}}}),
              HasSubstr("expected 4 numbers"));
  EXPECT_THAT(phi3({{"type", "linear"}, {"factor", 2}}), HasSubstr("known: default, longrope, su"));
}

TEST(ConvertFolder, RefusesIntegerWeights) {
  HfFolder folder;
  folder.Write();
  SafetensorsBuilder builder;
  for (const auto& [name, tensor] : folder.weights) {
    builder.Add(name, "I8", tensor.shape, std::string(tensor.values.size(), '\1'));
  }
  builder.Write(folder / "model.safetensors");
  const auto file = Convert(folder, "f16");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("holds I8 values"));
}

TEST(ConvertFolder, OneErrorForUnreadableFilesAndFullDisks) {
  HfFolder folder;
  const auto to = [&](const std::string& output) {
    const auto summary = convert::ConvertFolder(folder.Path(), output, ConvertOptions{});
    return summary.ok() ? "accepted" : summary.error().message;
  };
  EXPECT_THAT(to(folder / "x.gguf"), HasSubstr("config.json"));
  folder.Write();
  EXPECT_THAT(to("/dev/full"), HasSubstr("/dev/full: cannot write"));
  EXPECT_THAT(to(folder / "model.safetensors"), HasSubstr("the output is a file of the folder"));
  EXPECT_THAT(to("/nonexistent/x.gguf"), HasSubstr("/nonexistent/x.gguf: cannot create"));
  folder.WriteText("config.json", "{\"a\": ");
  EXPECT_THAT(to(folder / "x.gguf"), HasSubstr("config.json: not valid JSON at line 1"));
  folder.WriteText("config.json", "[]");
  EXPECT_THAT(to(folder / "x.gguf"), HasSubstr("expected a JSON object, found array"));
  folder.Write();
  std::filesystem::remove(folder / "tokenizer.json");
  EXPECT_THAT(to(folder / "x.gguf"), HasSubstr("no vocabulary"));
  const auto summary = convert::ConvertFolder("/nonexistent", "x.gguf", ConvertOptions{});
  ASSERT_FALSE(summary.ok());
  EXPECT_EQ(summary.error().message, "/nonexistent: no such folder");
}

TEST(ConvertFolder, CancellingLeavesTheOldFile) {
  HfFolder folder;
  folder.Write();
  folder.WriteText("out.gguf", "old");
  int calls = 0;
  const auto stop = [&](const convert::ConvertProgress& progress) -> Status {
    EXPECT_LE(progress.bytes_done, progress.bytes_total);
    if (++calls < 4) return {};
    return MakeError(ErrorCode::kCancelled, "interrupted");
  };
  const auto summary =
      convert::ConvertFolder(folder.Path(), folder / "out.gguf", {.on_progress = stop});
  ASSERT_FALSE(summary.ok());
  EXPECT_EQ(summary.error().code, ErrorCode::kCancelled);
  std::ifstream file(folder / "out.gguf");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "old");
  const std::filesystem::directory_iterator files(folder.Path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 4);
}

TEST(ConvertFolder, EveryFamilysClassesBecomeThatFamily) {
  std::set<std::string_view> names;
  std::set<std::string_view> classes;
  for (const arch::Family* family : arch::AllFamilies()) {
    EXPECT_TRUE(names.insert(family->name).second) << family->name << " is listed twice";
    EXPECT_FALSE(family->hf.empty()) << family->name;
    for (const arch::HfFamily& row : family->hf) {
      EXPECT_EQ(row.arch, family->name);
      EXPECT_FALSE(row.classes.empty());
      for (const std::string_view name : row.classes) {
        // Rows for models of a kind stand before the row for the others.
        if (row.is_of != nullptr) {
          EXPECT_FALSE(classes.contains(name)) << name;
          continue;
        }
        EXPECT_TRUE(classes.insert(name).second) << name << " is listed twice";
      }
    }
  }
}

}  // namespace
}  // namespace kvant::test
