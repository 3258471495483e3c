// Going back: to fewer tokens, to the logits of the last one, to a sequence with a hole.
#include <algorithm>
#include <string>

#include "base/counted.h"
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/kv/kv_rows.h"
#include "engine/run/engine.h"

namespace kvant {
namespace {

// The cause of a replay: the first group that cannot go back to `length`.
std::string CauseOfReplay(const kv::Cache& cache, const kv::Sequence& sequence, int64_t length) {
  for (const kv::GroupId group : cache.group_ids()) {
    const kv::Policy& policy = cache.policy(group);
    if (!policy.CanRewindTo(sequence.tables[group], length)) {
      return policy.Describe();
    }
  }
  return "none";
}

// Whether a group of rows cannot go back to `length`: a ring, which gives up a block before it
// takes the next one. States are computed again in chunks, as they were the first time.
bool NeedsRows(const kv::Cache& cache, const kv::Sequence& sequence, int64_t length) {
  for (const kv::GroupId group : cache.group_ids()) {
    const kv::Policy& policy = cache.policy(group);
    const bool rows = policy.holds() == kv::Holds::kPositions;
    if (rows && !policy.CanRewindTo(sequence.tables[group], length)) return true;
  }
  return false;
}

// Computes what the groups of windows and states need for position `length` of a copy again; the
// full groups keep what they have.
Status ReplayTo(run::Engine& engine, SequenceId sequence, int64_t length, kv::Sequence& copy) {
  run::Core& core = *engine.core;
  const int64_t begin = core.cache->ReplayBegin(copy, length);
  const run::SequenceState& state = *engine.sequences->Find(sequence);
  const std::span<const TokenId> all = state.tokens;
  ++core.counters.replays;
  core.LogEvent("replay sequence={} positions=[{},{}) for=\"{}\"", sequence, begin, length,
                CauseOfReplay(*core.cache, copy, length));
  const bool of_rows = NeedsRows(*core.cache, copy, length);
  core.cache->BeginReplay(copy, begin);
  for (int64_t at = begin; at < length;) {
    const int64_t piece = of_rows ? kv::ReplayPiece(at, length) : length - at;
    const int64_t count = std::min(core.options.chunk, piece);
    const auto tokens = all.subspan(static_cast<size_t>(at), static_cast<size_t>(count));
    run::PassPart part{.kv = &copy,
                       .earlier = {},
                       .tokens = tokens,
                       .logits_from = tokens.size(),
                       .adapters = state.adapters_in_use()};
    KVANT_TRY(engine.executor->RunPass({&part, 1}, nullptr));
    KVANT_TRY(part.status);
    core.counters.tokens_replayed += static_cast<uint64_t>(count);
    at += count;
  }
  core.cache->EndReplay(copy);
  return core.cache->Rewind(copy, length);
}

// Whether the groups that cannot go back to `length` are states, and what they took in since the
// state before it is in the log.
bool LogReaches(const kv::Cache& cache, const run::SequenceState& state, int64_t length) {
  if (state.tail == nullptr) return false;
  for (const kv::GroupId group : cache.group_ids()) {
    const kv::Policy& policy = cache.policy(group);
    if (policy.holds() == kv::Holds::kState) continue;
    if (!policy.CanRewindTo(state.kv.tables[group], length)) return false;
  }
  return state.tail->Holds(cache.ReplayBegin(state.kv, length), length);
}

// Takes a copy to `length`: by the log of its states where that reaches so far, else by a replay.
Status GoBackTo(run::Engine& engine, SequenceId sequence, int64_t length, kv::Sequence& copy) {
  run::Core& core = *engine.core;
  run::SequenceState& state = *engine.sequences->Find(sequence);
  if (!LogReaches(*core.cache, state, length)) return ReplayTo(engine, sequence, length, copy);
  const int64_t begin = core.cache->ReplayBegin(copy, length);
  core.LogEvent("scan sequence={} positions=[{},{})", sequence, begin, length);
  core.cache->BeginReplay(copy, begin);
  KVANT_TRY(engine.executor->ScanAgain(copy, *state.tail, length));
  core.counters.tokens_scanned += static_cast<uint64_t>(length - begin);
  core.cache->EndReplay(copy);
  return core.cache->Rewind(copy, length);
}

// Calls `work` with a copy of what a sequence holds. If `work` succeeds and returns kKeepCopy the
// copy replaces the original; whichever of the two is not kept is freed.
enum class Outcome : uint8_t { kKeepCopy, kKeepOriginal };
template <class Work>
Status OnCopy(kv::Cache& cache, kv::Sequence& original, const Work& work) {
  kv::Sequence copy = cache.NewSequence();
  cache.Fork(original, copy);
  const Result<Outcome> outcome = work(copy);
  if (outcome.ok() && *outcome == Outcome::kKeepCopy) std::swap(copy, original);
  cache.Free(copy);
  return outcome.ok() ? Status() : Status(outcome.error());
}

}  // namespace

// ---- Rewind -------------------------------------------------------------------------------------

Status Runner::Rewind(SequenceId sequence, int64_t length, Replay replay) {
  run::Core& core = *engine_->core;
  KVANT_ASSIGN(run::SequenceState* const state, engine_->sequences->Get(sequence));
  const int64_t from = state->kv.length;
  if (length < 0 || length > from) {
    return MakeError(ErrorCode::kInvalid, "rewind to {}: the sequence has {}", length,
                     Counted(from, "token"));
  }
  if (length == from) return {};
  if (!core.cache.has_value()) {
    state->kv.length = length;
  } else if (state->origin == run::Origin::kTokens && !core.cache->CanRewind(state->kv, length) &&
             (replay == Replay::kAllowed || LogReaches(*core.cache, *state, length))) {
    const auto replayed = [&](kv::Sequence& copy) -> Result<Outcome> {
      KVANT_TRY(GoBackTo(*engine_, sequence, length, copy));
      return Outcome::kKeepCopy;
    };
    KVANT_TRY(OnCopy(*core.cache, state->kv, replayed));
  } else {
    KVANT_TRY(core.cache->Rewind(state->kv, length));
  }
  engine_->sequences->RemoveTokens(*state, length, std::ssize(state->tokens));
  if (state->tail != nullptr) state->tail->Cut(length);
  if (state->hidden != nullptr) state->hidden->Cut(length);
  engine_->sequences->SetLogits(*state, run::LogitRows::kNone);
  state->indexed_blocks = std::min(state->indexed_blocks, length / kv::kBlockTokens);
  if (length == 0) state->origin = run::Origin::kTokens;
  ++core.counters.rewinds;
  core.LogEvent("rewind sequence={} from={} to={}", sequence, from, length);
  return engine_->sequences->CheckIfAsked();
}

// ---- Logits -------------------------------------------------------------------------------------

Status Runner::ComputeLogits(SequenceId sequence) {
  run::Core& core = *engine_->core;
  run::LogitRows& rows = engine_->sequences->rows();
  KVANT_ASSIGN(run::SequenceState* const state, engine_->sequences->Get(sequence));
  if (state->logits != run::LogitRows::kNone) return {};
  if (state->tokens.empty()) {
    return MakeError(ErrorCode::kInvalid, "sequence {} has no tokens, so no logits", sequence);
  }
  const std::vector<kv::PositionRange>& pruned = state->kv.pruned;
  if (!pruned.empty() && pruned.back().end == state->kv.length) {
    return MakeError(ErrorCode::kInvalid,
                     "sequence {}: its last token was pruned, so there are no logits", sequence);
  }
  const auto tokens = std::span(std::as_const(state->tokens));
  run::LogitRows::Row row = run::LogitRows::kNone;
  const int64_t length = state->kv.length - 1;
  // The pass leaves the row of the last token anew.
  if (state->hidden != nullptr) state->hidden->Cut(length);
  // Runs the last token once more, after the others.
  const auto compute = [&](kv::Sequence& others) -> Status {
    run::PassPart part{.kv = &others,
                       .earlier = tokens.first(tokens.size() - 1),
                       .tokens = tokens.last(1),
                       .source = state->source_input(),
                       .adapters = state->adapters_in_use(),
                       .hidden = state->hidden.get()};
    KVANT_TRY(engine_->executor->RunPass({&part, 1}, nullptr, [&](auto shown) -> Status {
      row = rows.Take();
      std::copy(shown[0].logits.begin(), shown[0].logits.end(), rows.values(row).begin());
      return {};
    }));
    return part.status;
  };
  if (!core.cache.has_value()) {
    state->kv.length = length;
    const Status status = compute(state->kv);
    state->kv.length = length + 1;
    if (!status.ok()) return status;
  } else {
    // Where a window no longer holds what the last token saw, a replay computes that on a copy,
    // which is then freed: only the logits are kept.
    const bool again =
        !core.cache->CanRewind(state->kv, length) && state->origin != run::Origin::kPruned;
    const auto last_again = [&](kv::Sequence& copy) -> Result<Outcome> {
      KVANT_TRY(again ? GoBackTo(*engine_, sequence, length, copy)
                      : core.cache->Rewind(copy, length));
      KVANT_TRY(compute(copy));
      return again ? Outcome::kKeepOriginal : Outcome::kKeepCopy;
    };
    KVANT_TRY(OnCopy(*core.cache, state->kv, last_again));
  }
  engine_->sequences->SetLogits(*state, row);
  return engine_->sequences->CheckIfAsked();
}

// ---- Prune --------------------------------------------------------------------------------------

namespace {

// Moves the tokens from `end` on to `begin`: their keys rotate back by as many positions.
Status MoveTokens(run::Engine& engine, run::SequenceState& state, int64_t begin, int64_t end) {
  if (!state.kv.pruned.empty()) {
    return MakeError(ErrorCode::kNotSupported,
                     "prune: tokens around a hole of pruned positions cannot move");
  }
  run::Core& core = *engine.core;
  auto tables = core.cache->PrepareMove(state.kv, begin, end);
  engine.executor->RunCopies();
  if (!tables.ok()) return tables.error();
  const graph::Plan& plan = core.model->plan();
  const auto layers = plan.cache_layers();
  const std::vector<float> unturned;  // no frequencies: keys of layers without a rope do not rotate
  core.team.Run([&](const ThreadPool::Member& member) {
    for (size_t layer = static_cast<size_t>(member.index); layer < layers.size();
         layer += static_cast<size_t>(member.count)) {
      if (layers[layer].keeps != graph::Keeps::kTokens) continue;
      const kv::GroupId group = core.cache->group_of_layer(static_cast<int>(layer));
      const int rope = layers[layer].rope;
      const bool turned = rope >= 0;
      kv::MoveRows(
          *core.cache, core.model->kernels(), static_cast<int>(layer),
          {state.kv.tables[group], (*tables)[group], begin, state.kv.length - (end - begin),
           end - begin},
          turned ? engine.executor->ropes()[static_cast<size_t>(rope)].frequencies : unturned,
          turned ? plan.ropes()[static_cast<size_t>(rope)].style : cpu::RopeStyle::kInterleaved);
    }
  });
  core.cache->FinishMove(state.kv, std::move(*tables), end - begin);
  engine.sequences->RemoveTokens(state, begin, end);
  return core.cache->status();
}

}  // namespace

Status Runner::Prune(SequenceId sequence, int64_t keep_first, int64_t keep_last,
                     PrunePositions positions) {
  run::Core& core = *engine_->core;
  KVANT_ASSIGN(run::SequenceState* const state, engine_->sequences->Get(sequence));
  const int64_t length = state->kv.length;
  if (keep_first < 0 || keep_last < 0 || keep_first + keep_last > length) {
    return MakeError(ErrorCode::kInvalid, "prune: keep {} and {} of {}", keep_first, keep_last,
                     Counted(length, "token"));
  }
  if (!core.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "prune: there is no KV cache");
  }
  const int64_t begin = keep_first;
  const int64_t end = length - keep_last;
  if (begin == end) return {};
  if (positions == PrunePositions::kKept) {
    KVANT_TRY(core.cache->Prune(state->kv, begin, end));
  } else {
    KVANT_TRY(MoveTokens(*engine_, *state, begin, end));
  }
  engine_->sequences->SetLogits(*state, run::LogitRows::kNone);
  if (state->hidden != nullptr) state->hidden->Forget();
  state->origin = run::Origin::kPruned;
  core.LogEvent("prune sequence={} positions=[{},{}){}", sequence, begin, end,
                positions == PrunePositions::kMoved ? " moved" : "");
  return engine_->sequences->CheckIfAsked();
}

}  // namespace kvant
