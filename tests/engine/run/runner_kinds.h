// Shared by the tests of Runner: kinds of caches and windows, and the logits that a sequence should
// have.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "base/result.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/accounting/policy.h"
#include "kvant/runner.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {

// One arithmetic for any number of rows, so that equal bits can be asked for.
inline ModelOptions OwnGemm() {
  ModelOptions options;
  options.float_gemm = "own";
  return options;
}

inline SessionOptions Options(KvType type, int64_t sequences) {
  SessionOptions options;
  options.k_type = options.v_type = type;
  options.sequences = sequences;
  options.threads = 2;
  options.kv_check = true;
  options.kv_poison = true;
  return options;
}

inline std::unique_ptr<Runner> OpenRunner(std::shared_ptr<const Model> model,
                                          const SessionOptions& options) {
  auto runner = Runner::Create(std::move(model), options);
  EXPECT_TRUE(runner.ok()) << runner.error().message;
  return runner.ok() ? std::move(*runner) : nullptr;
}

// One that knows what its sequences computed.
inline std::unique_ptr<Runner> OpenKnowing(const std::shared_ptr<const Model>& model,
                                           int64_t sequences = 4, uint64_t bytes_max = 0) {
  SessionOptions options = Options(KvType::kF32, sequences);
  options.prefix_cache = true;
  options.threads = 1;
  options.kv_bytes_max = bytes_max;
  return OpenRunner(model, options);
}

inline SequenceId NewSequence(Runner& runner) {
  const auto id = runner.NewSequence();
  EXPECT_TRUE(id.ok());
  return id.ok() ? *id : -1;
}

inline void ExpectOk(const Status& status) { ASSERT_TRUE(status.ok()) << status.error().message; }

// The logits of all these tokens, which are appended in pieces.
inline std::vector<float> LogitsOfAll(Runner& runner, SequenceId sequence,
                                      std::span<const TokenId> tokens, size_t piece) {
  std::vector<float> logits;
  const auto take = [&](int64_t, int64_t count) -> Status {
    for (int64_t i = 0; i < count; ++i) {
      const auto row = runner.row(i);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    return {};
  };
  for (size_t at = 0; at < tokens.size(); at += piece) {
    const auto part = tokens.subspan(at, std::min(piece, tokens.size() - at));
    ExpectOk(runner.AppendScoring(sequence, part, 0, take));
  }
  return logits;
}

// The logits after these tokens in a session of their own.
inline std::vector<float> LogitsAlone(const std::shared_ptr<const Model>& model, KvType type,
                                      std::span<const TokenId> tokens) {
  SessionOptions options = Options(type, 1);
  options.kv_check = options.kv_poison = false;
  options.threads = 1;
  auto session = OpenSession(model, options);
  ExpectOk(session->Append(tokens));
  return {session->logits().begin(), session->logits().end()};
}

struct Kind {
  const char* name;
  KvType type;
  int64_t window;
  std::string arch = "llama";
  bool mixed = false;  // layers without a window and with it in turn, so two groups in one cache

  // Whether some layer sees all positions.
  bool sees_all() const { return window == 0 || mixed; }
  bool has_sections() const { return arch == "llama4"; }
  // The most tokens that a rewind goes back without a replay. Sections are dropped as a whole.
  int64_t RewindMost() const {
    return kv::kRewindSlack + kv::kBlockTokens + (has_sections() ? window : 0);
  }
  // The first position that the next query after `length` positions sees in a layer with a window.
  int64_t FirstVisible(int64_t length) const {
    if (window == 0) return 0;
    return has_sections() ? length / window * window : std::max<int64_t>(0, length - window + 1);
  }
};

inline void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

inline std::vector<Kind> Kinds() {
  return {{"f32", KvType::kF32, 0},
          {"f16", KvType::kF16, 0},
          {"q8", KvType::kQ8, 0},
          {"f32_window_1", KvType::kF32, 1},
          {"f16_window_7", KvType::kF16, 7},
          {"q8_window_33", KvType::kQ8, 33},
          {"f32_window_100", KvType::kF32, 100},
          {"phi3_q8_window_32", KvType::kQ8, 32, "phi3"},
          {"mixed_f32_window_1", KvType::kF32, 1, "gemma3", true},
          {"mixed_f16_window_7", KvType::kF16, 7, "gemma3", true},
          {"mixed_q8_window_33", KvType::kQ8, 33, "gemma3", true},
          {"mixed_f32_window_33", KvType::kF32, 33, "gemma3", true},
          {"f32_sections_48", KvType::kF32, 48, "llama4"},
          {"mixed_q8_sections_96", KvType::kQ8, 96, "llama4", true},
          {"mixed_f16_sections_40", KvType::kF16, 40, "llama4", true},
          {"latent_f32", KvType::kF32, 0, "deepseek2"},
          {"latent_f16", KvType::kF16, 0, "deepseek2"},
          {"latent_q8", KvType::kQ8, 0, "deepseek2"},
          {"indexed_f32", KvType::kF32, 0, "deepseek32"},
          {"indexed_q8", KvType::kQ8, 0, "deepseek32"},
          {"blocks_f16", KvType::kF16, 0, "minimax-m3"},
          {"blocks_q8", KvType::kQ8, 0, "minimax-m3"}};
}

class RunnerKinds : public testing::TestWithParam<Kind> {
 protected:
  static TinyShape Shape() {
    const std::string& arch = GetParam().arch;
    TinyShape shape = arch == "deepseek2"    ? LatentShape()
                      : arch == "deepseek32" ? IndexedShape(40)
                      : arch == "minimax-m3" ? BlockShape(3)
                      : GetParam().mixed     ? MixedShape(GetParam().window)
                                             : TinyShape();
    shape.arch = arch;
    shape.window = GetParam().window;
    shape.context = 900;
    return shape;
  }
  std::shared_ptr<const Model> OpenModel() const { return OpenTiny(Shape(), OwnGemm()); }
};

}  // namespace kvant::test
