// Sequences and steps: which tokens share a pass, and the logits of those that are done.
#include "engine/runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/runner_state.h"

namespace kvant {

// ---- Creation -----------------------------------------------------------------------------------

// Memory that is to be taken at once must be there.
Status Runner::State::CheckMemory() const {
  if (!options.kv_commit) return {};
  kv::CacheOptions wanted = CacheOptionsFor(*model, options);
  const uint64_t budget = std::exchange(wanted.bytes_max, 0);
  const uint64_t available = std::min(AvailableMemory(), budget == 0 ? UINT64_MAX : budget);
  const uint64_t needed = kv::Cache::BytesNeeded(wanted);
  if (needed <= available) return {};
  const MemoryFit fit = FitMemory(wanted, available);
  return MakeError(ErrorCode::kOutOfMemory,
                   "KV cache: {} bytes are needed for {} sequences of {} positions, {} are "
                   "available; {} of the sequences, or {} positions of each, would fit",
                   needed, options.sequences, options.context, available,
                   std::min(fit.sequences, options.sequences), fit.context);
}

Status Runner::State::Prepare() {
  const graph::Plan& plan = model->plan();
  const int64_t parts_max = std::min({options.sequences, options.chunk, kSharedRowsMax});
  step.limits = {options.chunk, options.context, parts_max, ThreadPool::SharesOf(options.threads),
                 options.kv_cache};
  layout = plan.Layout(options.chunk);
  KVANT_ASSIGN(arena, AlignedBuffer::Allocate(layout.bytes, "activations"));
  step.scratch_bytes = plan.ScratchBytes(step.limits);
  KVANT_ASSIGN(scratch, AlignedBuffer::Allocate(
                            step.scratch_bytes * static_cast<size_t>(options.threads), "scratch"));
  KVANT_ASSIGN(shared, AlignedBuffer::Allocate(plan.SharedBytes(step.limits), "partial results"));
  arrivals = std::vector<std::atomic<int32_t>>(static_cast<size_t>(step.limits.shares));
  for (const graph::RopeSpec& rope : plan.ropes())
    ropes.push_back({rope.Frequencies(options.context), rope.amplitude});
  tokens.reserve(static_cast<size_t>(options.chunk));
  positions.reserve(static_cast<size_t>(options.chunk));
  head.reserve(static_cast<size_t>(graph::kHeadRows));
  parts.reserve(static_cast<size_t>(parts_max));
  pass.reserve(static_cast<size_t>(parts_max));
  left.reserve(static_cast<size_t>(options.sequences));
  growths.reserve(static_cast<size_t>(options.sequences));
  if (options.kv_cache) {
    KVANT_TRY(CheckMemory());
    KVANT_ASSIGN(cache, kv::Cache::Create(CacheOptionsFor(*model, options)));
    view.emplace(*cache, parts_max, options.chunk);
    if (options.prefix_cache) prefixes.emplace(*cache);
  }
  step.arena = arena.data();
  step.value_offsets = layout.value_offsets;
  step.values = plan.values();
  step.ropes = ropes;
  step.scratch = scratch.data();
  step.shared = shared.bytes();
  step.arrivals = arrivals;
  step.kv = view.has_value() ? &*view : nullptr;
  return {};
}

Runner::Runner(std::unique_ptr<State> state) : state_(std::move(state)) {}

Runner::~Runner() = default;

Result<std::unique_ptr<Runner>> Runner::Create(std::shared_ptr<const Model> model,
                                               const SessionOptions& options) {
  KVANT_CHECK(model != nullptr);
  KVANT_ASSIGN(const SessionOptions resolved, ResolveOptions(*model, options));
  auto state = std::make_unique<State>(std::move(model), resolved);
  state->may_run_alone = options.threads == 0;
  KVANT_TRY(state->Prepare());
  return std::unique_ptr<Runner>(new Runner(std::move(state)));
}

// ---- Slots --------------------------------------------------------------------------------------

Result<Slot*> Runner::State::Find(std::vector<std::unique_ptr<Slot>>& slots, int id,
                                  const char* what) {
  if (id < 0 || id >= static_cast<int>(slots.size()) || !slots[static_cast<size_t>(id)]->used) {
    return MakeError(ErrorCode::kInvalid, "{} {} does not exist", what, id);
  }
  return slots[static_cast<size_t>(id)].get();
}

std::unique_ptr<Slot> Runner::State::MakeSlot() const {
  auto slot = std::make_unique<Slot>();
  if (cache.has_value()) slot->kv = cache->NewSequence();
  slot->tokens.reserve(static_cast<size_t>(options.context));
  slot->logits.resize(static_cast<size_t>(model->vocab_size()));
  return slot;
}

Result<int> Runner::State::NewSlot(std::vector<std::unique_ptr<Slot>>& slots) {
  size_t id = 0;
  while (id < slots.size() && slots[id]->used) ++id;
  if (id == slots.size()) {
    if (&slots == &sequences && static_cast<int64_t>(id) == options.sequences) {
      return MakeError(ErrorCode::kOutOfMemory, "all {} sequences that were asked for are in use",
                       options.sequences);
    }
    slots.push_back(MakeSlot());
    if (&slots == &sequences) spare.push_back(MakeSlot());
  }
  slots[id]->used = true;
  return static_cast<int>(id);
}

void Runner::State::Clear(Slot& slot) {
  if (cache.has_value()) {
    cache->Free(slot.kv);
  } else {
    slot.kv.length = 0;
  }
  slot.tokens.clear();
  slot.has_logits = false;
  slot.plain = true;
  slot.indexed_blocks = 0;
}

// `to` is empty.
void Runner::State::Copy(const Slot& from, Slot& to) {
  if (cache.has_value()) {
    cache->Fork(from.kv, to.kv);
  } else {
    to.kv.length = from.kv.length;
  }
  to.tokens.assign(from.tokens.begin(), from.tokens.end());
  to.has_logits = from.has_logits;
  to.plain = from.plain;
  to.indexed_blocks = from.indexed_blocks;
  std::copy(from.logits.begin(), from.logits.end(), to.logits.begin());
}

Result<SequenceId> Runner::NewSequence() { return state_->NewSlot(state_->sequences); }

Status Runner::FreeSequence(SequenceId sequence) {
  KVANT_ASSIGN(Slot* const slot, state_->Find(sequence));
  state_->Clear(*slot);
  slot->used = false;
  state_->LogEvent("free sequence={}", sequence);
  return state_->Finish({});
}

Status Runner::Reset(SequenceId sequence) {
  KVANT_ASSIGN(Slot* const slot, state_->Find(sequence));
  state_->Clear(*slot);
  state_->LogEvent("reset sequence={}", sequence);
  return state_->Finish({});
}

int64_t Runner::length(SequenceId sequence) const {
  return state_->sequences[static_cast<size_t>(sequence)]->kv.length;
}

std::span<const TokenId> Runner::tokens(SequenceId sequence) const {
  return state_->sequences[static_cast<size_t>(sequence)]->tokens;
}

std::span<const float> Runner::logits(SequenceId sequence) const {
  const Slot& slot = *state_->sequences[static_cast<size_t>(sequence)];
  return slot.has_logits ? std::span<const float>(slot.logits) : std::span<const float>();
}

// ---- Steps --------------------------------------------------------------------------------------

Status Runner::State::CheckTokens(const Slot& slot, std::span<const TokenId> ids) const {
  if (ids.empty()) return MakeError(ErrorCode::kInvalid, "no tokens to process");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= model->vocab_size()) {
      return MakeError(ErrorCode::kInvalid, "token {}: expected an id from 0 to {}, found {}", i,
                       model->vocab_size() - 1, ids[i]);
    }
  }
  const int64_t total = slot.kv.length + static_cast<int64_t>(ids.size());
  if (total > options.context) {
    return MakeError(ErrorCode::kContextFull, "{} tokens after {} do not fit the context of {}",
                     ids.size(), slot.kv.length, options.context);
  }
  return {};
}

Status Runner::Step(std::span<const StepInput> inputs) {
  State& state = *state_;
  for (size_t i = 0; i < inputs.size(); ++i) {
    KVANT_ASSIGN(const Slot* const slot, state.Find(inputs[i].sequence));
    KVANT_TRY(state.CheckTokens(*slot, inputs[i].tokens));
    for (size_t j = 0; j < i; ++j) {
      if (inputs[i].sequence == inputs[j].sequence) {
        return MakeError(ErrorCode::kInvalid, "sequence {} appears twice in a step",
                         inputs[i].sequence);
      }
    }
  }
  const auto slot_of = [&](size_t i) {
    return state.sequences[static_cast<size_t>(inputs[i].sequence)].get();
  };
  state.left.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    state.left.push_back(state.ReusePrefix(*slot_of(i), inputs[i].tokens));
  }
  KVANT_TRY(state.CheckRoom(inputs));

  // A long piece of a prompt is a pass of its own; all short ones share passes.
  const int64_t shared_max = std::min(state.options.chunk, kSharedRowsMax);
  while (true) {
    state.pass.clear();
    int64_t rows = 0;
    state.head.clear();
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::span<const TokenId>& left = state.left[i];
      if (left.empty()) continue;
      const int64_t wanted = std::min(state.options.chunk, static_cast<int64_t>(left.size()));
      const bool alone = wanted > shared_max || state.cache == std::nullopt;
      if (alone ? rows > 0 : rows + wanted > shared_max) continue;
      state.pass.push_back({slot_of(i), left.first(static_cast<size_t>(wanted))});
      left = left.subspan(static_cast<size_t>(wanted));
      rows += wanted;
      if (alone || state.pass.size() == state.pass.capacity()) break;
    }
    if (state.pass.empty()) {
      if (state.log) state.LogUpdate(inputs);
      return state.Finish({});
    }
    KVANT_TRY(state.Finish(state.RunPass(state.pass)));

    // Logits of the sequences whose tokens are all processed, in passes over the output matrix.
    for (size_t i = 0; i < state.pass.size();) {
      state.head.clear();
      const size_t first = i;
      for (; i < state.pass.size() && state.head.size() < static_cast<size_t>(graph::kHeadRows);
           ++i) {
        state.head.push_back(state.parts[i].first_row + state.parts[i].rows - 1);
      }
      KVANT_TRY(state.RunHead());
      for (size_t part = first; part < i; ++part) {
        Slot& slot = *state.pass[part].slot;
        const std::span<const float> logits = state.HeadRow(static_cast<int64_t>(part - first));
        std::copy(logits.begin(), logits.end(), slot.logits.begin());
        slot.has_logits = true;
      }
    }
  }
}

Status Runner::Append(SequenceId sequence, std::span<const TokenId> tokens) {
  const StepInput input{sequence, tokens};
  return Step({&input, 1});
}

Status Runner::AppendScoring(SequenceId sequence, std::span<const TokenId> tokens, int64_t first,
                             const HeadRows& rows) {
  State& state = *state_;
  KVANT_ASSIGN(Slot* const slot, state.Find(sequence));
  KVANT_TRY(state.CheckTokens(*slot, tokens));
  const StepInput input{sequence, tokens};
  state.left.assign(1, tokens);
  KVANT_TRY(state.CheckRoom({&input, 1}));
  const int64_t total = static_cast<int64_t>(tokens.size());
  for (int64_t done = 0; done < total;) {
    const int64_t count = std::min(state.options.chunk, total - done);
    const PassPart part{slot,
                        tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(count))};
    KVANT_TRY(state.Finish(state.RunPass({&part, 1})));
    // The pass's rows end with the new tokens; without a cache older ones come before them.
    const int64_t older = state.step.rows[graph::RowSpace::kStep] - count;
    for (int64_t row = std::max<int64_t>(first - done, 0); row < count;) {
      const int64_t pass = std::min(graph::kHeadRows, count - row);
      state.head.clear();
      for (int64_t i = 0; i < pass; ++i) state.head.push_back(older + row + i);
      KVANT_TRY(state.RunHead());
      if (rows) KVANT_TRY(rows(done + row, pass));
      row += pass;
      if (done + row < total) continue;
      const std::span<const float> logits = state.HeadRow(pass - 1);
      std::copy(logits.begin(), logits.end(), slot->logits.begin());
      slot->has_logits = true;
    }
    done += count;
  }
  if (state.log) state.LogUpdate({&input, 1});
  return {};
}

std::span<const float> Runner::row(int64_t i) const { return state_->HeadRow(i); }

// ---- Prefixes -----------------------------------------------------------------------------------

// Gives an empty sequence the blocks that are known for the beginning of its tokens, all but the
// last token at most; returns the tokens that remain.
std::span<const TokenId> Runner::State::ReusePrefix(Slot& slot, std::span<const TokenId> ids) {
  if (!prefixes.has_value() || slot.kv.length > 0) return ids;
  prefixes->Find(ids.first(ids.size() - 1), slot.kv);
  const size_t reused = static_cast<size_t>(slot.kv.length);
  slot.tokens.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(reused));
  slot.indexed_blocks = slot.kv.length / kv::kBlockTokens;
  stats.tokens_reused += reused;
  return ids.subspan(reused);
}

// Refuses a step whose tokens do not all fit, and takes back what prefixes gave for it.
Status Runner::State::CheckRoom(std::span<const StepInput> inputs) {
  if (!cache.has_value()) return {};
  growths.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Slot& slot = *sequences[static_cast<size_t>(inputs[i].sequence)];
    growths.push_back({&slot.kv, static_cast<int64_t>(left[i].size())});
  }
  const Status status = cache->CheckRoom(growths, options.chunk);
  if (status.ok()) return {};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (left[i].size() == inputs[i].tokens.size()) continue;
    stats.tokens_reused -= inputs[i].tokens.size() - left[i].size();
    Clear(*sequences[static_cast<size_t>(inputs[i].sequence)]);
  }
  return status;
}

// Remembers the full blocks of a sequence that are not known yet.
void Runner::State::IndexPrefix(Slot& slot) {
  if (!prefixes.has_value() || !slot.plain || slot.kv.replaying()) return;
  const int64_t blocks = slot.kv.length / kv::kBlockTokens;
  if (blocks <= slot.indexed_blocks) return;
  prefixes->Add(slot.tokens, slot.kv);
  slot.indexed_blocks = blocks;
}

// ---- What there is ------------------------------------------------------------------------------

Status Runner::State::Finish(Status status) const {
  return status.ok() && options.kv_check ? Check() : status;
}

Status Runner::State::Check() const {
  if (!cache.has_value()) return {};
  std::vector<const kv::Sequence*> all;
  for (const auto* slots : {&sequences, &snapshots}) {
    for (const std::unique_ptr<Slot>& slot : *slots) all.push_back(&slot->kv);
  }
  return cache->Check(all, [this](int group, kv::BlockId block) {
    return prefixes.has_value() ? prefixes->references(group, block) : 0;
  });
}

Status Runner::Check() const { return state_->Check(); }

const Model& Runner::model() const { return *state_->model; }

const SessionOptions& Runner::options() const { return state_->options; }

void Runner::RunOnTeam(const std::function<void(int index, int count)>& body) {
  state_->pool.Run([&](const ThreadPool::Member& member) { body(member.index, member.count); });
}

}  // namespace kvant
