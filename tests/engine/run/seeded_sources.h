// Shared by the tests that look inside sources: the objects of a runner on a small encoder-decoder
// of random weights, sequences of a source, steps, and the rows that a source keeps.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/kv/kv_rows.h"
#include "engine/run/engine.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {

inline constexpr int kSourceVocab = 64;

inline std::vector<TokenId> Source(int64_t length, unsigned seed = 3) {
  return RandomTokens(length, seed, kSourceVocab);
}

class SeededSources : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = seeded_.Open(OwnGemm());
    ASSERT_NE(model_, nullptr);
  }

  std::unique_ptr<run::Engine> OpenEngine(int64_t sequences, KvType type = KvType::kF32) const {
    auto engine = run::Engine::Create(model_, Options(type, sequences));
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  // A sequence of this source, which nobody else holds then.
  static run::SequenceState& Begin(run::Engine& engine, std::span<const TokenId> source) {
    const SourceId id = *engine.sources->Encode(source, {});
    run::SequenceState& state = *engine.sequences->Find(*engine.sequences->New());
    run::SourceState& held = **engine.sources->Get(id);
    ExpectOk(engine.core->cache->SetSource(state.kv, held.kv));
    state.source = held.identity;
    return state;
  }

  static void Step(run::Engine& engine, std::span<const SequenceId> all, TokenId token) {
    std::vector<StepInput> inputs;
    for (const SequenceId id : all) inputs.push_back({id, {&token, 1}});
    ExpectOk(engine.stepper->Step(inputs, {}));
  }

  static std::vector<float> LogitsOf(const run::Engine& engine, SequenceId id) {
    const auto logits = engine.sequences->logits(*engine.sequences->Find(id));
    return {logits.begin(), logits.end()};
  }

  static bool OfSource(const kv::Cache& cache, int layer) {
    return cache.policy(cache.group_of_layer(layer)).name() == "fixed";
  }

  // Calls `visit` with the block and the place of every row of a source that a sequence reads, its
  // blocks' rows behind the source's end included.
  template <class Visit>
  static void VisitRows(const run::Engine& engine, const kv::Sequence& sequence,
                        const Visit& visit) {
    const kv::Cache& cache = *engine.core->cache;
    for (int layer = 0; layer < std::ssize(engine.core->model->cache_layers()); ++layer) {
      if (!OfSource(cache, layer)) continue;
      const kv::GroupShape& shape = cache.shape(cache.group_of_layer(layer));
      for (const auto& entry : sequence.tables[cache.group_of_layer(layer)].entries) {
        for (int head = 0; head < shape.kv_heads; ++head) {
          for (int64_t i = 0; i < kv::kBlockTokens; ++i) {
            visit(kv::CacheHead{layer, head}, shape, entry, entry.number * kv::kBlockTokens + i);
          }
        }
      }
    }
  }

  // The bytes of all rows of the source that a sequence reads, and their scales.
  static std::vector<std::byte> RowsOf(const run::Engine& engine, const kv::Sequence& sequence) {
    std::vector<std::byte> bytes;
    VisitRows(engine, sequence,
              [&](kv::CacheHead at, const kv::GroupShape& shape, const kv::TableEntry& entry,
                  int64_t position) {
                std::vector<std::byte> row(4 * static_cast<size_t>(shape.k_dim + shape.v_dim));
                float scales[2] = {0, 0};
                std::byte* values = row.data() + 4 * static_cast<size_t>(shape.k_dim);
                const kv::Cache& cache = *engine.core->cache;
                kv::ReadKeyRow(cache, at, entry, position, row.data(), &scales[0]);
                kv::ReadValueRow(cache, at, entry, position, values, &scales[1]);
                bytes.insert(bytes.end(), row.begin(), row.end());
                const std::span<const std::byte> of_scales = std::as_bytes(std::span(scales));
                bytes.insert(bytes.end(), of_scales.begin(), of_scales.end());
              });
    return bytes;
  }

  SeededModel seeded_{std::string(kSeededPairs) + GetParam()};
  std::shared_ptr<const Model> model_;
};

}  // namespace kvant::test
