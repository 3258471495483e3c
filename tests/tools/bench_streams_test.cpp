// `kvant bench` counts what a token reads of a model with several streams.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/program.h"

namespace kvant::test {
namespace {

// Three layers with 2 key heads and 4 value heads of 64 and one with 4 heads, which have gates, 2
// kv heads and an indexer of 2 heads, all of 64; 2 of 8 experts beside a shared one; three streams
// with connections of rank 256; four rows of 64 for each token. Routers, gates of experts and the
// indexer are floats.
TEST(BenchStreams, CountsHyperConnections) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const ProgramRun run = RunProgram({"bench", "--synthetic", "qwen4exp-tiny:Q8_0", "-p", "0", "-n",
                                     "1", "-r", "1", "-t", "1", "-o", "json"});
  ASSERT_EQ(run.code, 0) << run.error;
  const nlohmann::json row = nlohmann::json::parse(run.out).at(0);
  const double delta = 256 * (2 * 128 + 256 + 256 + 2 * 4) + 256 * 256;
  const double attention = 256 * (2 * 256 + 2 * 128) + 256 * 256;
  const double ffns = 3 * 3 * 256 * 256;
  const double mean = 2 * 768 * 256;
  const double ngrams = 256 * (768 + 256);
  const double quantized =
      3 * delta + attention + 4 * (ffns + 2 * (mean + 768 * 3)) + mean + ngrams + 256 * 512;
  const double float_bytes = (4 * 256 * (8 + 1) + 256 * 3 * 64) * 4;
  EXPECT_EQ(row["work_int8_macs"].get<double>(), quantized);
  EXPECT_EQ(row["work_weight_bytes"].get<double>(), quantized * 34 / 32 + float_bytes);
}

}  // namespace
}  // namespace kvant::test
