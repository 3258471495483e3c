// kvant embed and kvant rerank: inputs, formats, messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/npy.h"
#include "tests/engine/embed/text_model.h"
#include "tests/temporary_folder.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class EmbedCommands : public testing::Test {
 protected:
  void SetUp() override {
    if (!HaveProgram()) GTEST_SKIP() << "the program is not built";
    TextModelWriter({}).Write(folder_ / "text.gguf");
    TextModelWriter({.pooling = Pooling::kRank, .labels = 1}).Write(folder_ / "rank.gguf");
  }

  std::string Model(const char* name) const { return folder_ / name; }
  std::string File(const char* name, const std::string& text) const {
    const std::string path = folder_ / name;
    WriteFile(path, std::as_bytes(std::span(text)));
    return path;
  }
  static std::vector<nlohmann::json> Lines(const std::string& text) {
    std::vector<nlohmann::json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }

  TemporaryFolder folder_;
};

TEST_F(EmbedCommands, VectorsComeInThreeFormats) {
  const std::string texts = File("texts.txt", "w1 w2\nw3\r\n");
  const ProgramRun run = RunProgram({"embed", Model("text.gguf"), "-f", texts});
  ASSERT_EQ(run.code, 0) << run.error;
  const auto lines = Lines(run.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["index"], 1);
  const auto first = lines[0]["embedding"].get<std::vector<float>>();
  ASSERT_EQ(first.size(), 64u);
  double length = 0;
  for (const float value : first) length += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(length, 1, 1e-5);

  const std::string npy = folder_ / "out.npy";
  ASSERT_EQ(
      RunProgram({"embed", Model("text.gguf"), "-f", texts, "--format", "npy", "-o", npy}).code, 0);
  const auto array = formats::NpyRead(npy);
  ASSERT_TRUE(array.ok()) << array.error().message;
  EXPECT_EQ(array->shape, (std::vector<int64_t>{2, 64}));
  EXPECT_TRUE(std::equal(first.begin(), first.end(), array->values.begin()));

  const ProgramRun raw =
      RunProgram({"embed", Model("text.gguf"), "-p", "w1 w2", "--format", "raw"});
  ASSERT_EQ(raw.out.size(), first.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(raw.out.data(), first.data(), raw.out.size()), 0);
}

TEST_F(EmbedCommands, LinesOfJsonKeepTheirIds) {
  const std::string texts = File("texts.jsonl", "\"w1\"\n{\"text\": \"w2 w3\", \"id\": [7]}\n");
  const ProgramRun run =
      RunProgram({"embed", Model("text.gguf"), "--jsonl", texts, "--pooling", "none"});
  ASSERT_EQ(run.code, 0) << run.error;
  const auto lines = Lines(run.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_FALSE(lines[0].contains("id"));
  EXPECT_EQ(lines[1]["id"], nlohmann::json::parse("[7]"));
  EXPECT_EQ(lines[1]["embeddings"].size(), 4u);  // with the special tokens
  const ProgramRun wrong = RunProgram(
      {"embed", Model("text.gguf"), "--jsonl", File("bad.jsonl", "\"w1\"\n{\"txt\": \"w2\"}\n")});
  EXPECT_NE(wrong.code, 0);
  EXPECT_THAT(wrong.error, HasSubstr("bad.jsonl: line 2: expected a JSON string"));
}

TEST_F(EmbedCommands, MessagesNameTheText) {
  const std::string empty = File("empty.txt", "w1\n\nw2\n");
  EXPECT_THAT(RunProgram({"embed", Model("text.gguf"), "-f", empty}).error,
              HasSubstr("empty.txt: line 2: expected a text, found none"));
  const ProgramRun spaces = RunProgram({"embed", Model("text.gguf"), "-p", " "});
  EXPECT_NE(spaces.code, 0);
  EXPECT_THAT(spaces.error, HasSubstr("-p: the text is empty"));
  const ProgramRun longer = RunProgram({"embed", Model("text.gguf"), "-c", "3", "-p", "w1 w2"});
  EXPECT_THAT(longer.error, HasSubstr("-p: the text has 4 tokens, but the context has 3"));
  EXPECT_EQ(RunProgram({"embed", Model("text.gguf"), "-c", "3", "-p", "w1 w2", "--truncate"}).out,
            RunProgram({"embed", Model("text.gguf"), "-p", "w1"}).out);
  EXPECT_THAT(RunProgram({"embed", Model("text.gguf")}).error, HasSubstr("no text given"));
  EXPECT_THAT(RunProgram({"embed", Model("text.gguf"), "-p", "w1", "--prompt-name", "query"}).error,
              HasSubstr("the file has no prompts"));
  EXPECT_THAT(RunProgram({"embed", Model("text.gguf"), "-p", "w1", "--pooling", "rank"}).error,
              HasSubstr("'kvant rerank'"));
  EXPECT_THAT(RunProgram({"embed", Model("text.gguf"), "-p", "w1", "--format", "npy"}).error,
              HasSubstr("-o FILE"));
}

TEST_F(EmbedCommands, CommandsForTextsNameTheOtherCommand) {
  for (const char* command : {"run", "chat"}) {
    const ProgramRun run = RunProgram({command, Model("text.gguf"), "-p", "w1"});
    EXPECT_EQ(run.code, 1) << command;
    EXPECT_THAT(run.error, HasSubstr("'kvant embed'")) << command;
  }
  EXPECT_THAT(RunProgram({"logits", Model("text.gguf"), "-p", "w1", "-o", File("l.npy", "")}).error,
              HasSubstr("'kvant embed'"));
  EXPECT_THAT(RunProgram({"run", Model("rank.gguf"), "-p", "w1"}).error,
              HasSubstr("'kvant rerank'"));
}

TEST_F(EmbedCommands, RerankShowsTheBestFirst) {
  const std::string documents = File("docs.txt", "w1\nw2 w3\nw4 w5 w6\n");
  const ProgramRun run =
      RunProgram({"rerank", Model("rank.gguf"), "-q", "w9", "-f", documents, "--json"});
  ASSERT_EQ(run.code, 0) << run.error;
  const auto all = Lines(run.out);
  ASSERT_EQ(all.size(), 3u);
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_GE(all[i - 1]["score"].get<double>(), all[i]["score"].get<double>());
  }
  const ProgramRun raw = RunProgram({"rerank", Model("rank.gguf"), "-q", "w9", "-f", documents,
                                     "--json", "--raw-scores", "--top", "1"});
  const auto best = Lines(raw.out);
  ASSERT_EQ(best.size(), 1u);
  EXPECT_EQ(best[0]["index"], all[0]["index"]);
  const double logit = best[0]["score"];
  EXPECT_NEAR(all[0]["score"].get<double>(), 1 / (1 + std::exp(-logit)), 1e-5);
  const ProgramRun text = RunProgram({"rerank", Model("rank.gguf"), "-q", "w9", "-f", documents});
  EXPECT_THAT(text.out, HasSubstr("\t1\tw2 w3\n"));
  EXPECT_THAT(RunProgram({"rerank", Model("text.gguf"), "-q", "w9", "-f", documents}).error,
              HasSubstr("expected a classifier"));
  EXPECT_EQ(RunProgram({"rerank", Model("rank.gguf"), "-f", documents}).code, 2);
}

}  // namespace
}  // namespace kvant::test
