// Shared by the tests of beam search on a runner: options, results to compare bit for bit, and a
// search that keeps every beam in a session of its own, without forks, reorders or batches.
#pragma once

#include <gtest/gtest.h>

#include "kvant/beam_generator.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {

// Checked and poisoned, without waiting for another thread.
inline SessionOptions OneThread(KvType type, int64_t sequences) {
  SessionOptions options = Options(type, sequences);
  options.threads = 1;
  return options;
}

inline BeamOptions Beams(int32_t beams, int64_t max_new_tokens) {
  BeamOptions options;
  options.beams = options.num_return = beams;
  options.max_new_tokens = max_new_tokens;
  options.end_tokens = {2};
  return options;
}

inline std::vector<BeamGeneration> Generate(Runner& runner,
                                            const std::vector<std::vector<TokenId>>& prompts,
                                            const BeamGenerateOptions& options) {
  auto found = GenerateBeams(runner, prompts, options);
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() ? *found : std::vector<BeamGeneration>(prompts.size());
}

// Compares all ids, and the bits of every score.
inline void ExpectSameBits(const std::vector<BeamHypothesis>& found,
                           const std::vector<BeamHypothesis>& expected, const std::string& where) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  ASSERT_FALSE(found.empty()) << where;
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].ids, expected[i].ids) << where << " rank " << i;
    EXPECT_EQ(found[i].log_probs, expected[i].log_probs) << where << " rank " << i;
    EXPECT_EQ(found[i].parents, expected[i].parents) << where << " rank " << i;
    EXPECT_EQ(found[i].score, expected[i].score) << where << " rank " << i;
    EXPECT_EQ(found[i].ended, expected[i].ended) << where << " rank " << i;
  }
}

// The search for one prompt with a new session for every beam of every step: its text is processed
// as the beam's was, the prompt in one call and then token by token.
inline std::vector<BeamHypothesis> SearchAlone(const std::shared_ptr<const Model>& model,
                                               KvType type, const std::vector<TokenId>& prompt,
                                               const BeamOptions& options) {
  auto search = BeamSearch::Create(options, model->vocab_size());
  EXPECT_TRUE(search.ok() && search->Start(prompt).ok());
  SessionOptions session_options = OneThread(type, 1);
  session_options.kv_check = session_options.kv_poison = false;
  std::vector<std::vector<TokenId>> texts = {{}};  // of the beams, after the prompt
  while (true) {
    std::vector<std::vector<float>> rows;
    for (const std::vector<TokenId>& text : texts) {
      auto session = OpenSession(model, session_options);
      ExpectOk(session->Append(prompt));
      for (const TokenId token : text) ExpectOk(session->Append({&token, 1}));
      rows.emplace_back(session->logits().begin(), session->logits().end());
    }
    const std::vector<std::span<const float>> views(rows.begin(), rows.end());
    ExpectOk(search->Step(views));
    if (search->done() || testing::Test::HasFailure()) return search->Results();
    std::vector<std::vector<TokenId>> next;
    for (size_t i = 0; i < search->tokens().size(); ++i) {
      next.push_back(texts[static_cast<size_t>(search->parents()[i])]);
      next.back().push_back(search->tokens()[i]);
    }
    texts = std::move(next);
  }
}

}  // namespace kvant::test
