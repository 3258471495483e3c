// One pass of the plan over rows of several sequences: a transaction of the cache around it, and
// the head over the rows that want logits.
#include <algorithm>
#include <iterator>

#include "engine/graph/run_stage.h"
#include "engine/runner_state.h"

namespace kvant {
namespace {

// Bytes of weights times rows below which one thread runs a step alone. So much takes it well under
// a millisecond; sharing would gain some hundred microseconds on an idle machine and lose far more
// on a busy one, where every barrier waits for a thread that is not running. A number of threads
// that the caller asked for is kept to.
constexpr uint64_t kAloneWork = uint64_t{4} << 20;

}  // namespace

Status Runner::State::RunStage(graph::Stage stage) {
  const auto rows = static_cast<uint64_t>(step.rows[graph::RowSpace::kStep]);
  const bool alone = may_run_alone && weight_bytes * rows < kAloneWork;
  return graph::RunStage(model->plan(), stage, step, pool,
                         {alone ? graph::Team::kCallerAlone : graph::Team::kAll, options.cancel});
}

void Runner::State::RunCopies() {
  if (cache->copies().empty()) return;
  pool.RunPhases(1, [this](int64_t /*phase*/, const ThreadPool::Member& member) {
    cache->RunCopies(member.index, member.count);
  });
  cache->ClearCopies();
}

Status Runner::State::ReserveParts(std::span<const PassPart> reserved) {
  Status status;
  size_t count = 0;
  for (; count < reserved.size() && status.ok(); ++count) {
    const PassPart& part = reserved[count];
    status = cache->Reserve(part.slot->kv, static_cast<int64_t>(part.tokens.size()));
  }
  // Copies are made even if a later sequence found no room: tables refer to them.
  RunCopies();
  if (status.ok()) return status;
  for (size_t i = 0; i + 1 < count; ++i) cache->Rollback(reserved[i].slot->kv);
  return status;
}

// One transaction: afterwards all sequences hold their tokens too, or none does.
Status Runner::State::RunPass(std::span<const PassPart> now) {
  if (cache.has_value()) KVANT_TRY(ReserveParts(now));
  tokens.clear();
  positions.clear();
  parts.clear();
  for (const PassPart& part : now) {
    const int64_t first_row = static_cast<int64_t>(tokens.size());
    int64_t position = part.slot->kv.length;
    if (!cache.has_value()) {  // the whole sequence again
      tokens.insert(tokens.end(), part.slot->tokens.begin(), part.slot->tokens.end());
      position = 0;
    }
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    const int64_t rows = static_cast<int64_t>(tokens.size()) - first_row;
    for (int64_t i = 0; i < rows; ++i) positions.push_back(position + i);
    parts.push_back({&part.slot->kv, first_row, rows});
  }
  if (view.has_value()) view->Set(parts);
  step.tokens = tokens;
  step.positions = positions;
  step.rows.Set(graph::RowSpace::kStep, std::ssize(tokens));
  const Status status = RunStage(graph::Stage::kBody);
  if (!status.ok()) {
    for (const PassPart& part : now) {
      if (cache.has_value()) cache->Rollback(part.slot->kv);
    }
    return status;
  }
  ++stats.passes;
  stats.tokens_processed += tokens.size();
  for (const PassPart& part : now) {
    Slot& slot = *part.slot;
    if (slot.kv.replaying()) {
      stats.tokens_replayed += part.tokens.size();
    } else {
      slot.tokens.insert(slot.tokens.end(), part.tokens.begin(), part.tokens.end());
    }
    slot.has_logits = false;
    if (cache.has_value()) {
      cache->Commit(slot.kv);
      IndexPrefix(slot);
    } else {
      slot.kv.length += static_cast<int64_t>(part.tokens.size());
    }
  }
  return {};
}

// Logits of the rows in `head`, at most kHeadRows.
Status Runner::State::RunHead() {
  step.head = head;
  step.rows.Set(graph::RowSpace::kHead, std::ssize(head));
  return RunStage(graph::Stage::kHead);
}

std::span<const float> Runner::State::HeadRow(int64_t row) const {
  return {step.FloatRow(model->plan().logits(), row), static_cast<size_t>(model->vocab_size())};
}

}  // namespace kvant
