// Forks, beams, snapshots, going back, pruning, and sequences on disk.
#include <algorithm>

#include <fmt/ranges.h>

#include "engine/kv/kv_rows.h"
#include "engine/kv/session_file.h"
#include "engine/runner_state.h"

namespace kvant {

// ---- Branching ----------------------------------------------------------------------------------

Result<SequenceId> Runner::Fork(SequenceId sequence) {
  KVANT_ASSIGN(const Slot* const slot, state_->Find(sequence));
  KVANT_ASSIGN(const SequenceId copy, state_->NewSlot(state_->sequences));
  state_->Copy(*slot, *state_->sequences[static_cast<size_t>(copy)]);
  state_->LogEvent("fork sequence={} copy={}", sequence, copy);
  KVANT_TRY(state_->Finish({}));
  return copy;
}

Status Runner::Reorder(std::span<const SequenceId> ids, std::span<const int> parents) {
  State& state = *state_;
  if (ids.size() != parents.size()) {
    return MakeError(ErrorCode::kInvalid, "reorder: {} sequences and {} parents", ids.size(),
                     parents.size());
  }
  std::vector<Slot*>& slots = state.reordered;
  slots.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    KVANT_ASSIGN(Slot* const slot, state.Find(ids[i]));
    if (std::find(slots.begin(), slots.end(), slot) != slots.end()) {
      return MakeError(ErrorCode::kInvalid, "reorder: sequence {} appears twice", ids[i]);
    }
    slots.push_back(slot);
    if (parents[i] < 0 || parents[i] >= static_cast<int>(ids.size())) {
      return MakeError(ErrorCode::kInvalid, "reorder: expected parents from 0 to {}, found {}",
                       ids.size() - 1, parents[i]);
    }
  }
  // A parent's first child takes what it has, others copy that.
  const auto& spare = state.spare;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto first =
        std::find(parents.begin(), parents.begin() + static_cast<std::ptrdiff_t>(i), parents[i]);
    const size_t elder = static_cast<size_t>(first - parents.begin());
    if (elder == i) {
      std::swap(*spare[i], *slots[static_cast<size_t>(parents[i])]);
    } else {
      state.Copy(*spare[elder], *spare[i]);
    }
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    state.Clear(*slots[i]);
    std::swap(*spare[i], *slots[i]);
    slots[i]->used = true;
  }
  state.LogEvent("reorder sequences=[{}] parents=[{}]", fmt::join(ids, ","),
                 fmt::join(parents, ","));
  return state.Finish({});
}

Result<SnapshotId> Runner::TakeSnapshot(SequenceId sequence) {
  KVANT_ASSIGN(const Slot* const slot, state_->Find(sequence));
  KVANT_ASSIGN(const SnapshotId snapshot, state_->NewSlot(state_->snapshots));
  state_->Copy(*slot, *state_->snapshots[static_cast<size_t>(snapshot)]);
  state_->LogEvent("snapshot sequence={} snapshot={}", sequence, snapshot);
  KVANT_TRY(state_->Finish({}));
  return snapshot;
}

Status Runner::Restore(SequenceId sequence, SnapshotId snapshot) {
  KVANT_ASSIGN(Slot* const slot, state_->Find(sequence));
  KVANT_ASSIGN(const Slot* const from, state_->Find(state_->snapshots, snapshot, "snapshot"));
  state_->Clear(*slot);
  state_->Copy(*from, *slot);
  state_->LogEvent("restore sequence={} snapshot={}", sequence, snapshot);
  return state_->Finish({});
}

Status Runner::DropSnapshot(SnapshotId snapshot) {
  KVANT_ASSIGN(Slot* const slot, state_->Find(state_->snapshots, snapshot, "snapshot"));
  state_->Clear(*slot);
  slot->used = false;
  return state_->Finish({});
}

// ---- Going back ---------------------------------------------------------------------------------

Status Runner::Rewind(SequenceId sequence, int64_t length, Replay replay) {
  State& state = *state_;
  KVANT_ASSIGN(Slot* const slot, state.Find(sequence));
  if (length < 0 || length > slot->kv.length) {
    return MakeError(ErrorCode::kInvalid, "rewind to {}: the sequence has {} tokens", length,
                     slot->kv.length);
  }
  if (length == slot->kv.length) return {};
  const int64_t from = slot->kv.length;
  if (!state.cache.has_value()) {
    slot->kv.length = length;
  } else if (replay == Replay::kAllowed && slot->plain && length > 0 &&
             length < state.cache->RewindLimit(slot->kv)) {
    KVANT_TRY(state.Finish(state.ReplayTo(sequence, length)));
  } else {
    KVANT_TRY(state.cache->Rewind(slot->kv, length));
  }
  slot->tokens.resize(static_cast<size_t>(length));
  slot->has_logits = false;
  slot->indexed_blocks = std::min(slot->indexed_blocks, length / kv::kBlockTokens);
  if (length == 0) slot->plain = true;
  ++state.stats.rewinds;
  state.LogEvent("rewind sequence={} from={} to={}", sequence, from, length);
  return state.Finish({});
}

// Computes the positions that the window groups need for position `length` again. Every window
// layer looks back over window - 1 positions of the layer below, so what is stored for the last of
// them depends on the sum of these spans; the full groups keep what they have.
Status Runner::State::ReplayTo(SequenceId sequence, int64_t length) {
  int64_t span = 0;
  for (const graph::CacheLayer& layer : model->plan().cache_layers()) {
    span += layer.window > 0 ? layer.window - 1 : 0;
  }
  const int64_t begin =
      std::max<int64_t>(0, length - span - kv::kRewindSlack) / kv::kBlockTokens * kv::kBlockTokens;
  Slot& slot = *sequences[static_cast<size_t>(sequence)];
  ++stats.replays;
  LogEvent("replay sequence={} positions=[{},{})", sequence, begin, length);
  // On a copy, so that a failure leaves the sequence as it is.
  Slot copy;
  copy.kv = cache->NewSequence();
  cache->Fork(slot.kv, copy.kv);
  cache->BeginReplay(copy.kv, begin);
  Status status;
  for (int64_t at = begin; at < length && status.ok();) {
    const int64_t count = std::min({length - at, options.chunk, kv::kReplayTokens});
    const PassPart part{
        &copy, std::span(slot.tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(count))};
    status = RunPass({&part, 1});
    at += count;
  }
  if (status.ok()) {
    cache->EndReplay(copy.kv);
    status = cache->Rewind(copy.kv, length);
    std::swap(copy.kv, slot.kv);
  }
  cache->Free(copy.kv);
  return status;
}

Status Runner::ComputeLogits(SequenceId sequence) {
  State& state = *state_;
  KVANT_ASSIGN(Slot* const slot, state.Find(sequence));
  if (slot->has_logits) return {};
  if (slot->tokens.empty()) {
    return MakeError(ErrorCode::kInvalid, "sequence {} has no tokens, so no logits", sequence);
  }
  const std::vector<kv::PositionRange>& pruned = slot->kv.pruned;
  if (!pruned.empty() && pruned.back().end == slot->kv.length) {
    return MakeError(ErrorCode::kInvalid,
                     "sequence {}: its last token was pruned, so there are no logits", sequence);
  }
  const TokenId last = slot->tokens.back();
  // On a copy, so that a failure leaves the sequence as it is.
  const std::unique_ptr<Slot> made = state.MakeSlot();
  Slot& copy = *made;
  state.Copy(*slot, copy);
  copy.tokens.pop_back();
  Status status;
  if (state.cache.has_value()) {
    status = state.cache->Rewind(copy.kv, slot->kv.length - 1);
  } else {
    copy.kv.length -= 1;
  }
  const PassPart part{&copy, {&last, 1}};
  if (status.ok()) status = state.RunPass({&part, 1});
  if (status.ok()) {
    state.head.assign(1, state.step.rows - 1);
    status = state.RunHead();
  }
  if (status.ok()) {
    std::swap(copy.kv, slot->kv);
    const std::span<const float> logits = state.HeadRow(0);
    std::copy(logits.begin(), logits.end(), slot->logits.begin());
    slot->has_logits = true;
  }
  if (state.cache.has_value()) state.cache->Free(copy.kv);
  return state.Finish(status);
}

Status Runner::Prune(SequenceId sequence, int64_t keep_first, int64_t keep_last,
                     PrunePositions positions) {
  State& state = *state_;
  KVANT_ASSIGN(Slot* const slot, state.Find(sequence));
  const int64_t length = slot->kv.length;
  if (keep_first < 0 || keep_last < 0 || keep_first + keep_last > length) {
    return MakeError(ErrorCode::kInvalid, "prune: keep {} and {} of {} tokens", keep_first,
                     keep_last, length);
  }
  if (!state.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "prune: there is no KV cache");
  }
  const int64_t begin = keep_first;
  const int64_t end = length - keep_last;
  if (begin == end) return {};
  if (positions == PrunePositions::kKept) {
    KVANT_TRY(state.cache->Prune(slot->kv, begin, end));
  } else {
    KVANT_TRY(state.MoveTokens(*slot, begin, end));
  }
  slot->has_logits = false;
  slot->plain = false;
  state.LogEvent("prune sequence={} positions=[{},{}){}", sequence, begin, end,
                 positions == PrunePositions::kMoved ? " moved" : "");
  return state.Finish({});
}

// Moves the tokens from `end` on to `begin`: their keys turn back by as many positions.
Status Runner::State::MoveTokens(Slot& slot, int64_t begin, int64_t end) {
  if (!slot.kv.pruned.empty()) {
    return MakeError(ErrorCode::kNotSupported,
                     "prune: tokens around a hole of pruned positions cannot move");
  }
  auto tables = cache->PrepareMove(slot.kv, begin, end);
  RunCopies();
  if (!tables.ok()) return tables.error();
  const graph::Plan& plan = model->plan();
  const auto layers = plan.cache_layers();
  pool.Run([&](const ThreadPool::Member& member) {
    for (size_t layer = static_cast<size_t>(member.index); layer < layers.size();
         layer += static_cast<size_t>(member.count)) {
      const size_t group = static_cast<size_t>(cache->group_of_layer(static_cast<int>(layer)));
      const size_t rope = static_cast<size_t>(layers[layer].rope);
      kv::MoveRows(*cache, model->kernels(), static_cast<int>(layer),
                   {slot.kv.tables[group], (*tables)[group], begin, slot.kv.length - (end - begin),
                    end - begin},
                   ropes[rope].frequencies, plan.ropes()[rope].style);
    }
  });
  cache->FinishMove(slot.kv, std::move(*tables), end - begin);
  slot.tokens.erase(slot.tokens.begin() + begin, slot.tokens.begin() + end);
  return {};
}

// ---- Files --------------------------------------------------------------------------------------

Status Runner::Save(const std::string& path, std::span<const SequenceId> ids) const {
  if (!state_->cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "save: there is no KV cache");
  }
  std::vector<kv::SavedSequence> saved;
  for (const SequenceId id : ids) {
    KVANT_ASSIGN(const Slot* const slot, state_->Find(id));
    saved.push_back({&slot->kv, slot->tokens, logits(id), slot->plain});
  }
  return kv::WriteSessionFile(path, state_->model->Fingerprint(), *state_->cache, saved);
}

Result<std::vector<SequenceId>> Runner::Load(const std::string& path) {
  State& state = *state_;
  if (!state.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "load: there is no KV cache");
  }
  KVANT_ASSIGN(std::vector<kv::LoadedSequence> loaded,
               kv::ReadSessionFile(path, state.model->Fingerprint(), state.model->vocab_size(),
                                   *state.cache));
  const int64_t room = state.options.sequences - stats().sequences;
  std::vector<SequenceId> ids;
  Status status;
  if (std::ssize(loaded) > room) {
    status = MakeError(ErrorCode::kOutOfMemory, "{}: {} sequences, but there is room for {}", path,
                       loaded.size(), room);
  }
  for (kv::LoadedSequence& sequence : loaded) {
    const auto id = status.ok() ? state.NewSlot(state.sequences) : Result<int>(status.error());
    if (!id.ok()) {
      status = id.error();
      state.cache->Free(sequence.kv);
      continue;
    }
    ids.push_back(*id);
    Slot& slot = *state.sequences[static_cast<size_t>(*id)];
    std::swap(slot.kv, sequence.kv);
    slot.tokens.assign(sequence.tokens.begin(), sequence.tokens.end());
    slot.plain = sequence.given_by_tokens;
    slot.has_logits = !sequence.logits.empty();
    std::copy(sequence.logits.begin(), sequence.logits.end(), slot.logits.begin());
    state.IndexPrefix(slot);
  }
  if (!status.ok()) {
    for (const SequenceId id : ids) KVANT_TRY(FreeSequence(id));
    return status.error();
  }
  KVANT_TRY(state.Finish({}));
  return ids;
}

}  // namespace kvant
