#include "engine/embed/text_pass.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/numa_memory.h"
#include "base/result.h"
#include "cpu/kernels/token_count.h"
#include "engine/graph/run_stage.h"
#include "engine/run/memory_places.h"

namespace kvant::embed {

using graph::RowSpace;

TextPass::TextPass(const graph::Plan& plan, const Limits& limits, int threads,
                   const ThreadPlaces& places)
    : plan_(plan), places_(places), team_(threads, places_) {
  pass_.limits = LimitsOf(limits, threads);
}

graph::PassLimits TextPass::LimitsOf(const Limits& limits, int threads) {
  return {.chunk = limits.rows,
          .context = limits.context,
          .sequences = 1,
          .shares = ThreadPool::SharesOf(threads),
          .kv_cache = false,
          .source = 0,
          .texts = true};
}

uint64_t TextPass::Bytes(const graph::Plan& plan, const Limits& limits, int threads) {
  const graph::PassLimits pass = LimitsOf(limits, threads);
  return plan.Layout(limits.rows).bytes + plan.SharedBytes(pass) +
         plan.ScratchBytes(pass) * static_cast<uint64_t>(threads);
}

Status TextPass::Prepare() {
  layout_ = plan_.Layout(pass_.limits.chunk);
  KVANT_ASSIGN(arena_, AlignedBuffer::Allocate(layout_.bytes, "rows of texts"));
  pass_.scratch_bytes = plan_.ScratchBytes(pass_.limits);
  KVANT_ASSIGN(scratch_, AlignedBuffer::Allocate(
                             pass_.scratch_bytes * static_cast<size_t>(team_.size()), "scratch"));
  KVANT_ASSIGN(shared_,
               AlignedBuffer::Allocate(plan_.SharedBytes(pass_.limits), "partial results"));
  if (places_.PlacesMemory()) PlaceMemory();
  arrivals_ = std::vector<std::atomic<int32_t>>(static_cast<size_t>(pass_.limits.shares));
  for (const graph::RopeSpec& rope : plan_.ropes()) {
    ropes_.push_back({rope.Frequencies(pass_.limits.context), rope.amplitude});
  }
  for (std::vector<int32_t>* list : {&tokens_, &types_}) {
    list->reserve(static_cast<size_t>(pass_.limits.chunk));
  }
  positions_.reserve(static_cast<size_t>(pass_.limits.chunk));
  pass_.arena = arena_.data();
  pass_.value_offsets = layout_.value_offsets;
  pass_.values = plan_.values();
  pass_.ropes = ropes_;
  pass_.scratch = scratch_.data();
  pass_.shared = shared_.bytes();
  pass_.arrivals = arrivals_;
  return {};
}

void TextPass::PlaceMemory() {
  run::PlaceWeights(plan_, places_, team_);
  const std::vector<int64_t> nodes = run::NodesOf(places_);
  for (const AlignedBuffer* memory : {&arena_, &scratch_, &shared_}) {
    SpreadPages(memory->bytes(), nodes);
  }
}

Status TextPass::Run(std::span<const EmbedTokens> texts,
                     std::span<const std::atomic<bool>* const> cancel) {
  tokens_.clear();
  types_.clear();
  positions_.clear();
  texts_.clear();
  for (const EmbedTokens& text : texts) {
    const int64_t rows = std::ssize(text.ids);
    texts_.push_back({std::ssize(tokens_), rows});
    tokens_.insert(tokens_.end(), text.ids.begin(), text.ids.end());
    types_.insert(types_.end(), text.types.begin(), text.types.end());
    types_.resize(tokens_.size());
    positions_.resize(tokens_.size());
    std::iota(positions_.end() - rows, positions_.end(), 0);
  }
  pass_.tokens = tokens_;
  pass_.token_types = types_;
  pass_.positions = positions_;
  pass_.texts = texts_;
  pass_.rows.Set(RowSpace::kPass, std::ssize(tokens_), cpu::TokenCount::kMany);
  return RunStage(graph::Stage::kBody, cancel);
}

std::span<const float> TextPass::RowOf(int64_t text, int64_t row) const {
  const int64_t of_pass = texts_[static_cast<size_t>(text)].first_row + row;
  return {pass_.FloatRow(plan_.encoded(), of_pass),
          static_cast<size_t>(pass_.ValueOf(plan_.encoded()).cols)};
}

Status TextPass::RunHead(std::span<const std::atomic<bool>* const> cancel, const Take& take) {
  const auto cols = static_cast<size_t>(pass_.ValueOf(plan_.logits()).cols);
  const int64_t all = std::ssize(texts_);
  for (int64_t first = 0; first < all; first += graph::kHeadRows) {
    head_.resize(static_cast<size_t>(std::min(graph::kHeadRows, all - first)));
    std::iota(head_.begin(), head_.end(), first);
    pass_.head = head_;
    pass_.rows.Set(RowSpace::kHead, std::ssize(head_));
    KVANT_TRY(RunStage(graph::Stage::kHead, cancel));
    for (int64_t i = 0; i < std::ssize(head_); ++i) {
      take({pass_.FloatRow(plan_.logits(), i), cols});
    }
  }
  return {};
}

Status TextPass::RunStage(graph::Stage stage, std::span<const std::atomic<bool>* const> cancel) {
  const auto flag = [&](size_t i) { return i < cancel.size() ? cancel[i] : nullptr; };
  return graph::RunStage(plan_, stage, pass_, team_, {.cancel = flag(0), .cancel_too = flag(1)});
}

}  // namespace kvant::embed
