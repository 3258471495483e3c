// One pass over the rows of several texts, and the vectors made of them.
//
// The pass owns its memory, sized at creation for the most rows; running allocates nothing. All
// products count as products of many tokens, however few there are, so that the bits of a text do
// not depend on the company it is in. Thread-safety: one run at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cpu_topology.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/graph/plan.h"
#include "kvant/embed.h"

namespace kvant::embed {

class TextPass {
 public:
  struct Limits {
    int64_t rows = 0;     // of a pass
    int64_t context = 0;  // rows of a text
  };

  // The plan must outlive the pass. The memory is taken by Prepare.
  TextPass(const graph::Plan& plan, const Limits& limits, int threads, const ThreadPlaces& places);
  Status Prepare();  // kOutOfMemory
  // Bytes of the memory of a pass with these limits.
  static uint64_t Bytes(const graph::Plan& plan, const Limits& limits, int threads);

  // Makes the rows of the texts; all of them are within the limits. kCancelled.
  Status Run(std::span<const EmbedTokens> texts, std::span<const std::atomic<bool>* const> cancel);

  // After Run: row `row` of text number `text`, [columns of Plan::encoded].
  std::span<const float> RowOf(int64_t text, int64_t row) const;
  // Calls `take` with the vector or the logits of each text in order.
  using Take = std::function<void(std::span<const float> values)>;
  Status RunHead(std::span<const std::atomic<bool>* const> cancel, const Take& take);

  int threads() const { return team_.size(); }

 private:
  Status RunStage(graph::Stage stage, std::span<const std::atomic<bool>* const> cancel);
  void PlaceMemory();
  static graph::PassLimits LimitsOf(const Limits& limits, int threads);

  const graph::Plan& plan_;
  ThreadPlaces places_;
  ThreadPool team_;
  graph::ArenaLayout layout_;
  AlignedBuffer arena_;
  AlignedBuffer scratch_;
  AlignedBuffer shared_;
  std::vector<std::atomic<int32_t>> arrivals_;
  std::vector<graph::RopeAngles> ropes_;
  graph::PassContext pass_;

  // The pass under way:
  std::vector<TokenId> tokens_;
  std::vector<int32_t> types_;
  std::vector<int64_t> positions_;
  std::vector<graph::TextRows> texts_;
  std::vector<int64_t> head_;
};

}  // namespace kvant::embed
