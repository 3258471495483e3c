// Tests exactly what the attention kernels add to scores for distances: with keys and queries of
// zero, a score is the bias of its distance. A head's bias is 0 for one bucket of T5 and far below
// 0 for all others. So the head's result is the mean of the values in that bucket.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "cpu/kernels/token_count.h"
#include "cpu/kv_format_list.h"
#include "tests/cpu/attention_reference.h"
#include "tests/cpu/isa_test.h"
#include "tests/shared_data.h"

namespace kvant::cpu::test {
namespace {

constexpr int64_t kFarthest = 200;
constexpr int kHeads = 32;          // one for each bucket
constexpr float kFarBelow = -1e4f;  // its exponential is 0

// The buckets of a stack for the distances from -kFarthest to kFarthest, as transformers computes
// them.
struct Buckets {
  explicit Buckets(const char* stack) {
    const auto tables = nlohmann::json::parse(
        std::ifstream(kvant::test::SourcePath("tests/reference/distance_buckets.json")));
    of_distance = tables[0][stack].get<std::vector<int>>();
    distance_max = tables[0]["distance_max"];
  }
  int Of(int64_t distance) const { return of_distance[static_cast<size_t>(distance + kFarthest)]; }

  std::vector<int> of_distance;
  int64_t distance_max = 0;
};

// Numbers of all heads for the distances from -distance_max to `farthest`.
std::vector<float> TableOf(const Buckets& buckets, int64_t farthest, DistanceBias& bias) {
  bias.least = -buckets.distance_max;
  bias.count = buckets.distance_max + farthest + 1;
  std::vector<float> values;
  for (int head = 0; head < kHeads; ++head) {
    for (int64_t i = -kDistancePadding; i < bias.count + kDistancePadding; ++i) {
      const int64_t within = std::clamp<int64_t>(i, 0, bias.count - 1);
      values.push_back(buckets.Of(bias.least + within) == head ? 0.0f : kFarBelow);
    }
  }
  return values;
}

// The mean of the positions in a bucket as a query sees them; where there is none, all positions
// are alike.
float MeanOf(const Buckets& buckets, int bucket, int64_t origin, int64_t last) {
  int64_t sum = 0;
  int64_t count = 0;
  for (int64_t p = 0; p <= last; ++p) {
    if (buckets.Of(p - origin) != bucket) continue;
    sum += p;
    ++count;
  }
  return count > 0 ? static_cast<float>(sum) / static_cast<float>(count)
                   : static_cast<float>(last) / 2;
}

class AttentionDistances : public IsaTest {};
KVANT_FOR_EACH_ISA(AttentionDistances);

// Queries at all of 201 positions, which see all of them, as in an encoder, or those up to their
// own.
TEST_P(AttentionDistances, AreThoseOfTheBucketsOfTransformers) {
  constexpr int64_t kPositions = kFarthest + 1;
  for (const auto& [both, count] : {std::pair{true, TokenCount::kFew},
                                    {false, TokenCount::kFew},
                                    {true, TokenCount::kMany},
                                    {false, TokenCount::kMany}}) {
    const Buckets buckets(both ? "encoder" : "decoder");
    DistanceBias bias;
    const GuardedArray<float> numbers(TableOf(buckets, both ? buckets.distance_max : 0, bias));
    bias.values = numbers.data();
    std::vector<int64_t> origins;
    std::vector<int64_t> last;
    for (int64_t p = 0; p < kPositions; ++p) {
      origins.push_back(p);
      last.push_back(both ? kFarthest : p);
    }
    for (const KvType element : {KvType::kF32, KvType::kF16}) {
      Shape shape;
      shape.k_dim = 8;
      shape.v_dim = 2;
      shape.heads_per_kv = kHeads;
      shape.k_type = shape.v_type = element;
      shape.cache_end = kPositions;
      shape.count = count;
      Cache cache(shape, {64});
      const std::vector<float> zeros(8, 0.0f);
      for (int64_t p = 0; p < kPositions; ++p) {
        const float value[] = {1.0f, static_cast<float>(p)};
        cache.Put(p, zeros.data(), value);
      }
      const std::vector<float> queries(static_cast<size_t>(kPositions * kHeads * 8), 0.0f);
      const GuardedArray<float> out(static_cast<size_t>(kPositions * kHeads * 2));
      const GuardedArray<std::byte> scratch(
          kernels().attention_scratch_bytes(kPositions, kHeads, 8, 2, KeyForm::kStored));
      AttentionTask task = MakeTask(shape, cache.runs(), {}, last, queries.data(), out.data(),
                                    {scratch.data(), scratch.size()});
      task.distance_bias = bias;
      task.origins = origins.data();
      kernels().attention(task);
      for (int64_t p = 0; p < kPositions; ++p) {
        for (int head = 0; head < kHeads; ++head) {
          const float* found = out.data() + (p * kHeads + head) * 2;
          ASSERT_EQ(found[0], 1.0f) << p << ", " << head;
          ASSERT_EQ(found[1], MeanOf(buckets, head, p, last[static_cast<size_t>(p)]))
              << p << ", " << head;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvant::cpu::test
