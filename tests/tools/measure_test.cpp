// The commands that measure: what they print, what they refuse, and that nothing half done stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/npy.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Characters that the small model's vocabulary knows.
std::string MeasuredText() {
  std::string text;
  while (text.size() < 400) text += "to be or not to be that is the question ";
  return text;
}

class Measure : public testing::Test {
 protected:
  void SetUp() override {
    KVANT_SKIP_WITHOUT_PROGRAM();
    std::ofstream(folder_ / "text.txt") << MeasuredText();
  }
  std::string File(const std::string& name) const { return folder_ / name; }
  std::string Model() const {
    return SourcePath("tests/reference/random_llamas/gqa-6q3kv-tied-f16.gguf");
  }
  static std::string Output(const std::vector<std::string>& arguments, int code = 0) {
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, code) << run.error;
    EXPECT_EQ(run.error, "");
    return run.out;
  }
  static void ExpectFailure(const std::vector<std::string>& arguments, int code,
                            const std::string& part) {
    const ProgramRun run = RunProgram(arguments);
    SCOPED_TRACE(testing::PrintToString(arguments));
    EXPECT_EQ(run.code, code) << run.error;
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.error_lines(), 1u) << run.error;
    EXPECT_THAT(run.error, HasSubstr(part));
  }

  TemporaryFolder folder_;
};

TEST_F(Measure, PerplexityAndDivergence) {
  const std::vector<std::string> base = {"perplexity", Model(), File("text.txt"), "-c", "64"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  EXPECT_THAT(Output(base), testing::StartsWith("perplexity  "));
  const json report = json::parse(Output(with({"--json"})));
  EXPECT_GT(report["perplexity"], 1.0);
  EXPECT_GT(report["perplexity_error"], 0.0);
  EXPECT_EQ(report["tokens"], report["windows"].get<int>() * 31);
  EXPECT_FALSE(report.contains("kl_mean"));
  Output(with({"--save-logits", File("f32")}));
  Output(with({"--save-logits", File("u16"), "--logits-type", "u16"}));
  EXPECT_GT(std::filesystem::file_size(File("f32")), std::filesystem::file_size(File("u16")));
  const json same =
      json::parse(Output({"perplexity", Model(), "--kl-base", File("f32"), "--json"}));
  EXPECT_EQ(same["kl_mean"], 0.0);
  EXPECT_EQ(same["kl_max"], 0.0);
  EXPECT_EQ(same["same_top"], 1.0);
  EXPECT_EQ(same["perplexity"], report["perplexity"]);
  const json near = json::parse(Output(with({"--kl-base", File("u16"), "--json"})));
  EXPECT_NEAR(near["kl_mean"].get<double>(), 0.0, 1e-4);
  for (const char* key : {"kl_median", "kl_p99", "perplexity_change", "perplexity_ratio_error"}) {
    EXPECT_TRUE(near.contains(key)) << key;
  }
}

TEST_F(Measure, PerplexityRefuses) {
  const std::string model = Model();
  const std::string text = File("text.txt");
  ExpectFailure({"perplexity", model}, 2, "no text given");
  ExpectFailure({"perplexity"}, 2, "no model given");
  ExpectFailure({"perplexity", model, text}, 2, "expected at least 1024");
  ExpectFailure({"perplexity", model, text, "x"}, 2, "unexpected argument 'x'");
  ExpectFailure({"perplexity", model, "missing.txt"}, 1, "missing.txt");
  ExpectFailure({"perplexity", model, text, "-c", "64", "--stride", "64"}, 2, "stride");
  ExpectFailure({"perplexity", model, text, "-c", "64", "--logits-type", "f8"}, 2, "f32 or u16");
  ExpectFailure({"perplexity", model, text, "-c", "64", "--kv-type", "f8"}, 2, "--kv-type");
  ExpectFailure({"perplexity", model, "--kl-base", text}, 1, "not a file of logits");
  ExpectFailure({"perplexity", model, text, "-c", "32", "--stride", "16", "--save-logits", "x"}, 2,
                "strided");
  EXPECT_FALSE(std::filesystem::exists("x"));
  // Logits of a model with another vocabulary, and of another text.
  Output({"perplexity", model, text, "-c", "64", "--save-logits", File("logits")});
  ExpectFailure({"perplexity", SourcePath("tests/reference/random_llamas/mha-3x48-f32.gguf"),
                 "--kl-base", File("logits")},
                2, "another vocabulary");
  std::ofstream(File("other.txt")) << "x" << MeasuredText();
  ExpectFailure({"perplexity", model, File("other.txt"), "--kl-base", File("logits")}, 2,
                "belong to another text");
}

TEST_F(Measure, MultipleChoice) {
  std::ofstream(File("tasks")) << R"({"context": "to be", "choices": ["or not", "x"], "answer": 0})"
                               << "\n";
  const json report =
      json::parse(Output({"perplexity", Model(), "--multiple-choice", File("tasks"), "--json"}));
  EXPECT_EQ(report["tasks"], 1);
  EXPECT_EQ(report["chance"], 0.5);
  EXPECT_TRUE(report.contains("accuracy_per_byte_error"));
  std::ofstream(File("bad")) << "{}\n\n[]\n";
  const ProgramRun run =
      RunProgram({"perplexity", Model(), "--multiple-choice", File("bad"), "--json"});
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.error_lines(), 2u);
  EXPECT_THAT(run.error, HasSubstr(File("bad") + ":1: "));
  EXPECT_THAT(run.error, HasSubstr(File("bad") + ":3: "));
}

TEST_F(Measure, ScoreListsEveryToken) {
  const json scored =
      json::parse(Output({"score", Model(), "-p", "to be", "--top", "2", "--json"}));
  const auto& tokens = scored["tokens"];
  EXPECT_EQ(tokens.size(), scored["count"]);
  EXPECT_EQ(tokens[0]["id"], 1);  // BOS
  EXPECT_TRUE(tokens[0]["logprob"].is_null());
  double sum = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    EXPECT_LE(tokens[i]["logprob"], 0.0);
    EXPECT_GE(tokens[i]["rank"], 1);
    ASSERT_EQ(tokens[i]["top"].size(), 2u);
    EXPECT_GE(tokens[i]["top"][0]["logprob"], tokens[i]["top"][1]["logprob"]);
    sum += tokens[i]["logprob"].get<double>();
  }
  EXPECT_NEAR(scored["logprob_sum"].get<double>(), sum, 1e-9);
  EXPECT_THAT(Output({"score", Model(), "-p", "to be"}), HasSubstr("likeliest at its place"));
  ExpectFailure({"score", Model(), "-p", "", "--no-bos"}, 2, "at least 2");
  ExpectFailure({"score", Model()}, 2, "no text given");
}

// Windows of 32 that overlap by half, against windows that are scored one by one.
TEST_F(Measure, ScoresOfLongTextsAreThoseOfWindows) {
  const auto score = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"score", Model(), "--json", "--top", "0", "--strict"});
    const ProgramRun run = RunProgram(options);
    EXPECT_EQ(run.code, 0) << run.error;
    json scored = json::parse(run.out);
    scored["error"] = run.error;
    return scored;
  };
  const std::string text = MeasuredText();
  const json whole = score({"-p", text, "-c", "1000", "--no-bos"});
  const json windows = score({"-p", text, "-c", "32", "--no-bos"});
  EXPECT_THAT(whole["error"], testing::Not(HasSubstr("windows")));
  EXPECT_THAT(windows["error"].get<std::string>(), HasSubstr("scored in windows of 32"));
  const size_t count = whole["count"];
  ASSERT_GT(count, 100u);
  ASSERT_EQ(windows["tokens"].size(), count);
  double sum = 0;
  for (size_t i = 1; i < count; ++i) {
    EXPECT_EQ(windows["tokens"][i]["id"], whole["tokens"][i]["id"]);
    sum += windows["tokens"][i]["logprob"].get<double>();
  }
  EXPECT_NEAR(windows["logprob_sum"], sum, 1e-9);
  for (size_t i = 1; i <= 32; ++i) EXPECT_EQ(windows["tokens"][i], whole["tokens"][i]) << i;
  // The second window begins 16 tokens before the first that it scores, number 33. Its text, scored
  // alone, gives the same numbers.
  std::string ids;
  for (size_t i = 17; i < 33; ++i) ids += (i == 17 ? "" : ",") + whole["tokens"][i]["id"].dump();
  Output({"logits", Model(), "--tokens", ids, "--last", "--strict", "--kv-type", "f16", "-o",
          File("l.npy")});
  const auto logits = formats::NpyRead(File("l.npy"));
  ASSERT_TRUE(logits.ok());
  const std::vector<float>& row = logits->values;
  double total = 0;
  for (const float logit : row) total += std::exp(static_cast<double>(logit));
  const size_t id = whole["tokens"][33]["id"];
  EXPECT_NEAR(windows["tokens"][33]["logprob"].get<double>(),
              static_cast<double>(row[id]) - std::log(total), 1e-5);
  // Longer than what the model was trained for, without -c.
  std::string book;
  for (int i = 0; i < 40; ++i) book += text;
  std::ofstream(File("book.txt")) << book;
  const ProgramRun run =
      RunShell("\"$KVANT\" score shakespeare -t 1 -f " + File("book.txt") + " | head -3");
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.error, HasSubstr("scored in windows of 1024"));
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 3);
}

TEST_F(Measure, ImatrixIsWrittenMergedAndShown) {
  for (const char* name : {"a.dat", "b.gguf"}) {
    EXPECT_EQ(Output({"imatrix", Model(), File("text.txt"), "-c", "64", "-o", File(name)}), "");
    EXPECT_THAT(Output({"imatrix", "--show", File(name)}), HasSubstr("blk.0.ffn_down.weight"));
  }
  Output({"imatrix", "--merge", File("a.dat"), "--merge", File("b.gguf"), "-o", File("c.gguf")});
  EXPECT_THAT(Output({"imatrix", "--show", File("c.gguf")}), HasSubstr("chunks "));
  ExpectFailure({"imatrix", Model(), File("text.txt"), "-c", "64"}, 2, "no output file");
  ExpectFailure({"imatrix", Model(), "-o", File("x")}, 2, "no text given");
  ExpectFailure({"imatrix", Model(), File("text.txt"), "-o", Model()}, 2, "the model itself");
  ExpectFailure({"imatrix", "--merge", Model(), "-o", File("x")}, 1, "no importance matrix");
  ExpectFailure({"imatrix", "--merge", File("a.dat"), "-o", File("x"), "--output-format", "z"}, 2,
                "gguf or dat");
  const std::string other = SourcePath("tests/reference/random_llamas/mha-3x48-f32.gguf");
  Output({"imatrix", other, File("text.txt"), "-c", "64", "-o", File("other.dat")});
  ExpectFailure(
      {"imatrix", "--merge", File("a.dat"), "--merge", File("other.dat"), "-o", File("x")}, 2,
      "different models");
  EXPECT_FALSE(std::filesystem::exists(File("x")));
}

TEST_F(Measure, AnInterruptedCollectionLeavesNothing) {
  std::ofstream text(File("long.txt"));
  for (int i = 0; i < 3000; ++i) text << MeasuredText();
  text.close();
  const ProgramRun run =
      RunProgram({"imatrix", Model(), File("long.txt"), "-c", "64", "-t", "1", "-o", File("x")},
                 {.text = {}, .stdout_path = {}, .interrupt_after_ms = 300});
  EXPECT_EQ(run.code, 130) << run.error;
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 2u);  // the two texts
}

TEST_F(Measure, HashesAreChecked) {
  const std::string manifest = Output({"hash", Model()});
  std::ofstream(File("good")) << manifest;
  EXPECT_THAT(Output({"hash", Model(), "--check", File("good")}), HasSubstr("is as the manifest"));
  std::string changed = manifest;
  char& digit = changed[changed.find("xxh64     ") + 10];
  digit = digit == '0' ? '1' : '0';
  std::ofstream(File("bad")) << changed << "xxh64     0000000000000000  m.gguf:nothing.weight\n";
  const std::string report = Output({"hash", Model(), "--check", File("bad")}, 1);
  EXPECT_THAT(report, HasSubstr("differs             token_embd.weight"));
  EXPECT_THAT(report, HasSubstr("nothing.weight"));
  ExpectFailure({"hash", Model(), "--check", File("text.txt")}, 1, "expected a manifest");
}

TEST_F(Measure, TensorsAreChecked) {
  EXPECT_THAT(Output({"inspect", Model(), "--check-tensors"}), HasSubstr("all values are finite"));
  std::vector<std::byte> bytes = ReadFile(Model());
  bytes[bytes.size() - 1] = std::byte{0x7f};  // the last value becomes a NaN
  bytes[bytes.size() - 2] = std::byte{0xff};
  WriteFile(File("nan.gguf"), bytes);
  EXPECT_THAT(Output({"inspect", File("nan.gguf"), "--check-tensors"}, 1), HasSubstr("1 of"));
  const json found =
      json::parse(Output({"inspect", File("nan.gguf"), "--check-tensors", "--json"}, 1));
  EXPECT_EQ(found["not_finite"].size(), 1u);
}

}  // namespace
}  // namespace kvant::test
