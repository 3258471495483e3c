#include "engine/run/predictor.h"

#include <algorithm>

#include "base/result.h"
#include "engine/graph/run_stage.h"
#include "engine/run/memory_plan.h"

namespace kvant::run {

Status Predictor::Prepare() {
  const Model& model = *core_.model;
  const SessionOptions& options = core_.options;
  if (model.predictors() == 0) return {};
  if (!core_.cache.has_value() || options.offload != Offload::kNone) {
    return MakeError(ErrorCode::kNotSupported,
                     "layers that predict further tokens need a KV cache that the CPU reads");
  }
  for (const auto& tensor : model.file().tensors()) weight_bytes_ += tensor.size_bytes;
  pass_.limits = DraftLimits(options);
  size_t arena = 0;
  size_t shared = 0;
  for (const graph::Plan* plan : DraftPlans(model)) {
    heads_.push_back({plan, plan->Layout(DraftRows(model))});
    arena = std::max(arena, heads_.back().layout.bytes);
    shared = std::max(shared, plan->SharedBytes(pass_.limits));
    pass_.scratch_bytes = std::max(pass_.scratch_bytes, plan->ScratchBytes(pass_.limits));
  }
  KVANT_ASSIGN(arena_, AlignedBuffer::Allocate(arena, "guesses"));
  KVANT_ASSIGN(scratch_,
               AlignedBuffer::Allocate(pass_.scratch_bytes * static_cast<size_t>(options.threads),
                                       "scratch"));
  KVANT_ASSIGN(shared_, AlignedBuffer::Allocate(shared, "partial results"));
  arrivals_ = std::vector<std::atomic<int32_t>>(static_cast<size_t>(pass_.limits.shares));
  view_.emplace(*core_.cache, 1, pass_.limits.chunk);
  pass_.arena = arena_.data();
  pass_.kv = &*view_;
  pass_.ropes = executor_.ropes();
  pass_.row_blocks = &core_.row_blocks;
  pass_.scratch = scratch_.data();
  pass_.shared = shared_.bytes();
  pass_.arrivals = arrivals_;
  return {};
}

Result<std::span<const TokenId>> Predictor::Guess(kv::Sequence& sequence, const HiddenRows& hidden,
                                                  TokenId next, int64_t count) {
  tokens_.assign(1, next);
  positions_.clear();
  logits_ = {};
  const std::span<const float> last = hidden.Of(sequence.length - 1);
  count = std::min({count, pass_.limits.chunk, core_.options.context - sequence.length});
  if (heads_.size() > 1) count = std::min(count, std::ssize(heads_));
  const bool can = !heads_.empty() && !last.empty() && count > 0 && !sequence.replaying();
  if (!can) return std::span<const TokenId>();
  const bool reserved = core_.cache->Reserve(sequence, count).ok();
  executor_.RunCopies();  // where it failed, too: tables refer to what is to be copied
  if (!reserved) return std::span<const TokenId>();
  rows_.assign(last.begin(), last.end());
  reader_.tables = sequence.tables;
  reader_.pruned = sequence.pruned;
  for (int64_t i = 0; i < count; ++i) positions_.push_back(sequence.length + i);
  Status status;
  for (int64_t i = 0; i < count && status.ok(); ++i) {
    const bool in_turn = heads_.size() > 1;
    status = RunHead(heads_[in_turn ? static_cast<size_t>(i) : 0], sequence, in_turn ? 0 : i,
                     in_turn ? i + 1 : 1);
  }
  core_.cache->Rollback(sequence);
  KVANT_TRY(status);
  return std::span<const TokenId>(tokens_).subspan(1);
}

// Runs a plan over the tokens [first, first + rows), which are the last ones; adds the likeliest
// token behind them, and their rows.
Status Predictor::RunHead(const Head& head, const kv::Sequence& sequence, int64_t first,
                          int64_t rows) {
  reader_.length = sequence.length + first;
  reader_.reserved = rows;
  for (const kv::GroupId group : core_.cache->group_ids()) {
    reader_.tables[group].length = reader_.length;
  }
  const kv::PartRows part = {&reader_, 0, rows};
  view_->Set({&part, 1});
  const auto begin = static_cast<size_t>(first);
  const auto count = static_cast<size_t>(rows);
  const std::span<const float> hidden = rows_;
  pass_.value_offsets = head.layout.value_offsets;
  pass_.values = head.plan->values();
  pass_.tokens = std::span<const TokenId>(tokens_).subspan(begin, count);
  pass_.positions = std::span<const int64_t>(positions_).subspan(begin, count);
  pass_.hidden = {&hidden, 1};
  pass_.rows.Set(graph::RowSpace::kPass, rows);
  const bool alone = core_.threads_chosen_here && weight_bytes_ * count < kAloneWork;
  KVANT_TRY(graph::RunStage(*head.plan, graph::Stage::kBody, pass_, core_.team,
                            {.team = alone ? graph::Team::kCallerAlone : graph::Team::kAll,
                             .cancel = core_.options.cancel}));
  logits_ = {pass_.FloatRow(head.plan->logits(), rows - 1),
             static_cast<size_t>(core_.model->vocab_size())};
  tokens_.push_back(
      static_cast<TokenId>(std::max_element(logits_.begin(), logits_.end()) - logits_.begin()));
  // A layer that guesses alone goes on from its last row; several layers in turn, from the last row
  // of each.
  const int64_t dim = pass_.ValueOf(head.plan->encoded()).cols;
  const float* row = pass_.FloatRow(head.plan->encoded(), rows - 1);
  if (heads_.size() == 1) rows_.clear();
  rows_.insert(rows_.end(), row, row + dim);
  return {};
}

}  // namespace kvant::run
