// CTranslate2 folders that cannot be converted say what they are and what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/convert/ctranslate2/folder.h"
#include "tests/engine/convert/ctranslate2_copy.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Builder = CTranslate2Builder;

TEST(CTranslate2Refusals, OtherModelsSayWhatTheyAre) {
  const CTranslate2Copy copy("bart");
  Builder weights = copy.Weights();
  for (const auto& [spec, meaning] :
       {std::pair{"TransformerDecoderSpec", "(a decoder alone, as GPT or Llama)"},
        std::pair{"TransformerEncoderSpec", "(an encoder alone, as BERT)"},
        std::pair{"Wav2Vec2Spec", "(an encoder of sound)"},
        std::pair{"NewSpec", "(another kind of model)"}}) {
    weights.spec = spec;
    EXPECT_THAT(copy.MessageWith(weights), HasSubstr(meaning));
    EXPECT_THAT(copy.Message(), HasSubstr("convert the folder that it was made of"));
  }
  copy.Write("model.bin", "PK\x03\x04");
  EXPECT_THAT(copy.Message(), HasSubstr("model.bin: no model of CTranslate2"));
}

TEST(CTranslate2Refusals, WeightsOfAwq) {
  const CTranslate2Copy copy("bart");
  copy.Set("config.json", "quantization_type", 1);
  EXPECT_THAT(copy.Message(), HasSubstr("config.json: weights of AWQ"));
  copy.Set("config.json", "quantization_type", 0);
  Builder weights = copy.Weights();
  CTranslate2Variable& matrix = weights["encoder/layer_0/ffn/linear_0/weight"];
  matrix.type = 3;
  EXPECT_THAT(copy.MessageWith(weights),
              HasSubstr("\"encoder/layer_0/ffn/linear_0/weight\" holds I32 values"));
}

TEST(CTranslate2Refusals, WeightsThatDoNotFit) {
  const std::string name = "decoder/layer_0/attention/linear_1/weight";
  const auto with = [&](const auto& change) {
    const CTranslate2Copy one("marian");
    Builder weights = one.Weights();
    change(weights);
    return one.MessageWith(weights);
  };
  EXPECT_EQ(with([](Builder&) {}), "accepted");
  EXPECT_THAT(with([&](Builder& weights) { weights.Remove(name); }),
              HasSubstr("variable \"" + name + "\" is missing"));
  EXPECT_THAT(with([&](Builder& weights) { weights.Remove(name + "_scale"); }),
              HasSubstr("expected a variable \"" + name +
                        "_scale\" of one or 16 F32 values, "
                        "found none"));
  EXPECT_THAT(
      with([&](Builder& weights) { std::swap(weights[name].shape[0], weights[name].shape[1]); }),
      HasSubstr("has the shape [8, 16], expected [16, 8]"));
  EXPECT_THAT(with([&](Builder& weights) {
                weights[name + "_scale"].bytes.replace(4, 4, Builder::RawNumber(-1.0f));
              }),
              HasSubstr("_scale\": value 1 is -1, expected above 0"));
  EXPECT_THAT(with([](Builder& weights) {
                weights.AddF32("decoder/extra", {2}, {1, 2});
              }),
              HasSubstr("\"decoder/extra\" has no place in a model of class MarianMTModel"));
  EXPECT_THAT(with([](Builder& weights) {
                weights.AddF32("encoder/embeddings_1/weight", {1, 2}, {1, 2});
              }),
              HasSubstr("\"encoder/embeddings_1/weight\" has no place"));
  EXPECT_THAT(with([](Builder& weights) { weights["decoder/rotary_dim"].bytes = "\1"; }),
              HasSubstr("\"decoder/rotary_dim\" has no place"));
  EXPECT_THAT(with([](Builder& weights) { weights["encoder/layer_7/ffn/x"].bytes = "\1"; }),
              HasSubstr("\"encoder/layer_7/ffn/x\" has no place"));
  EXPECT_THAT(
      with([](Builder& weights) { weights.Remove("encoder/position_encodings/encodings"); }),
      HasSubstr("positions that CTranslate2 makes up itself"));
}

TEST(CTranslate2Refusals, TwoEmbeddingsOfOtherClasses) {
  for (const char* kind : {"bart", "t5"}) {
    const CTranslate2Copy copy(kind);
    Builder weights = copy.WeightsWithoutAliases();
    std::string& bytes = weights["encoder/embeddings_0/weight"].bytes;
    bytes[0] = static_cast<char>(bytes[0] ^ 1);
    EXPECT_THAT(copy.MessageWith(weights), HasSubstr("expected one embedding for both stacks"));
  }
}

TEST(CTranslate2Refusals, SettingsThatChangeTheModel) {
  const auto with = [](const char* kind, const char* name, const auto& number) {
    const CTranslate2Copy copy(kind);
    Builder weights = copy.WeightsWithoutAliases();
    CTranslate2Variable& variable = weights[name];
    variable.type = sizeof(number) == 4 ? 0 : 1;
    variable.bytes = Builder::RawNumber(number);
    return copy.MessageWith(weights);
  };
  EXPECT_THAT(with("bart", "decoder/alibi", int8_t{1}), HasSubstr("decoder/alibi\" is 1"));
  EXPECT_THAT(with("bart", "encoder/multi_query_attention", int8_t{1}),
              HasSubstr("multi_query_attention\" is 1, expected 0"));
  EXPECT_THAT(with("bart", "decoder/final_logit_softcapping", 30.0f),
              HasSubstr("final_logit_softcapping\" is 30, expected 0"));
  EXPECT_THAT(with("bart", "decoder/scale_embeddings", 3.0f), HasSubstr("scale_embeddings is 1"));
  EXPECT_THAT(with("bart", "decoder/scale_outputs", 0.5f), HasSubstr("scale_outputs\" is 0.5"));
  EXPECT_THAT(with("bart", "decoder/activation", int8_t{0}),
              HasSubstr("activation is 3 in the encoder, but 0 in the decoder"));
  EXPECT_THAT(with("bart", "decoder/pre_norm", int8_t{1}),
              HasSubstr("pre_norm is false in the encoder, but true in the decoder"));
  EXPECT_THAT(with("bart", "encoder/num_heads", int8_t{3}), HasSubstr("a multiple of 3 heads"));
  EXPECT_THAT(with("bart", "encoder/num_heads", int8_t{0}), HasSubstr("num_heads\" is 0"));
  EXPECT_THAT(with("bart", "decoder/start_from_zero_embedding", int8_t{1}),
              HasSubstr("zeros as first token and positions cannot be converted"));
  EXPECT_THAT(with("bart", "encoder/layer_0/self_attention/queries_scale", 1.0f),
              HasSubstr("queries_scale\" is 1, expected 0.5"));
  EXPECT_THAT(with("t5", "decoder/layer_0/self_attention/queries_scale", 0.5f),
              HasSubstr("queries_scale\" is 0.5, expected 1"));
  EXPECT_THAT(with("t5", "decoder/scale_outputs", 1.0f),
              HasSubstr("scale_outputs\" is 1, expected 0.35355"));
  EXPECT_THAT(with("whisper", "decoder/activation", int8_t{0}), HasSubstr("expected 3, GELU"));
}

TEST(CTranslate2Refusals, ListsAndFilesOfTokens) {
  const auto with = [](const char* kind, const auto& change) {
    const CTranslate2Copy copy(kind);
    change(copy);
    return copy.Message();
  };
  const auto remove = [](const char* name) {
    return [name](const CTranslate2Copy& copy) { std::filesystem::remove(copy / name); };
  };
  EXPECT_THAT(with("marian", remove("shared_vocabulary.json")),
              HasSubstr("no list of tokens: expected shared_vocabulary.json"));
  EXPECT_THAT(with("marian", remove("source.spm")),
              HasSubstr("expected source.spm and target.spm of the original model in the folder"));
  for (const auto& [kind, file] :
       {std::pair{"m2m100", "sentencepiece.bpe.model"}, std::pair{"t5", "spiece.model"},
        std::pair{"mbart", "sentencepiece.bpe.model"}, std::pair{"bart", "tokenizer.json"}}) {
    EXPECT_THAT(with(kind, remove(file)), HasSubstr("does not say how texts are cut")) << kind;
  }
  EXPECT_THAT(with("bart", remove("config.json")), HasSubstr("unk_token is missing"));
  EXPECT_THAT(with("bart", [](const auto& copy) { copy.Set("config.json", "eos_token", "<end>"); }),
              HasSubstr("expected the token \"<end>\" in it"));
  EXPECT_THAT(
      with("bart", [](const auto& copy) { copy.Set("config.json", "add_source_bos", true); }),
      HasSubstr("add_source_bos is true, expected false"));
  const auto change_list = [&](const char* kind, const char* file, const auto& change) {
    return with(kind, [&](const CTranslate2Copy& copy) {
      json list = copy.ReadJson(file);
      change(list);
      copy.Write(file, list.dump());
    });
  };
  EXPECT_THAT(change_list("bart", "shared_vocabulary.json", [](json& list) { list[7] = "zz"; }),
              HasSubstr("token 7 is \"zz\", but the files of the tokenizer in the folder make"));
  EXPECT_THAT(change_list("bart", "shared_vocabulary.json", [](json& list) { list.erase(7); }),
              HasSubstr("tokens, but the embedding in model.bin has"));
  EXPECT_THAT(change_list("bart", "shared_vocabulary.json", [](json& list) { list[7] = 7; }),
              HasSubstr("token 7 is 7, expected a text"));
  EXPECT_THAT(change_list("bart", "shared_vocabulary.json", [](json& list) { list = 7; }),
              HasSubstr("expected an array of tokens"));
  EXPECT_THAT(change_list("nllb", "shared_vocabulary.json",
                          [](json& list) {
                            for (json& token : list) {
                              const auto text = token.get<std::string>();
                              if (text.size() == 8 && text[3] == '_') token = "madeupword";
                            }
                          }),
              HasSubstr("no language of M2M-100 or NLLB is among its tokens"));
  EXPECT_THAT(change_list("whisper", "vocabulary.json",
                          [](json& list) {
                            for (json& token : list) {
                              if (token == "<|transcribe|>") token = "<|sing|>";
                            }
                          }),
              HasSubstr("expected the token \"<|transcribe|>\" in it"));
}

// Older files have lines of tokens, and settings among the variables.
TEST(CTranslate2Refusals, OlderFilesAreRead) {
  const CTranslate2Copy copy("bart");
  Builder weights = copy.WeightsWithoutAliases();
  weights.version = 5;
  const auto add = [&](const std::string& name, const std::string& text) {
    weights.variables.push_back({name, {static_cast<uint32_t>(text.size())}, 1, text});
  };
  add("eos_token", "</s>");
  weights["with_target_bos"].bytes = std::string(1, '\0');
  weights.Write(copy / "model.bin");
  std::filesystem::remove(copy / "config.json");
  std::string lines;
  for (const json& token : copy.ReadJson("shared_vocabulary.json")) {
    lines += token.get<std::string>() + "\n";
  }
  std::filesystem::remove(copy / "shared_vocabulary.json");
  copy.Write("shared_vocabulary.txt", lines);
  EXPECT_EQ(copy.Message(), "accepted");
  const auto model = OpenConverted(copy);
  ASSERT_NE(model, nullptr);
  // Texts begin with the end of others, as the variables say.
  EXPECT_EQ(model->decoder_start(), model->tokenizer().special().eos);
  weights["with_source_bos"].bytes = std::string(1, '\1');
  EXPECT_THAT(copy.MessageWith(weights), HasSubstr("with_source_bos\" is 1"));
}

TEST(CTranslate2Refusals, AnInputIsNoOutput) {
  const CTranslate2Copy copy("bart");
  const auto summary =
      convert::ConvertFolder(copy.Path(), copy / "model.bin", {.type = "f32", .threads = 1});
  ASSERT_FALSE(summary.ok());
  EXPECT_THAT(summary.error().message, HasSubstr("the output is a file of the folder"));
}

// Weights in safetensors beside model.bin are what is converted.
TEST(CTranslate2Refusals, SafetensorsCountMore) {
  const CTranslate2Copy copy("bart");
  EXPECT_TRUE(convert::IsCTranslate2Folder(copy.Path()));
  copy.Write("model.safetensors", "");
  EXPECT_FALSE(convert::IsCTranslate2Folder(copy.Path()));
}

}  // namespace
}  // namespace kvant::test
