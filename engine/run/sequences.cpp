#include "engine/run/sequences.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "base/counted.h"
#include "base/result.h"

namespace kvant::run {

Sequences::Sequences(Core& core, Sources& sources)
    : core_(core), sources_(sources), rows_(core.model->vocab_size()) {
  if (!core_.cache.has_value()) return;
  if (core_.options.prefix_cache) {
    prefixes_.emplace(*core_.cache, &core_.row_blocks, core_.options.prefix_bytes_max);
  }
  core_.cache->SetReclaim([this](kv::GroupId group) { return Reclaim(group); });
}

Sequences::~Sequences() {
  if (core_.cache.has_value()) core_.cache->SetReclaim(nullptr);
}

// ---- Making and finding -------------------------------------------------------------------------

SequenceState* Sequences::FindIn(const States& states, int id) {
  return id < 0 || id >= std::ssize(states) ? nullptr : states[static_cast<size_t>(id)].get();
}

int Sequences::Add(States& states) {
  if (unused_.empty()) {
    auto state = std::make_unique<SequenceState>();
    if (core_.cache.has_value()) state->kv = core_.cache->NewSequence();
    // Address space: the memory comes with the tokens, and a decode step allocates nothing.
    state->tokens.reserve(static_cast<size_t>(core_.options.context));
    unused_.push_back(std::move(state));
  }
  const auto place = std::find(states.begin(), states.end(), nullptr);
  const size_t id = static_cast<size_t>(place - states.begin());
  if (place == states.end()) states.emplace_back();
  states[id] = std::move(unused_.back());
  unused_.pop_back();
  return static_cast<int>(id);
}

void Sequences::Remove(States& states, int id) {
  std::unique_ptr<SequenceState>& state = states[static_cast<size_t>(id)];
  Clear(*state);
  unused_.push_back(std::move(state));
}

Result<SequenceId> Sequences::New() {
  if (count() == core_.options.sequences) {
    return MakeError(ErrorCode::kOutOfMemory, "no sequence is free: there is room for {}",
                     Counted(core_.options.sequences, "sequence"));
  }
  return Add(alive_);
}

Result<SequenceState*> Sequences::Get(SequenceId id) const {
  SequenceState* const state = Find(id);
  if (state == nullptr) return MakeError(ErrorCode::kInvalid, "sequence {} does not exist", id);
  return state;
}

void Sequences::Free(SequenceId id) { Remove(alive_, id); }

int64_t Sequences::count() const {
  return std::ssize(alive_) - std::count(alive_.begin(), alive_.end(), nullptr);
}

SnapshotId Sequences::NewSnapshot() { return Add(snapshots_); }

Result<SequenceState*> Sequences::GetSnapshot(SnapshotId id) const {
  SequenceState* const state = FindSnapshot(id);
  if (state == nullptr) return MakeError(ErrorCode::kInvalid, "snapshot {} does not exist", id);
  return state;
}

void Sequences::FreeSnapshot(SnapshotId id) { Remove(snapshots_, id); }

int64_t Sequences::snapshots() const {
  return std::ssize(snapshots_) - std::count(snapshots_.begin(), snapshots_.end(), nullptr);
}

// ---- What each holds ----------------------------------------------------------------------------

void Sequences::Clear(SequenceState& state) {
  if (core_.cache.has_value()) {
    core_.cache->Free(state.kv);
  } else {
    state.kv.length = 0;
  }
  RemoveTokens(state, 0, std::ssize(state.tokens));
  if (state.tail != nullptr) state.tail->Forget();
  if (state.hidden != nullptr) state.hidden->Forget();
  SetLogits(state, LogitRows::kNone);
  state.origin = Origin::kTokens;
  state.indexed_blocks = 0;
  state.source.reset();
  state.adapters.reset();
}

// Numbers of sets of adapters count down from the largest number, those of sources up from 1.
Status Sequences::SetAdapters(SequenceId id, std::span<const AdapterUse> uses) {
  KVANT_ASSIGN(SequenceState* const state, Get(id));
  if (state->kv.length > 0) {
    return MakeError(ErrorCode::kInvalid, "adapters: expected an empty sequence, found {}",
                     Counted(state->kv.length, "token"));
  }
  std::vector<AdapterUse> used;
  for (const AdapterUse& use : uses) {
    if (use.adapter < 0 || use.adapter >= core_.model->adapters()) {
      return MakeError(ErrorCode::kInvalid, "adapters: there is no adapter {}", use.adapter);
    }
    if (!std::isfinite(use.scale)) {
      return MakeError(ErrorCode::kInvalid, "adapters: the scale of adapter {} is {}", use.adapter,
                       use.scale);
    }
    const auto same = [&](const AdapterUse& other) { return other.adapter == use.adapter; };
    if (std::ranges::any_of(used, same)) {
      return MakeError(ErrorCode::kInvalid, "adapters: adapter {} is there twice", use.adapter);
    }
    if (use.scale != 0) used.push_back(use);
  }
  state->adapters.reset();
  if (used.empty()) return {};
  const uint64_t source = state->source == nullptr ? 0 : state->source->number;
  for (const std::shared_ptr<const AdaptersInUse>& known : adapters_) {
    if (known->source == source && known->uses == used) state->adapters = known;
  }
  if (state->adapters == nullptr) {
    state->adapters = adapters_.emplace_back(std::make_shared<const AdaptersInUse>(
        AdaptersInUse{std::move(used), source, UINT64_MAX - adapters_.size()}));
  }
  return {};
}

Status Sequences::SetSource(SequenceState& state, const SourceState& source) {
  if (core_.cache.has_value()) {
    KVANT_TRY(core_.cache->SetSource(state.kv, source.kv));
  } else if (state.kv.length != 0) {
    return MakeError(ErrorCode::kInvalid, "source: expected an empty sequence, found {}",
                     Counted(state.kv.length, "token"));
  }
  state.source = source.identity;
  state.adapters.reset();
  return {};
}

void Sequences::SetLogits(SequenceState& state, LogitRows::Row row) {
  rows_.Release(state.logits);
  state.logits = row;
}

void Sequences::AddTokens(SequenceState& state, std::span<const TokenId> tokens) {
  state.tokens.insert(state.tokens.end(), tokens.begin(), tokens.end());
  core_.row_blocks.AddReferences(tokens);
}

void Sequences::RemoveTokens(SequenceState& state, int64_t begin, int64_t end) {
  const auto first = state.tokens.begin() + begin;
  const auto behind = state.tokens.begin() + end;
  core_.row_blocks.Release({first, behind});
  state.tokens.erase(first, behind);
}

void Sequences::Extend(SequenceState& state, std::span<const TokenId> tokens, kv::States states) {
  AddTokens(state, tokens);
  SetLogits(state, LogitRows::kNone);
  Remember(state, states);
}

// ---- Branching ----------------------------------------------------------------------------------

void Sequences::Copy(const SequenceState& from, SequenceState& to) {
  if (core_.cache.has_value()) {
    core_.cache->Fork(from.kv, to.kv);
  } else {
    to.kv.length = from.kv.length;
  }
  AddTokens(to, from.tokens);
  if (to.tail != nullptr) to.tail->Forget();
  if (to.hidden != nullptr) to.hidden->Forget();
  if (from.hidden != nullptr) to.hidden = std::make_unique<HiddenRows>(*from.hidden);
  rows_.AddReference(from.logits);
  SetLogits(to, from.logits);
  to.origin = from.origin;
  to.source = from.source;
  to.adapters = from.adapters;
  to.indexed_blocks = from.indexed_blocks;
}

Result<SequenceId> Sequences::Fork(SequenceId id) {
  KVANT_ASSIGN(const SequenceState* const state, Get(id));
  KVANT_ASSIGN(const SequenceId copy, New());
  Copy(*state, *Find(copy));
  return copy;
}

// A parent's first child takes the parent's state as it is. Every further child copies that into
// the state of a parent without children; there are as many of the one as of the other.
Status Sequences::Reorder(std::span<const SequenceId> ids, std::span<const int> parents) {
  if (ids.size() != parents.size()) {
    return MakeError(ErrorCode::kInvalid, "reorder: {} sequences and {} parents", ids.size(),
                     parents.size());
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    KVANT_TRY(Get(ids[i]));
    if (std::find(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i), ids[i]) !=
        ids.begin() + static_cast<std::ptrdiff_t>(i)) {
      return MakeError(ErrorCode::kInvalid, "reorder: sequence {} appears twice", ids[i]);
    }
    if (parents[i] < 0 || parents[i] >= static_cast<int>(ids.size())) {
      return MakeError(ErrorCode::kInvalid, "reorder: expected parents from 0 to {}, found {}",
                       ids.size() - 1, parents[i]);
    }
  }
  const auto place = [&](size_t i) -> std::unique_ptr<SequenceState>& {
    return alive_[static_cast<size_t>(ids[i])];
  };
  parents_.clear();
  for (size_t i = 0; i < ids.size(); ++i) parents_.push_back(std::move(place(i)));
  for (size_t i = 0; i < ids.size(); ++i) {
    place(i) = std::move(parents_[static_cast<size_t>(parents[i])]);  // null: another child has it
  }
  for (std::unique_ptr<SequenceState>& childless : parents_) {
    if (childless == nullptr) continue;
    Clear(*childless);
    unused_.push_back(std::move(childless));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (place(i) != nullptr) continue;
    const auto first = std::find(parents.begin(), parents.end(), parents[i]);
    place(i) = std::move(unused_.back());
    unused_.pop_back();
    Copy(*place(static_cast<size_t>(first - parents.begin())), *place(i));
  }
  return {};
}

// ---- Prefixes -----------------------------------------------------------------------------------

// The sequence that begins like `tokens` for longest, and for more than `length` of them, and that
// can be taken back so far. Texts that share less than a block, such as BOS and the first words of
// a template, have nothing to do with each other: a text then has the bits that it has alone.
Sequences::Beginning Sequences::FindAlive(const SequenceState& state,
                                          std::span<const TokenId> tokens, int64_t length) const {
  Beginning best = {nullptr, std::max(length, kv::kBlockTokens - 1)};
  for (const std::unique_ptr<SequenceState>& other : alive_) {
    const bool is_like = other != nullptr && other.get() != &state &&
                         other->origin == Origin::kTokens && other->kv.pruned.empty() &&
                         other->prefix_number() == state.prefix_number();
    if (!is_like) continue;
    const auto held = std::span(other->tokens).first(static_cast<size_t>(other->kv.length));
    const auto ends = std::mismatch(tokens.begin(), tokens.end(), held.begin(), held.end());
    const int64_t common = ends.first - tokens.begin();
    if (common > best.length && core_.cache->CanRewind(other->kv, common)) {
      best = {other.get(), common};
    }
  }
  return best;
}

int64_t Sequences::ReusePrefix(SequenceState& state, std::span<const TokenId> tokens) {
  if (!prefixes_.has_value() || state.kv.length > 0 || tokens.empty()) return 0;
  const auto wanted = tokens.first(tokens.size() - 1);
  prefixes_->Find(wanted, state.kv, state.prefix_number());
  const Beginning alive = FindAlive(state, wanted, state.kv.length);
  if (alive.state != nullptr) {
    core_.cache->Free(state.kv);
    core_.cache->Fork(alive.state->kv, state.kv);
    KVANT_CHECK(core_.cache->Rewind(state.kv, alive.length).ok());
  }
  const int64_t reused = state.kv.length;
  AddTokens(state, tokens.first(static_cast<size_t>(reused)));
  state.indexed_blocks = reused / kv::kBlockTokens;
  core_.counters.tokens_reused += static_cast<uint64_t>(reused);
  return reused;
}

void Sequences::ForgetReuse(SequenceState& state) {
  core_.counters.tokens_reused -= static_cast<uint64_t>(state.kv.length);
  if (state.source == nullptr && state.adapters == nullptr) return Clear(state);
  KVANT_CHECK(core_.cache->Rewind(state.kv, 0).ok());  // the source stays
  RemoveTokens(state, 0, std::ssize(state.tokens));
  state.indexed_blocks = 0;
}

void Sequences::Remember(SequenceState& state, kv::States states) {
  if (!prefixes_.has_value() || state.origin != Origin::kTokens) return;
  const int64_t blocks = state.kv.length / kv::kBlockTokens;
  if (blocks <= state.indexed_blocks) return;
  prefixes_->Add(state.tokens, state.kv, states, state.prefix_number());
  state.indexed_blocks = blocks;
}

// Sources that nobody holds go first. Where states are missing, known states follow, then
// checkpoints; elsewhere known blocks.
bool Sequences::Reclaim(kv::GroupId group) {
  const bool of_sources =
      group == kv::kAnyGroup || core_.cache->policy(group).holds() == kv::Holds::kSource;
  if (of_sources && sources_.GiveUp()) return true;
  const bool states = group != kv::kAnyGroup && core_.cache->shape(group).holds_states();
  if (prefixes_.has_value() && (states ? prefixes_->GiveUpState() : prefixes_->GiveUpLeaf())) {
    return true;
  }
  if (group != kv::kAnyGroup && !states) return false;
  for (const States* all : {&snapshots_, &alive_}) {
    for (const std::unique_ptr<SequenceState>& state : *all) {
      if (state != nullptr && core_.cache->DropCheckpoint(state->kv, group)) return true;
    }
  }
  return false;
}

// ---- Invariants ---------------------------------------------------------------------------------

Status Sequences::CheckRowBlocks() const {
  if (core_.row_blocks.empty()) return {};
  std::vector<std::span<const TokenId>> lists;
  for (const States* states : {&alive_, &snapshots_}) {
    for (const std::unique_ptr<SequenceState>& state : *states) {
      if (state != nullptr) lists.push_back(state->tokens);
    }
  }
  if (prefixes_.has_value()) prefixes_->ListTokens(lists);
  return core_.row_blocks.Check(lists);
}

Status Sequences::Check() const {
  KVANT_TRY(CheckRowBlocks());
  if (!core_.cache.has_value()) return {};
  std::vector<const kv::Sequence*> all;
  for (const States* states : {&alive_, &snapshots_}) {
    for (const std::unique_ptr<SequenceState>& state : *states) {
      if (state != nullptr) all.push_back(&state->kv);
    }
  }
  return core_.cache->Check(all, [this](kv::GroupId group, kv::BlockId block) {
    return sources_.references(group, block) +
           (prefixes_.has_value() ? prefixes_->references(group, block) : 0);
  });
}

}  // namespace kvant::run
