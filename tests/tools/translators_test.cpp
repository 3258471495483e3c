// The commands on translators, run as programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/convert/translator_folder.h"
#include "tests/this_build.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

class TranslatorProgram : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    KVANT_SKIP_WITHOUT_PROGRAM();
    path_ = folder_.Path("model.gguf");
    Output({"convert", std::filesystem::path(path_).parent_path().string(), path_});
    const LanguageNames names = folder_.Languages();
    if (names.source) languages_ = {"--source-lang", *names.source, "--target-lang", *names.target};
  }

  static std::string Output(const std::vector<std::string>& arguments,
                            const std::string& text = "") {
    const ProgramRun run = RunProgram(arguments, {.text = text});
    EXPECT_EQ(run.code, 0) << run.error;
    return run.out;
  }
  std::vector<std::string> With(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), languages_.begin(), languages_.end());
    return arguments;
  }
  bool is_marian() const { return std::string(GetParam()).starts_with("marian"); }

  TranslatorFolder folder_{GetParam()};
  std::string path_;
  std::vector<std::string> languages_;
};

INSTANTIATE_TEST_SUITE_P(Reference, TranslatorProgram,
                         testing::Values("marian", "marian-two", "m2m100", "nllb"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// As the folder asks: four beams.
TEST_P(TranslatorProgram, RunTranslates) {
  for (const json& line : folder_.cases["searches"]) {
    const json& settings = line["settings"];
    if (settings["num_beams"] != 4 || settings.size() > 1) continue;
    std::vector<std::string> arguments = {"run", path_, "-q", "-p", line["text"]};
    if (line["prefix"].is_string()) arguments.insert(arguments.end(), {"--prefix", line["prefix"]});
    EXPECT_EQ(Output(With(arguments)), line["texts"][0].get<std::string>() + "\n") << line;
    arguments.emplace_back("--json");
    const json found = json::parse(Output(With(arguments)));
    EXPECT_EQ(found["source_ids"], line["source_ids"]);
    EXPECT_EQ(found["beams"][0]["ids"], line["ids"][0]);
  }
}

TEST_P(TranslatorProgram, TokenizeTellsSourcesFromTargets) {
  const json texts = TranslatorFolder::Read("texts.json");
  const auto ids_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"tokenize", path_, "--special", "--json"});
    return json::parse(Output(arguments))["ids"].get<Ids>();
  };
  for (const size_t i : {size_t{0}, size_t{6}, size_t{15}, size_t{43}}) {
    const auto text = texts[i].get<std::string>();
    const int frame = is_marian() ? 0 : 1;  // the language
    Ids source = folder_.cases["ids"][i].get<Ids>();
    source = Ids(source.begin() + frame, source.end() - 1);
    EXPECT_EQ(ids_of({"-p", text}), source) << text;
    if (folder_.cases["target_ids"].empty()) continue;
    Ids target = folder_.cases["target_ids"][i].get<Ids>();
    target.pop_back();
    EXPECT_EQ(ids_of({"--target", "-p", text}), target) << text;
  }
  const json sample = folder_.cases["samples"][3];
  EXPECT_EQ(Output({"tokenize", path_, "--decode", "-p", sample.dump()}),
            folder_.cases["sample_texts"][3].get<std::string>());
}

// Sources and targets have the tokens around them that the tokenizer gives to a pair.
TEST_P(TranslatorProgram, PairsProgramsAndLogitsReadTexts) {
  const std::string pairs = folder_.Path("pairs.jsonl");
  std::ofstream(pairs)
      << json({{"source", "How old are you?"}, {"target", "Wie alt bist du?"}}).dump() << "\n";
  const json report = json::parse(
      Output(With({"perplexity", path_, "--pairs", pairs, "--json", "--kv-type", "f32"})));
  EXPECT_NEAR(report["nll"].get<double>(), folder_.cases["loss"].get<double>(), 1e-4);
  const bool same = folder_.cases["target_ids"].empty();
  const std::string encoded = Output({"seq", path_, "-"}, "encode S \"Hello\"\nnew A S\n");
  EXPECT_EQ(json::parse(encoded.substr(0, encoded.find('\n')))["tokens"],
            folder_.cases["ids"][0].size());
  const std::string out = folder_.Path("logits.npy");
  Output(With({"logits", path_, "--source", "Hello", "--tokens", "0,4", "-o", out}));
  EXPECT_GT(std::filesystem::file_size(out), 1000u);
  const std::string inspected = Output({"inspect", path_});
  EXPECT_THAT(inspected, HasSubstr("tokenizer     marian ("));
  const json tokenizer = json::parse(Output({"inspect", path_, "--json"}))["tokenizer"];
  EXPECT_EQ(tokenizer["languages"].size(), is_marian()                     ? 3u
                                           : same && languages_[1] == "en" ? 100u
                                                                           : 202u);
  const ProgramRun wrong = RunProgram({"run", path_, "-q", "-p", "a", "--target-lang", "klingon"});
  EXPECT_NE(wrong.code, 0);
  EXPECT_EQ(wrong.error_lines(), 1u) << wrong.error;
  EXPECT_THAT(wrong.error, HasSubstr("expected a language of the model ("));
  if (is_marian()) return;
  const ProgramRun none = RunProgram({"perplexity", path_, "--pairs", pairs});
  EXPECT_THAT(none.error, HasSubstr("expected --target-lang LANGUAGE, found none"));
}

}  // namespace
}  // namespace kvant::test
