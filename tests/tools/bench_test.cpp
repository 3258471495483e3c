// kvant bench: which rows it writes for lists and ranges, the definitions of their fields, bounds
// beside arithmetic by hand, the forms of the output, and what is refused. No figure is judged.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cuda/emulated_device.h"
#include "tests/shared_data.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// The synthetic "tiny" model: dimension 256, 2 layers, 4 heads of 64, 2 kv heads, feed-forward 512,
// vocabulary 512.
constexpr double kBodyValues = 2 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 256 * 512);
constexpr double kHeadValues = 512 * 256;
constexpr double kQ8Bytes = 34.0 / 32;                  // a value of Q8_0
constexpr double kAttentionMacs = 2 * 4 * (64 + 64);    // for a position that a token sees
constexpr double kF16Position = 2 * 2 * (64 + 64) * 2;  // bytes of a position in the cache
constexpr double kQ8Position = 2 * 2 * (64 + 4 + 64 + 4);

class BenchTest : public testing::Test {
 protected:
  void SetUp() override { KVANT_SKIP_WITHOUT_PROGRAM(); }

  static std::string Output(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, 0) << run.error;
    EXPECT_EQ(run.error, "");
    return run.out;
  }
  static json Rows(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    return json::parse(Output(arguments));
  }
  // Rows of the tiny model in Q8_0, one repetition, two threads.
  static json TinyRows(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--synthetic", "tiny:Q8_0", "-r", "1", "-t", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Rows(arguments);
  }
  static std::vector<int64_t> Field(const json& rows, const char* name) {
    std::vector<int64_t> values;
    for (const json& row : rows) values.push_back(row[name].get<int64_t>());
    return values;
  }
  // The matrices of a shape in Q8_0 that a token reads, in values, and bytes of floats beside them.
  static void ExpectWork(const std::string& shape, double quantized, double float_bytes = 0) {
    const json rows =
        Rows({"--synthetic", shape + ":Q8_0", "-p", "0", "-n", "1", "-r", "1", "-t", "1"});
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0]["work_weight_bytes"].get<double>(), quantized * 34 / 32 + float_bytes);
    EXPECT_EQ(rows[0]["work_int8_macs"].get<double>(), quantized);
  }
  static void ExpectRefused(std::vector<std::string> arguments, int code, const std::string& part) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    arguments.insert(arguments.begin(), "bench");
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, code) << run.error;
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.error_lines(), 1u) << run.error;
    EXPECT_THAT(run.error, HasSubstr(part));
  }
};

TEST_F(BenchTest, ListsAndRanges) {
  const json prompts =
      TinyRows({"-p", "1-3,8", "-p", "2-8*2", "-p", "0-8+4", "-n", "0", "--no-bounds"});
  EXPECT_THAT(Field(prompts, "n_prompt"), ElementsAre(1, 2, 3, 8, 2, 4, 8, 4, 8));
  for (const json& row : prompts) EXPECT_EQ(row["n_gen"], 0);

  // Prefill, decode and both together are rows of their own, at every depth.
  const json mixed = TinyRows({"-p", "4", "-n", "2", "-pg", "3,2", "-d", "0,5", "--no-bounds"});
  EXPECT_THAT(Field(mixed, "n_prompt"), ElementsAre(4, 0, 3, 4, 0, 3));
  EXPECT_THAT(Field(mixed, "n_gen"), ElementsAre(0, 2, 2, 0, 2, 2));
  EXPECT_THAT(Field(mixed, "n_depth"), ElementsAre(0, 0, 0, 5, 5, 5));

  const json shapes = TinyRows(
      {"-p", "0", "-n", "2", "-t", "1-2", "--batch", "1-2", "--beams", "1,3", "--no-bounds"});
  EXPECT_THAT(Field(shapes, "n_threads"), ElementsAre(2, 2, 2, 1, 1, 1, 2, 2, 2));
  EXPECT_THAT(Field(shapes, "n_seqs"), ElementsAre(1, 2, 1, 1, 2, 1, 1, 2, 1));
  EXPECT_THAT(Field(shapes, "n_beams"), ElementsAre(1, 1, 3, 1, 1, 3, 1, 1, 3));

  const json types = TinyRows(
      {"-p", "0", "-n", "1", "-ctk", "f16,q8_0", "-ctv", "q8,f32", "-ub", "8,16", "--no-bounds"});
  std::vector<std::string> seen;
  for (const json& row : types) {
    seen.push_back(fmt::format("{} {} {}", row["n_ubatch"].get<int>(),
                               row["type_k"].get<std::string>(), row["type_v"].get<std::string>()));
  }
  EXPECT_THAT(seen, ElementsAre("8 f16 q8_0", "8 f16 f32", "8 q8_0 q8_0", "8 q8_0 f32",
                                "16 f16 q8_0", "16 f16 f32", "16 q8_0 q8_0", "16 q8_0 f32"));
}

TEST_F(BenchTest, FieldsAreWhatTheirNamesSay) {
  const json rows = Rows({"--synthetic", "tiny:Q8_0", "-p", "6", "-n", "4", "-pg", "6,4", "--batch",
                          "1,2", "-r", "4", "-t", "1", "--no-bounds"});
  ASSERT_EQ(rows.size(), 6u);
  for (const json& row : rows) {
    const auto ns = row["samples_ns"].get<std::vector<double>>();
    auto ts = row["samples_ts"].get<std::vector<double>>();
    ASSERT_EQ(ns.size(), 4u);
    ASSERT_EQ(ts.size(), 4u);
    const double tokens =
        row["n_seqs"].get<double>() * (row["n_prompt"].get<double>() + row["n_gen"].get<double>());
    double mean = 0;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(ts[i], tokens * 1e9 / ns[i], 1e-3 * ts[i]);  // of rounded nanoseconds
      mean += ts[i] / 4;
    }
    double squares = 0;
    for (const double value : ts) squares += (value - mean) * (value - mean);
    EXPECT_NEAR(row["avg_ts"].get<double>(), mean, 1e-9 * mean);
    EXPECT_NEAR(row["stddev_ts"].get<double>(), std::sqrt(squares / 3), 1e-6 * mean);
    std::sort(ts.begin(), ts.end());
    EXPECT_NEAR(row["median_ts"].get<double>(), (ts[1] + ts[2]) / 2, 1e-9 * mean);
    EXPECT_NEAR(row["avg_ns"].get<double>(), (ns[0] + ns[1] + ns[2] + ns[3]) / 4, 1.0);
    EXPECT_EQ(row["first_token_ns"].get<int64_t>() > 0, row["n_prompt"].get<int64_t>() > 0);
    EXPECT_LE(row["first_token_ns"].get<double>(), row["avg_ns"].get<double>() + 1);
    EXPECT_GT(row["load_ns"].get<int64_t>(), 0);
    EXPECT_GT(row["peak_memory"].get<int64_t>(), row["model_size"].get<int64_t>());
    EXPECT_EQ(row["model_filename"], "synthetic tiny Q8_0");
    EXPECT_EQ(row["model_n_params"].get<double>(), kBodyValues + 2 * kHeadValues + 5 * 256);
    EXPECT_FALSE(row["build_compiler"].get<std::string>().empty());
    EXPECT_FALSE(row.contains("bound_ts"));
  }
}

// Two layers with 4 heads of 64 and 2 kv heads, 2 of 8 experts of 256 for each token, a router of
// floats.
TEST_F(BenchTest, CountsTheExpertsThatATokenUses) {
  const double quantized = 2 * (256 * (256 + 2 * 128 + 256) + 2 * 3 * 256 * 256) + 256 * 512;
  ExpectWork("moe-tiny", quantized, 2 * 256 * 8 * 4);
  ExpectWork("gpt-oss-tiny", quantized, 2 * 256 * 8 * 4);  // with biases
}

// Two layers with 4 heads of 64 + 32 dimensions and values of 64, latents of 128; the first layer
// has no experts, the second a shared one beside 2 of 8.
TEST_F(BenchTest, CountsTheMatricesOfHeads) {
  const double attention = 256 * (4 * 96 + 160 + 4 * 64) + 2 * 4 * 64 * 128;
  const double ffns = 3 * 256 * 512 + 3 * 3 * 256 * 256;
  const double quantized = 2 * attention + ffns + 256 * 512;
  ExpectWork("deepseek-tiny", quantized, 256 * 8 * 4);
}

// Two layers with delta attention of 4 heads of 64, and one with latent attention whose heads have
// gates; the first layer has no experts, the others a shared one beside 2 of 8.
TEST_F(BenchTest, CountsKimiDeltaAttention) {
  const double delta = 256 * (5 * 256 + 4) + 256 * 256;
  const double attention = 256 * (4 * 96 + 160 + 4 + 4 * 64) + 2 * 4 * 64 * 128;
  const double ffns = 3 * 256 * 512 + 2 * 3 * 3 * 256 * 256;
  const double quantized = 2 * delta + attention + ffns + 256 * 512;
  ExpectWork("kda-tiny", quantized, 2 * 256 * 8 * 4);
}

// Four layers with a gate for each value, or for each of 4 heads; 2 of 8 experts beside a shared
// one.
TEST_F(BenchTest, CountsGates) {
  const double attention = 256 * (512 + 2 * 256 + 512);
  ExpectWork("muse-tiny", 4 * (attention + 256 * 512 + 3 * 256 * 512) + 256 * 512);
  const double ffns = 3 * 256 * 512 + 3 * 3 * 3 * 256 * 256;
  ExpectWork("laguna-tiny", 4 * (attention + 256 * 4) + ffns + 256 * 512, 3 * 256 * 8 * 4);
}

// Seven layers with 4 heads of 128 and 2 kv heads; the embedding is the output matrix too.
TEST_F(BenchTest, CountsTheLayersOfWindows) {
  const double layer = 256 * (512 + 2 * 256 + 512) + 3 * 256 * 512;
  const double quantized = 7 * layer + 256 * 512;
  ExpectWork("gemma3-tiny", quantized);
}

// Rows with queries, keys and values, and results of both layers, whoever searches.
TEST_F(BenchTest, CountsTheBytesOverTheBusToADevice) {
  const EmulatedDriver driver;
  const json rows = Rows({"--synthetic", "gpt-oss-tiny:Q8_0", "-p", "0", "-n", "3", "-d", "40",
                          "-r", "1", "-t", "1", "--beams", "1,4", "--offload", "attention"});
  ASSERT_EQ(rows.size(), 2u);
  const uint64_t row = 2 * (4 * 64 + 2 * 2 * 64 + 4 * 64) * sizeof(float);
  for (const json& found : rows) {
    const uint64_t beams = found["n_beams"].get<uint64_t>();
    EXPECT_GT(found["bus_bytes_per_step"].get<uint64_t>(), beams * row);
    EXPECT_LT(found["bus_bytes_per_step"].get<uint64_t>(), beams * row + 16384);
  }
}

// Three layers with 2 key heads and 4 value heads of 64, and one with 4 heads of 128, which have
// gates, and 2 kv heads.
TEST_F(BenchTest, CountsRecurrentLayers) {
  const double delta = 256 * (2 * 128 + 256 + 256 + 2 * 4) + 256 * 256;
  const double attention = 256 * (2 * 512 + 2 * 256 + 512);
  const double quantized = 3 * delta + attention + 4 * 3 * 256 * 512 + 256 * 512;
  ExpectWork("qwen35-tiny", quantized);
}

TEST_F(BenchTest, CountsTheWorkOfATest) {
  const auto expect = [](const json& row, double weights, double kv, double int8, double floats) {
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row["work_weight_bytes"].get<double>(), weights);
    EXPECT_EQ(row["work_kv_bytes"].get<double>(), kv);
    EXPECT_EQ(row["work_int8_macs"].get<double>(), int8);
    EXPECT_EQ(row["work_int16_macs"].get<double>(), 0.0);
    EXPECT_EQ(row["work_float_macs"].get<double>(), floats);
  };
  const double all = kBodyValues + kHeadValues;
  // Four steps at depth 8 see 9, 10, 11 and 12 positions.
  const json decode =
      TinyRows({"-p", "0", "-n", "4", "-d", "8", "--batch", "1,3", "--beams", "1,2"});
  ASSERT_EQ(decode.size(), 3u);
  expect(decode[0], 4 * all * kQ8Bytes, 42 * kF16Position, 4 * all, 42 * kAttentionMacs);
  expect(decode[1], 4 * all * kQ8Bytes, 3 * 42 * kF16Position, 12 * all, 3 * 42 * kAttentionMacs);
  expect(decode[2], 4 * all * kQ8Bytes, 42 * kF16Position, 8 * all, 2 * 42 * kAttentionMacs);
  // A prompt of 16 in two passes: 1 + 2 + ... + 16 = 136 positions are seen, 8 and 16 are read.
  const json prefill = TinyRows({"-p", "16", "-n", "0", "--chunk", "8", "--kv-type", "f16,q8"});
  ASSERT_EQ(prefill.size(), 2u);
  const double weights = (2 * kBodyValues + kHeadValues) * kQ8Bytes;
  const double macs = 16 * kBodyValues + kHeadValues;
  expect(prefill[0], weights, 24 * kF16Position, macs, 136 * kAttentionMacs);
  expect(prefill[1], weights, 24 * kQ8Position, macs + 136 * kAttentionMacs, 0);
}

TEST_F(BenchTest, CountsFloatsAndTiedMatrices) {
  // F16: 6 heads and 3 kv heads, the embedding is the output matrix too.
  const json rows = Rows({SourcePath("tests/reference/random_llamas/gqa-6q3kv-tied-f16.gguf"), "-p",
                          "0", "-n", "1", "-r", "1", "-t", "1"});
  ASSERT_EQ(rows.size(), 1u);
  const json& row = rows[0];
  // All values but those of the norms are matrices, in two bytes each.
  EXPECT_EQ(row["work_int16_macs"].get<double>() * 2, row["work_weight_bytes"].get<double>());
  EXPECT_GT(row["work_weight_bytes"].get<double>(), 0.9 * row["model_size"].get<double>());
  EXPECT_LT(row["work_weight_bytes"].get<double>(), row["model_size"].get<double>());
  EXPECT_EQ(row["work_int8_macs"].get<double>(), 0.0);
}

// The encoder makes the cross keys and values; a step reads those of the source once for all beams.
TEST_F(BenchTest, CountsSourcesOfEncoderDecoders) {
  const auto expect = [](const json& row, double weights, double kv, int64_t source, int64_t gen) {
    EXPECT_EQ(row["work_weight_bytes"].get<double>(), weights * kQ8Bytes);
    EXPECT_EQ(row["work_kv_bytes"].get<double>(), kv);
    EXPECT_EQ(row["n_source"], source);
    EXPECT_EQ(row["n_gen"], gen);
    EXPECT_EQ(row["n_prompt"], 0);
  };
  constexpr double kMatrix = 256 * 256;
  constexpr double kPosition = 2 * 2 * 256 * 2;  // two layers' keys and values in f16
  for (const bool t5 : {false, true}) {
    const json rows = Rows({"--synthetic", t5 ? "flan-t5-tiny:Q8_0" : "opus-mt-tiny:Q8_0", "-n",
                            "2", "--source-length", "8", "--beams", "1,4", "-r", "1", "-t", "1"});
    ASSERT_EQ(rows.size(), 3u);
    const double ffn = (t5 ? 3 : 2) * 256 * 512;
    const double layers = t5 ? 3 : 2;  // of the decoder
    const double encode = 2 * (4 * kMatrix + ffn) + layers * 2 * kMatrix;
    const double decode = layers * (6 * kMatrix + ffn) + 512 * 256;
    const double position = kPosition / 2 * layers;
    expect(rows[0], encode, 8 * 2 * kPosition, 8, 0);  // the encoder's own are floats
    expect(rows[1], 2 * decode, (1 + 2 + 2 * 8) * position, 8, 2);
    expect(rows[2], 2 * decode, (2 + 3 + 2 * 8) * position, 8, 2);
    EXPECT_EQ(rows[2]["n_beams"], 4);
    EXPECT_GT(rows[0]["avg_ts"].get<double>(), 0);
  }
  // Beams 1, 4 and 8 and the longest source, unless other ones are asked for.
  const json usual =
      Rows({"--synthetic", "opus-mt-tiny:Q8_0", "-n", "1", "-r", "1", "--no-bounds"});
  EXPECT_THAT(Field(usual, "n_source"), ElementsAre(64, 64, 64, 64));
  EXPECT_THAT(Field(usual, "n_beams"), ElementsAre(1, 1, 4, 8));
  ExpectRefused({"--synthetic", "tiny", "--source-length", "4"}, 2, "reads no source");
  ExpectRefused({"--synthetic", "opus-mt-tiny", "--source-length", "65"}, 2, "at most the 64");
}

TEST_F(BenchTest, BoundIsTheSlowerOfMemoryAndCompute) {
  const json rows = TinyRows({"-p", "64", "-n", "4", "-d", "0,100"});
  ASSERT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    const auto number = [&row](const char* name) { return row[name].get<double>(); };
    for (const char* limit : {"limit_weights_gbs", "limit_kv_gbs", "limit_int8_gmacs",
                              "limit_int16_gmacs", "limit_float_gmacs", "limit_clock_ghz"}) {
      EXPECT_GT(number(limit), 0.0) << limit;
    }
    const double memory = number("work_weight_bytes") / number("limit_weights_gbs") +
                          number("work_kv_bytes") / number("limit_kv_gbs");
    const double compute = number("work_int8_macs") / number("limit_int8_gmacs") +
                           number("work_float_macs") / number("limit_float_gmacs");
    const double tokens = number("n_prompt") + number("n_gen");
    EXPECT_NEAR(number("bound_ts"), tokens * 1e9 / std::max(memory, compute),
                1e-9 * number("bound_ts"));
    EXPECT_EQ(row["bound_kind"], memory >= compute ? "memory" : "compute");
    EXPECT_NEAR(number("bound_fraction"), number("avg_ts") / number("bound_ts"), 1e-12);
  }
}

TEST_F(BenchTest, EveryTypeMakesAModelThatRuns) {
  std::string all;
  const std::vector<std::string> types = {
      "IQ1_S", "IQ1_M", "TQ1_0",     "TQ2_0",   "IQ2_XXS", "IQ2_XS", "IQ2_S",
      "IQ2_M", "Q2_K",  "Q3_K_M",    "IQ3_XXS", "IQ3_M",   "IQ4_XS", "IQ4_NL",
      "Q4_0",  "Q4_1",  "Q4_K_S",    "Q4_K_M",  "Q5_0",    "Q5_1",   "Q5_K_M",
      "Q6_K",  "Q8_0",  "MXFP4_MOE", "NVFP4",   "F16",     "BF16",   "F32"};
  for (const std::string& type : types) all += (all.empty() ? "tiny:" : ",tiny:") + type;
  const json rows =
      Rows({"--synthetic", all, "-p", "2", "-n", "0", "-r", "1", "-t", "1", "--no-bounds"});
  ASSERT_EQ(rows.size(), types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    EXPECT_EQ(rows[i]["model_filename"], "synthetic tiny " + types[i]);
  }
  EXPECT_EQ(rows.back()["model_size"].get<double>(), 4 * (kBodyValues + 2 * kHeadValues + 5 * 256));
}

TEST_F(BenchTest, FormsOfTheOutput) {
  const std::vector<std::string> test = {"--synthetic", "tiny:Q8_0", "-p", "2",  "-n",
                                         "1",           "-r",        "1",  "-t", "1"};
  const auto in_form = [&](const char* form) {
    std::vector<std::string> arguments = test;
    arguments.insert(arguments.end(), {"-o", form});
    return Output(arguments);
  };
  const auto lines = [](const std::string& text) {
    std::vector<std::string> out;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) out.push_back(line);
    return out;
  };
  const json rows = json::parse(in_form("json"));
  ASSERT_TRUE(rows.is_array());
  ASSERT_EQ(rows.size(), 2u);
  // Lists are left out of csv and sql.
  const size_t columns = rows[0].size() - 2;

  const auto json_lines = lines(in_form("jsonl"));
  ASSERT_EQ(json_lines.size(), 2u);
  EXPECT_EQ(json::parse(json_lines[1])["n_gen"], 1);

  const auto csv = lines(in_form("csv"));
  ASSERT_EQ(csv.size(), 3u);
  EXPECT_EQ(static_cast<size_t>(std::count(csv[0].begin(), csv[0].end(), ',')), columns - 1);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_TRUE(csv[i].starts_with('"') && csv[i].ends_with('"'));
    size_t fields = 1;
    for (size_t at = csv[i].find("\",\""); at != std::string::npos;
         at = csv[i].find("\",\"", at + 3))
      ++fields;
    EXPECT_EQ(fields, columns);
  }

  const std::string sql = in_form("sql");
  EXPECT_TRUE(sql.starts_with("CREATE TABLE IF NOT EXISTS test (\n  build_commit TEXT,\n"));
  for (const char* part :
       {"  n_prompt INTEGER,\n", "  avg_ts REAL,\n", "\n);\n\nINSERT INTO test (",
        ", n_gpu_layers, ", "'synthetic tiny Q8_0'"}) {
    EXPECT_THAT(sql, HasSubstr(part));
  }
  EXPECT_EQ(static_cast<size_t>(std::count(sql.begin(), sql.end(), ';')), 3u);

  const auto markdown = lines(in_form("md"));
  ASSERT_GE(markdown.size(), 4u);
  const auto bars = std::count(markdown[0].begin(), markdown[0].end(), '|');
  for (size_t i = 1; i < 4; ++i)
    EXPECT_EQ(std::count(markdown[i].begin(), markdown[i].end(), '|'), bars);
  EXPECT_THAT(markdown[2], HasSubstr(" pp2 |"));
  EXPECT_THAT(markdown[3], HasSubstr(" tg1 |"));

  // These rows stand on stderr, too, in another form.
  std::vector<std::string> arguments = test;
  arguments.insert(arguments.begin(), "bench");
  arguments.insert(arguments.end(), {"-o", "md", "-oe", "jsonl"});
  const ProgramRun both = RunProgram(arguments);
  EXPECT_EQ(both.code, 0);
  EXPECT_EQ(both.error_lines(), 2u);
  EXPECT_EQ(json::parse(lines(both.error)[0])["n_prompt"], 2);
}

TEST_F(BenchTest, ProgressGoesToStderr) {
  const ProgramRun run = RunProgram({"bench", "--synthetic", "tiny", "-p", "2", "-n", "0", "-r",
                                     "2", "-o", "jsonl", "--progress"});
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.error, HasSubstr("pp2: 2 of 2\n"));
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1);
}

TEST_F(BenchTest, MachineLimits) {
  const json rows = Rows({"--machine", "-t", "1"});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["n_threads"], 1);
  for (const char* field : {"read_file_gbs", "read_anonymous_gbs", "int8_gmacs", "int16_gmacs",
                            "float_gmacs", "int8_macs_per_cycle", "clock_ghz"}) {
    EXPECT_GT(rows[0][field].get<double>(), 0.0) << field;
  }
  ExpectRefused({"--machine", "model.gguf"}, 2, "--machine measures no model");
}

TEST_F(BenchTest, ComparesWithNoCache) {
  const json rows = TinyRows({"--compare-no-cache", "-d", "4,40", "-n", "6"});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["test"], "step at 4");
  EXPECT_EQ(rows[1]["test"], "step at 40");
  EXPECT_EQ(rows[2]["test"], "first 6 tokens");
  for (const json& row : rows) {
    const double ratio = row["uncached_ns"].get<double>() / row["cached_ns"].get<double>();
    EXPECT_NEAR(row["ratio"].get<double>(), ratio, 1e-3 * ratio);
  }
}

TEST_F(BenchTest, OperationsOnStates) {
  const auto rows_of = [](const std::string& type) {
    return Rows({"--synthetic",
                 "qwen35-tiny:Q8_0",
                 "--kv-ops",
                 "-d",
                 "160",
                 "-n",
                 "2",
                 "-r",
                 "1",
                 "--beams",
                 "1",
                 "-t",
                 "1",
                 "--no-bounds",
                 "--state-type",
                 type,
                 "--state-log",
                 "8",
                 "--chunk",
                 "32"});
  };
  const json rows = rows_of("f32");
  std::vector<std::string> names;
  for (const json& row : rows) names.push_back(row["operation"].get<std::string>());
  EXPECT_THAT(names, ElementsAre("beam step", "memory", "reorder", "fork", "rewind 8", "states",
                                 "rewind 1", "rewind 100", "save", "load"));
  EXPECT_GE(rows[5]["ratio"], 4.0);  // the present state and those after earlier passes
  const double one = rows[5]["baseline_bytes"];
  const double one_half = rows_of("f16")[5]["baseline_bytes"];
  EXPECT_LT(one_half, 0.6 * one);
  EXPECT_GT(one_half, 0.5 * one);
}

TEST_F(BenchTest, OperationsOfTheCache) {
  const json rows = TinyRows({"--kv-ops", "-d", "64", "-n", "2", "--beams", "1,4"});
  std::vector<std::string> names;
  for (const json& row : rows) names.push_back(row["operation"].get<std::string>());
  EXPECT_THAT(names, ElementsAre("beam step", "beam step", "memory", "reorder", "fork", "rewind 8",
                                 "save", "load"));
  // 64 positions fill two blocks of 32 exactly.
  EXPECT_EQ(rows[2]["bytes"].get<double>(), 64 * kF16Position);
  EXPECT_EQ(rows[2]["ratio"], 1.0);
  // A copy of everything would be of four beams, 64 positions each.
  EXPECT_EQ(rows[3]["baseline_bytes"].get<double>(), 4 * 64 * kF16Position);
  // After one token each, 16 forks hold a block of their own.
  EXPECT_EQ(rows[4]["bytes"].get<double>(), 16 * 32 * kF16Position);
  EXPECT_GT(rows[6]["bytes"].get<double>(), 64 * kF16Position);
}

TEST_F(BenchTest, RefusesWrongUsage) {
  const auto refused = [](std::vector<std::string> arguments, const std::string& part) {
    arguments.insert(arguments.begin(), {"--synthetic", "tiny"});
    ExpectRefused(arguments, 2, part);
  };
  for (const char* text : {"", "x", "1-", "-1", "3-1", "1-8*1", "0-8*2", "1-8+0", "1,,2", "1.5",
                           "99999999999999999999", "1-8/2", "16777217"}) {
    refused({"-p", text}, fmt::format("--n-prompt: expected whole numbers from 0 to 16777216, as "
                                      "in 512 or 128,512 or 1-8 or 0-64+16 or 1-8*2, found '{}'",
                                      text));
  }
  refused({"-p", "1-10000"}, "--n-prompt: expected at most 4096 numbers");
  refused({"-t", "0"}, "--threads: expected whole numbers from 1 to 1024");
  refused({"--batch", "0"}, "--batch: expected whole numbers from 1");
  refused({"--beams", "0"}, "--beams: expected whole numbers from 1");
  refused({"-d", "a"}, "--n-depth: expected whole numbers");
  for (const char* text : {"512", "1,2,3", "0,1", "1,x"}) {
    refused({"-pg", text}, "--prompt-gen: expected two whole numbers");
  }
  refused({"--kv-type", "f16,f8"}, "--kv-type");
  refused({"-ctv", "f8"}, "--cache-type-v");
  refused({"-o", "xml"}, "--output: expected md, csv, json, jsonl or sql, found 'xml'");
  refused({"-oe", "xml"}, "--output-err: expected md");
  refused({"--kv-ops", "--compare-no-cache"}, "exclude each other");
  refused({"--kv-ops", "-d", "0"}, "-d and -n: expected at least 1");
  ExpectRefused({}, 2, "no model given");
  ExpectRefused({"--synthetic", "2b"}, 2, "--synthetic: expected a shape out of tiny, 1b, 3b, 8b");
  ExpectRefused({"--synthetic", "1b:Q9"}, 2, "--synthetic: expected a type");
}

TEST_F(BenchTest, RefusesWhatDoesNotFit) {
  ExpectRefused({"--synthetic", "tiny", "-p", "0", "-n", "1", "-d", "16777216", "--batch", "1000"},
                1, "tokens do not fit: their KV cache takes");
}

}  // namespace
}  // namespace kvant::test
