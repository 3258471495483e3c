// Perplexity, divergence, importance and choices of small models against the double-precision
// forward pass and sums written out here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/result.h"
#include "cpu/kv_format_list.h"
#include "engine/evaluate/importance.h"
#include "engine/evaluate/multiple_choice.h"
#include "engine/evaluate/perplexity.h"
#include "engine/evaluate/token_scores.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/tiny_model.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::evaluate {
namespace {

using test::ReferenceForward;
using test::TemporaryFolder;
using testing::HasSubstr;

constexpr int64_t kWindow = 16;
constexpr size_t kTokens = 4 * kWindow + 5;

std::shared_ptr<const Model> OpenModel(const std::string& type, uint32_t seed,
                                       const ModelOptions& options = {}) {
  return test::OpenTiny({.layers = 1, .type = type, .seed = seed}, options);
}

SessionOptions ExactOptions(int threads = 2) {
  SessionOptions options;
  options.context = 64;
  options.k_type = options.v_type = KvType::kF32;
  options.threads = threads;
  options.chunk = 10;  // windows take several steps
  return options;
}

Windows CutTokens(const Model& model, const WindowOptions& options) {
  auto windows = Windows::Cut(test::RandomTokens(kTokens, 7), model.tokenizer().special(), options);
  EXPECT_TRUE(windows.ok()) << windows.error().message;
  return *windows;
}

// ln p of every vocabulary entry after each token, [tokens][vocab].
std::vector<std::vector<double>> ReferenceLogProbs(const Model& model,
                                                   const std::vector<TokenId>& tokens) {
  const std::vector<double> logits = ReferenceForward(model.file()).Logits(tokens);
  const size_t vocab = logits.size() / tokens.size();
  std::vector<std::vector<double>> rows;
  for (size_t t = 0; t < tokens.size(); ++t) {
    std::vector<double> row(logits.begin() + static_cast<long>(t * vocab),
                            logits.begin() + static_cast<long>((t + 1) * vocab));
    double sum = 0;
    for (const double logit : row) sum += std::exp(logit);
    for (double& logit : row) logit -= std::log(sum);
    rows.push_back(std::move(row));
  }
  return rows;
}

TEST(Windows, PlainOnesScoreTheirSecondHalf) {
  std::vector<TokenId> tokens(50);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  SpecialTokens special;
  special.bos = 99;
  special.add_bos = true;
  const auto windows = Windows::Cut(tokens, special, {.size = 16});
  ASSERT_TRUE(windows.ok());
  EXPECT_EQ(windows->count(), 3);
  EXPECT_EQ(windows->first_row(), 8);
  EXPECT_EQ(windows->rows(), 7);
  EXPECT_EQ(windows->Tokens(1)[0], 99);
  EXPECT_EQ(windows->Tokens(1)[1], 17);
  EXPECT_EQ(windows->Target(1, 0), 25);
  EXPECT_EQ(windows->Target(1, 6), 31);
  EXPECT_EQ(Windows::Cut(tokens, special, {.size = 16, .stride = 0, .count_max = 2})->count(), 2);
  EXPECT_FALSE(Windows::Cut(tokens, special, {.size = 26}).ok());
  EXPECT_FALSE(Windows::Cut(tokens, special, {.size = 16, .stride = 16}).ok());
}

TEST(Windows, StridedOnesScoreEveryTokenOnce) {
  std::vector<TokenId> tokens(100);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  SpecialTokens special;
  special.bos = 999;
  special.add_bos = true;
  const auto windows = Windows::Cut(tokens, special, {.size = 28, .stride = 8});
  ASSERT_TRUE(windows.ok());
  EXPECT_EQ(windows->size(), 32);  // 28 + 8 / 2
  TokenId next = 24;
  for (int64_t i = 0; i < windows->count(); ++i) {
    EXPECT_EQ(windows->Tokens(i)[0], 8 * i);  // no BOS
    for (int64_t row = 0; row < windows->rows(); ++row) {
      EXPECT_EQ(windows->Tokens(i)[static_cast<size_t>(windows->first_row() + row + 1)], next);
      EXPECT_EQ(windows->Target(i, row), next++);
    }
  }
  EXPECT_GE(next, 96);
}

TEST(Perplexity, MatchesTheDoublePrecisionForwardPass) {
  const auto model = OpenModel("F32", 1);
  for (const WindowOptions& options :
       {WindowOptions{.size = kWindow}, WindowOptions{.size = kWindow, .stride = 6}}) {
    const Windows windows = CutTokens(*model, options);
    std::vector<double> nlls;
    for (int64_t w = 0; w < windows.count(); ++w) {
      const auto rows = ReferenceLogProbs(*model, windows.Tokens(w));
      for (int64_t row = 0; row < windows.rows(); ++row) {
        nlls.push_back(-rows[static_cast<size_t>(windows.first_row() + row)]
                            [static_cast<size_t>(windows.Target(w, row))]);
      }
    }
    double mean = 0;
    for (const double nll : nlls) mean += nll / static_cast<double>(nlls.size());
    double variance = 0;
    for (const double nll : nlls) {
      variance += (nll - mean) * (nll - mean) / static_cast<double>(nlls.size());
    }
    const double error = std::sqrt(variance / static_cast<double>(nlls.size() - 1));

    std::optional<double> first;
    for (const int threads : {1, 3}) {
      const auto session = test::OpenSession(model, ExactOptions(threads));
      const auto report = EvaluatePerplexity(*session, windows, {});
      ASSERT_TRUE(report.ok()) << report.error().message;
      EXPECT_EQ(report->tokens, static_cast<int64_t>(nlls.size()));
      EXPECT_NEAR(report->nll.value, mean, 1e-5);
      EXPECT_NEAR(report->nll.error, error, 1e-5);
      EXPECT_NEAR(report->perplexity.value, std::exp(mean), 1e-4 * std::exp(mean));
      EXPECT_NEAR(report->perplexity.error, std::exp(mean) * error, 1e-3);
      EXPECT_EQ(report->nll.value, first.value_or(report->nll.value)) << "depends on the threads";
      first = report->nll.value;
    }
  }
}

class Divergences : public testing::Test {
 protected:
  // Saves the base model's logits and compares the other one with them.
  Result<PerplexityReport> Compare(const Model& base_model, std::shared_ptr<const Model> base,
                                   std::shared_ptr<const Model> other, LogitRows rows) {
    const Windows windows = CutTokens(base_model, {.size = kWindow});
    const auto base_session = test::OpenSession(std::move(base), ExactOptions());
    KVANT_ASSIGN(auto writer, LogitFileWriter::Create(Path(), windows, test::kTinyVocab, rows));
    PerplexityOptions save;
    save.save = &writer;
    KVANT_TRY(EvaluatePerplexity(*base_session, windows, save));
    KVANT_TRY(writer.Finish());
    KVANT_ASSIGN(const auto file, LogitFile::Open(Path()));
    EXPECT_EQ(file.windows(), windows.count());
    EXPECT_EQ(file.window_size(), kWindow);
    const auto session = test::OpenSession(std::move(other), ExactOptions());
    PerplexityOptions compare;
    compare.base = &file;
    return EvaluatePerplexity(*session, windows, compare);
  }
  std::string Path() const { return folder_ / "base.logits"; }

  TemporaryFolder folder_;
};

TEST_F(Divergences, MatchBruteForceInDouble) {
  const auto base = OpenModel("F32", 1);
  const auto other = OpenModel("Q8_0", 1);  // nearly the same weights
  const auto far = OpenModel("F32", 2);
  for (const auto& model : {other, far}) {
    const Windows windows = CutTokens(*base, {.size = kWindow});
    std::vector<double> kls;
    int64_t same = 0;
    for (int64_t w = 0; w < windows.count(); ++w) {
      const auto p = ReferenceLogProbs(*base, windows.Tokens(w));
      const auto q = ReferenceLogProbs(*model, windows.Tokens(w));
      for (int64_t row = 0; row < windows.rows(); ++row) {
        const auto& pr = p[static_cast<size_t>(windows.first_row() + row)];
        const auto& qr = q[static_cast<size_t>(windows.first_row() + row)];
        double kl = 0;
        for (size_t i = 0; i < pr.size(); ++i) kl += std::exp(pr[i]) * (pr[i] - qr[i]);
        kls.push_back(kl);
        same += std::max_element(pr.begin(), pr.end()) - pr.begin() ==
                std::max_element(qr.begin(), qr.end()) - qr.begin();
      }
    }
    double mean = 0;
    for (const double kl : kls) mean += kl / static_cast<double>(kls.size());
    std::sort(kls.begin(), kls.end());
    // Quantized activations make the engine differ from the reference by far less than seeds do,
    // and by about as much as Q8_0 weights.
    const double tolerance = model == far ? 1e-3 * mean : 2 * mean;
    for (const LogitRows rows : {LogitRows::kFloat32, LogitRows::kUint16}) {
      const auto report = Compare(*base, base, model, rows);
      ASSERT_TRUE(report.ok()) << report.error().message;
      const Divergence& d = *report->divergence;
      EXPECT_NEAR(d.kl_mean.value, mean, tolerance);
      EXPECT_NEAR(d.kl_max, kls.back(), tolerance + kls.back() * 1e-3);
      EXPECT_LE(d.kl_median, d.kl_p99);
      EXPECT_LE(d.kl_p99, d.kl_max);
      if (model == far) {
        const size_t n = kls.size();
        const double median = n % 2 == 1 ? kls[n / 2] : (kls[n / 2] + kls[n / 2 - 1]) / 2;
        EXPECT_NEAR(d.kl_median, median, 1e-3 * median);
        EXPECT_NEAR(d.same_top.value, static_cast<double>(same) / static_cast<double>(n), 1e-9);
      }
      EXPECT_NEAR(d.perplexity_change.value, report->perplexity.value - d.base_perplexity.value,
                  1e-9);
      EXPECT_NEAR(d.perplexity_ratio.value, report->perplexity.value / d.base_perplexity.value,
                  1e-9);
    }
  }
}

TEST_F(Divergences, AModelDoesNotDivergeFromItself) {
  const auto model = OpenModel("Q4_0", 1);
  const auto exact = Compare(*model, model, model, LogitRows::kFloat32);
  ASSERT_TRUE(exact.ok()) << exact.error().message;
  EXPECT_EQ(exact->divergence->kl_max, 0.0);
  EXPECT_EQ(exact->divergence->kl_mean.value, 0.0);
  EXPECT_EQ(exact->divergence->same_top.value, 1.0);
  EXPECT_EQ(exact->divergence->perplexity_change.value, 0.0);
  const auto blurred = Compare(*model, model, model, LogitRows::kUint16);
  ASSERT_TRUE(blurred.ok());
  EXPECT_LT(std::abs(blurred->divergence->kl_max), 2e-4);
  EXPECT_NEAR(blurred->divergence->perplexity_ratio.value, 1.0, 1e-4);
}

TEST_F(Divergences, DamagedFilesAreRefused) {
  const auto model = OpenModel("F32", 1);
  for (const LogitRows rows : {LogitRows::kFloat32, LogitRows::kUint16}) {
    ASSERT_TRUE(Compare(*model, model, model, rows).ok());
    const std::vector<std::byte> whole = test::ReadFile(Path());
    const auto expect = [&](std::vector<std::byte> bytes, const std::string& part) {
      test::WriteFile(Path(), bytes);
      const auto file = LogitFile::Open(Path());
      ASSERT_FALSE(file.ok()) << part;
      EXPECT_THAT(file.error().message, HasSubstr(part));
      EXPECT_THAT(file.error().message, HasSubstr("base.logits"));
    };
    for (const size_t size :
         {size_t{0}, size_t{7}, size_t{9}, size_t{19}, size_t{20}, size_t{200}, whole.size() - 1}) {
      expect({whole.begin(), whole.begin() + static_cast<long>(size)}, "base.logits");
    }
    auto longer = whole;
    longer.push_back(std::byte{0});
    expect(longer, "do not fill");
    for (const int32_t number : {-1, 0, 0x7fffffff}) {
      for (const size_t field : {8, 12, 16}) {
        auto changed = whole;
        std::memcpy(changed.data() + field, &number, sizeof(number));
        expect(changed, "base.logits");
      }
    }
    auto changed = whole;
    const int32_t id = static_cast<int32_t>(test::kTinyVocab);
    std::memcpy(changed.data() + 20 + 4 * 5, &id, sizeof(id));
    expect(changed, "token 5: expected an id from 0 to 258, found 259");
  }
}

TEST(Importance, MatchesTheDoublePrecisionForwardPass) {
  for (const char* arch : {"llama", "phi3"}) {
    std::map<std::string, std::vector<double>> first;
    for (const int threads : {1, 3}) {
      ImportanceCollector collector(OutputMatrix::kWatched);
      ModelOptions options;
      options.observer = &collector;
      const auto model = test::OpenTiny({.arch = arch}, options);
      const Windows windows = CutTokens(*model, {.size = kWindow});
      const auto session = test::OpenSession(model, ExactOptions(threads));
      const Status status = collector.Run(*session, windows, {});
      ASSERT_TRUE(status.ok()) << status.error().message;
      const auto imatrix = collector.Take();
      ASSERT_TRUE(imatrix.ok());
      ReferenceForward reference(model->file());
      for (int64_t w = 0; w < windows.count(); ++w) reference.Logits(windows.Tokens(w));
      EXPECT_EQ(imatrix->entries.size(), reference.input_squares().size());
      for (const auto& [name, squares] : reference.input_squares()) {
        const auto entry = imatrix->entries.find(name);
        ASSERT_NE(entry, imatrix->entries.end()) << name;
        EXPECT_THAT(entry->second.counts, testing::ElementsAre(windows.count() * kWindow));
        ASSERT_EQ(entry->second.sums.size(), squares.size());
        for (size_t i = 0; i < squares.size(); ++i) {
          EXPECT_NEAR(entry->second.sums[i], squares[i], 1e-4 * squares[i] + 1e-6) << name;
        }
        const auto [known, added] = first.emplace(name, entry->second.sums);
        EXPECT_EQ(known->second, entry->second.sums) << name << " depends on the threads";
      }
    }
  }
}

// The activations are seen before they are quantized, also where matrices are quantized.
TEST(Importance, QuantizedModelsAndTheChoiceOfMatrices) {
  ImportanceCollector collector(OutputMatrix::kSkipped);
  ModelOptions options;
  options.observer = &collector;
  const auto model = OpenModel("Q8_0", 1, options);
  const Windows windows = CutTokens(*model, {.size = kWindow});
  const auto session = test::OpenSession(model, ExactOptions());
  ASSERT_TRUE(collector.Run(*session, windows, {}).ok());
  const auto imatrix = collector.Take();
  ASSERT_TRUE(imatrix.ok());
  EXPECT_EQ(imatrix->entries.size(), 7u);
  EXPECT_FALSE(imatrix->entries.contains("output.weight"));
  ReferenceForward reference(model->file());
  for (int64_t w = 0; w < windows.count(); ++w) reference.Logits(windows.Tokens(w));
  const auto& expected = reference.input_squares().at("blk.0.attn_q.weight");
  const auto& found = imatrix->entries.at("blk.0.attn_q.weight").sums;
  for (size_t i = 0; i < found.size(); ++i) {  // nothing is quantized before the first product
    EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]);
  }
  EXPECT_THAT(model->DescribePlan(), HasSubstr("observe"));
  EXPECT_THAT(OpenModel("Q8_0", 1)->DescribePlan(), testing::Not(HasSubstr("observe")));
}

TEST(TokenScores, AreTheReferencesLogProbabilities) {
  const auto model = OpenModel("F32", 3);
  const std::vector<TokenId> tokens = test::RandomTokens(20, 5);
  const auto session = test::OpenSession(model, ExactOptions());
  const auto scores = ScoreTokens(*session, tokens, 3);
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  ASSERT_EQ(scores->size(), 19u);
  const auto rows = ReferenceLogProbs(*model, tokens);
  for (size_t i = 0; i < scores->size(); ++i) {
    const double expected = rows[i][static_cast<size_t>(tokens[i + 1])];
    EXPECT_NEAR((*scores)[i].log_prob, expected, 2e-4);
    const auto likelier =
        std::count_if(rows[i].begin(), rows[i].end(), [&](double x) { return x > expected; });
    EXPECT_EQ((*scores)[i].rank, likelier + 1);
    ASSERT_EQ((*scores)[i].top.size(), 3u);
    EXPECT_EQ((*scores)[i].top[0].id,
              std::max_element(rows[i].begin(), rows[i].end()) - rows[i].begin());
  }
}

TEST(MultipleChoice, ScoresAreSumsOverTheChoicesTokens) {
  const auto model = OpenModel("F32", 3);
  const ChoiceTask task{1, "To be", {"or not", " or", "that is the question"}, 1};
  const auto tokens = EncodeChoices(task, model->tokenizer(), "f");
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  const auto session = test::OpenSession(model, ExactOptions());
  const auto scores = ScoreChoices(*session, *tokens);
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  const size_t lengths[] = {11, 5, 29};  // a token per byte; a space is three
  for (size_t c = 0; c < 3; ++c) {
    const ChoiceTokens::Choice& choice = tokens->choices[c];
    EXPECT_EQ(choice.tokens.size() - choice.first_scored, lengths[c]);
    const auto rows = ReferenceLogProbs(*model, choice.tokens);
    double sum = 0;
    for (size_t i = choice.first_scored; i < choice.tokens.size(); ++i) {
      sum += rows[i - 1][static_cast<size_t>(choice.tokens[i])];
    }
    EXPECT_NEAR((*scores)[c].log_prob, sum, 1e-3);
    EXPECT_NEAR((*scores)[c].log_prob_per_token, sum / static_cast<double>(lengths[c]), 1e-3);
    EXPECT_NEAR((*scores)[c].log_prob_per_byte, sum / static_cast<double>(task.choices[c].size()),
                1e-3);
  }
}

TEST(MultipleChoice, TheReportCountsEachKindOfScore) {
  ChoiceReport report;
  const ChoiceTask task{1, "", {"a", "b", "c", "d"}, 1};
  report.Add(task, {{-3, -1, -1}, {-2, -2, -1}, {-5, -3, -3}, {-9, -9, -9}});
  report.Add(task, {{-3, -1, -2}, {-4, -0.5, -1}, {-5, -3, -3}, {-9, -9, -9}});
  EXPECT_EQ(report.tasks, 2);
  EXPECT_EQ(report.accuracy.value, 0.5);
  EXPECT_NEAR(report.accuracy.error, 0.5, 1e-12);  // sqrt(0.5 * 0.5 / (2 - 1))
  EXPECT_EQ(report.accuracy_per_byte.value, 0.5);
  EXPECT_EQ(report.accuracy_per_token.value, 0.5);  // the first of equals
  EXPECT_EQ(report.chance, 0.25);
}

TEST(MultipleChoice, EveryBadLineIsNamed) {
  const ChoiceTasks read = ParseChoiceTasks(
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1}\n"
      "\n"
      "not json\n"
      "[1]\n"
      "{\"choices\": [\"b\", \"c\"], \"answer\": 1}\n"
      "{\"context\": \"a\", \"choices\": [\"b\"], \"answer\": 0}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"\"], \"answer\": 0}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", 7], \"answer\": 0}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": -1}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"B\"}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"]}\n"
      "{\"context\": \"\", \"choices\": [\"b\", \"c\"], \"answer\": 0}",
      "tasks.jsonl");
  ASSERT_EQ(read.tasks.size(), 2u);
  EXPECT_EQ(read.tasks[0].line, 1);
  EXPECT_EQ(read.tasks[1].line, 13);
  ASSERT_EQ(read.problems.size(), 10u);
  for (size_t i = 0; i < read.problems.size(); ++i) {
    EXPECT_THAT(read.problems[i], HasSubstr("tasks.jsonl:" + std::to_string(i + 3)));
  }
}

}  // namespace
}  // namespace kvant::evaluate
