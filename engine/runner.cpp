// Running a plan over several sequences: buffers, passes, the cache transaction around each, and
// the head over the rows that want logits.
#include "engine/runner.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "engine/arch/arch_spec.h"
#include "engine/graph/plan.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_rows.h"
#include "engine/kv/prefix_index.h"
#include "engine/kv/session_file.h"
#include "engine/kv/step_view.h"

namespace kvant {
namespace {

// Bytes of weights times rows below which one thread runs a step alone. So much takes it well under
// a millisecond; sharing would gain some hundred microseconds on an idle machine and lose far more
// on a busy one, where every barrier waits for a thread that is not running. A number of threads
// that the caller asked for is kept to.
constexpr uint64_t kAloneWork = uint64_t{4} << 20;

// A sequence or a snapshot of one.
struct Slot {
  bool used = false;
  kv::Sequence kv;              // its length also counts without a cache
  std::vector<TokenId> tokens;  // by position; those of pruned positions are kept
  std::vector<float> logits;    // [vocab]
  bool has_logits = false;
  // The cache holds what its tokens alone give: other sequences may use its blocks.
  bool plain = true;
  int64_t indexed_blocks = 0;  // known to the prefix index
};

// The tokens of one sequence in a pass.
struct PassPart {
  Slot* slot;
  std::span<const TokenId> tokens;
};

}  // namespace

struct Runner::State {
  State(std::shared_ptr<const Model> model_in, const SessionOptions& options_in)
      : model(std::move(model_in)), options(options_in), pool(options_in.threads) {
    for (const auto& tensor : model->file().tensors()) weight_bytes += tensor.size_bytes;
  }

  Status Prepare();
  Result<Slot*> Find(std::vector<std::unique_ptr<Slot>>& slots, int id, const char* what);
  Result<Slot*> Find(SequenceId id) { return Find(sequences, id, "sequence"); }
  std::unique_ptr<Slot> MakeSlot() const;
  Result<int> NewSlot(std::vector<std::unique_ptr<Slot>>& slots);
  void Clear(Slot& slot);
  void Copy(const Slot& from, Slot& to);
  Status Finish(Status status) const;
  Status Check() const;

  Status CheckTokens(const Slot& slot, std::span<const TokenId> ids) const;
  Status CheckRoom(const StepInput& input);
  std::span<const TokenId> ReusePrefix(Slot& slot, std::span<const TokenId> tokens);
  void IndexPrefix(Slot& slot);
  Status RunPass(std::span<const PassPart> parts);
  Status ReserveParts(std::span<const PassPart> parts);
  Status RunHead();
  Status RunNodes(const std::vector<std::unique_ptr<graph::Node>>& nodes);
  void RunCopies();
  std::span<const float> HeadRow(int64_t row) const;
  Status ReplayTo(Slot& slot, int64_t length);
  Status MoveTokens(Slot& slot, int64_t begin, int64_t end);

  std::shared_ptr<const Model> model;
  SessionOptions options;
  ThreadPool pool;
  graph::ArenaLayout layout;
  AlignedBuffer arena;
  AlignedBuffer scratch;
  std::vector<graph::RopeAngles> ropes;
  std::optional<kv::Cache> cache;
  std::optional<kv::StepView> view;
  std::optional<kv::PrefixIndex> prefixes;
  std::vector<std::unique_ptr<Slot>> sequences;
  std::vector<std::unique_ptr<Slot>> snapshots;
  // For Reorder: an empty slot for every sequence, and the slots it is asked about.
  std::vector<std::unique_ptr<Slot>> spare;
  std::vector<Slot*> reordered;

  graph::StepContext step;
  // Of the pass under way.
  std::vector<TokenId> tokens;
  std::vector<int64_t> positions;
  std::vector<kv::StepPart> parts;
  std::vector<int64_t> head;
  // Of the step under way.
  std::vector<std::span<const TokenId>> left;
  std::vector<PassPart> pass;

  RunnerStats stats;
  uint64_t weight_bytes = 0;
  bool may_run_alone = false;  // the number of threads is ours to choose
  // Member 0 polls the cancel flag before a barrier and everybody reads the answer after it. Two
  // slots in turn, so that the next answer is not written while a slow member still reads this one.
  std::array<bool, 2> stopped{};
};

// ---- Creation -----------------------------------------------------------------------------------

Status Runner::State::Prepare() {
  const graph::Plan& plan = model->plan();
  const int64_t parts_max = std::min({options.sequences, options.chunk, kSharedRowsMax});
  step.limits = {options.chunk, options.context, parts_max};
  layout = plan.Layout(options.chunk);
  KVANT_ASSIGN(arena, AlignedBuffer::Allocate(layout.bytes, "activations"));
  step.scratch_bytes = plan.ScratchBytes(step.limits);
  KVANT_ASSIGN(scratch, AlignedBuffer::Allocate(
                            step.scratch_bytes * static_cast<size_t>(options.threads), "scratch"));
  for (const arch::RopeSpec& rope : model->spec().ropes)
    ropes.push_back({rope.Frequencies(options.context), rope.amplitude});
  tokens.reserve(static_cast<size_t>(options.chunk));
  positions.reserve(static_cast<size_t>(options.chunk));
  head.reserve(static_cast<size_t>(graph::kHeadRows));
  parts.reserve(static_cast<size_t>(parts_max));
  pass.reserve(static_cast<size_t>(parts_max));
  left.reserve(static_cast<size_t>(options.sequences));
  if (options.kv_cache) {
    KVANT_ASSIGN(cache, kv::Cache::Create(CacheOptionsFor(*model, options)));
    view.emplace(*cache, parts_max, options.chunk);
    if (options.prefix_cache) prefixes.emplace(*cache);
  }
  step.arena = arena.data();
  step.value_offsets = layout.value_offsets;
  step.values = plan.values();
  step.ropes = ropes;
  step.scratch = scratch.data();
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
  return state_->Finish({});
}

Status Runner::Reset(SequenceId sequence) {
  KVANT_ASSIGN(Slot* const slot, state_->Find(sequence));
  state_->Clear(*slot);
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

// ---- Passes -------------------------------------------------------------------------------------

// Runs nodes on the whole team with a barrier after each. kCancelled leaves buffers half written,
// which is harmless.
Status Runner::State::RunNodes(const std::vector<std::unique_ptr<graph::Node>>& nodes) {
  bool cancelled = false;
  const auto run = [&](const ThreadPool::Member& member) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      nodes[i]->Run(step, member);
      if (member.index == 0) {
        stopped[i % 2] =
            options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
      }
      member.Barrier();
      if (stopped[i % 2]) {
        if (member.index == 0) cancelled = true;
        return;
      }
    }
  };
  const bool alone = may_run_alone && weight_bytes * static_cast<uint64_t>(step.rows) < kAloneWork;
  alone ? pool.RunAlone(run) : pool.Run(run);
  if (cancelled) return MakeError(ErrorCode::kCancelled, "cancelled");
  return {};
}

void Runner::State::RunCopies() {
  if (cache->copies().empty()) return;
  pool.Run(
      [this](const ThreadPool::Member& member) { cache->RunCopies(member.index, member.count); });
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
  step.rows = static_cast<int64_t>(tokens.size());
  const Status status = RunNodes(model->plan().body());
  if (!status.ok()) {
    for (const PassPart& part : now) {
      if (cache.has_value()) cache->Rollback(part.slot->kv);
    }
    return status;
  }
  ++stats.passes;
  stats.tokens_processed += static_cast<uint64_t>(step.rows);
  for (const PassPart& part : now) {
    Slot& slot = *part.slot;
    if (slot.kv.replaying) {
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
  return RunNodes(model->plan().head());
}

std::span<const float> Runner::State::HeadRow(int64_t row) const {
  return {step.FloatRow(model->plan().logits(), row), static_cast<size_t>(model->vocab_size())};
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
    if (state.pass.empty()) return state.Finish({});
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
  const int64_t total = static_cast<int64_t>(tokens.size());
  for (int64_t done = 0; done < total;) {
    const int64_t count = std::min(state.options.chunk, total - done);
    const PassPart part{slot,
                        tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(count))};
    KVANT_TRY(state.Finish(state.RunPass({&part, 1})));
    // The pass's rows end with the new tokens; without a cache older ones come before them.
    const int64_t older = state.step.rows - count;
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

// Remembers the full blocks of a sequence that are not known yet.
void Runner::State::IndexPrefix(Slot& slot) {
  if (!prefixes.has_value() || !slot.plain || slot.kv.replaying) return;
  const int64_t blocks = slot.kv.length / kv::kBlockTokens;
  if (blocks <= slot.indexed_blocks) return;
  prefixes->Add(slot.tokens, slot.kv);
  slot.indexed_blocks = blocks;
}

// ---- Branching ----------------------------------------------------------------------------------

Result<SequenceId> Runner::Fork(SequenceId sequence) {
  KVANT_ASSIGN(const Slot* const slot, state_->Find(sequence));
  KVANT_ASSIGN(const SequenceId copy, state_->NewSlot(state_->sequences));
  state_->Copy(*slot, *state_->sequences[static_cast<size_t>(copy)]);
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
  // As in kv::Cache::Reorder: a parent's first child takes what it has, others copy that.
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
  return state.Finish({});
}

Result<SnapshotId> Runner::TakeSnapshot(SequenceId sequence) {
  KVANT_ASSIGN(const Slot* const slot, state_->Find(sequence));
  KVANT_ASSIGN(const SnapshotId snapshot, state_->NewSlot(state_->snapshots));
  state_->Copy(*slot, *state_->snapshots[static_cast<size_t>(snapshot)]);
  KVANT_TRY(state_->Finish({}));
  return snapshot;
}

Status Runner::Restore(SequenceId sequence, SnapshotId snapshot) {
  KVANT_ASSIGN(Slot* const slot, state_->Find(sequence));
  KVANT_ASSIGN(const Slot* const from, state_->Find(state_->snapshots, snapshot, "snapshot"));
  state_->Clear(*slot);
  state_->Copy(*from, *slot);
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
  if (!state.cache.has_value()) {
    slot->kv.length = length;
  } else if (replay == Replay::kAllowed && length > 0 &&
             length < state.cache->RewindLimit(slot->kv)) {
    KVANT_TRY(state.Finish(state.ReplayTo(*slot, length)));
  } else {
    KVANT_TRY(state.cache->Rewind(slot->kv, length));
  }
  slot->tokens.resize(static_cast<size_t>(length));
  slot->has_logits = false;
  slot->indexed_blocks = std::min(slot->indexed_blocks, length / kv::kBlockTokens);
  if (length == 0) slot->plain = true;
  return state.Finish({});
}

// Computes the positions that the window groups need for position `length` again. Every window
// layer looks back over window - 1 positions of the layer below, so what is stored for the last of
// them depends on the sum of these spans; the full groups keep what they have.
Status Runner::State::ReplayTo(Slot& slot, int64_t length) {
  int64_t span = 0;
  for (const arch::LayerSpec& layer : model->spec().layers) {
    span += layer.window > 0 ? layer.window - 1 : 0;
  }
  const int64_t begin =
      std::max<int64_t>(0, length - span - kv::kRewindSlack) / kv::kBlockTokens * kv::kBlockTokens;
  // On a copy, so that a failure leaves the sequence as it is.
  Slot copy;
  copy.kv = cache->NewSequence();
  cache->Fork(slot.kv, copy.kv);
  cache->BeginReplay(copy.kv, begin);
  Status status;
  for (int64_t at = begin; at < length && status.ok();) {
    const int64_t count = std::min(
        {length - at, options.chunk, kSharedRowsMax / kv::kBlockTokens * kv::kBlockTokens});
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
  const arch::ArchSpec& spec = model->spec();
  pool.Run([&](const ThreadPool::Member& member) {
    for (size_t layer = static_cast<size_t>(member.index); layer < spec.layers.size();
         layer += static_cast<size_t>(member.count)) {
      const size_t group = static_cast<size_t>(cache->group_of_layer(static_cast<int>(layer)));
      const size_t rope = spec.layers[layer].rope;
      kv::MoveRows(*cache, model->kernels(), static_cast<int>(layer),
                   {slot.kv.tables[group], (*tables)[group], begin, slot.kv.length - (end - begin),
                    end - begin},
                   ropes[rope].frequencies, spec.ropes[rope].style);
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
  std::vector<SequenceId> ids;
  Status status;
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
    slot.plain = sequence.plain;
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

RunnerStats Runner::stats() const {
  RunnerStats stats = state_->stats;
  if (state_->cache.has_value()) {
    const kv::CacheStats cache = state_->cache->stats();
    stats.kv_bytes_used = cache.bytes_used;
    stats.kv_bytes_written = cache.bytes_written;
    stats.kv_bytes_copied = cache.bytes_copied;
    stats.kv_blocks_taken = cache.blocks_taken;
  }
  for (const auto& slot : state_->sequences) stats.sequences += slot->used ? 1 : 0;
  return stats;
}

void Runner::RunOnTeam(const std::function<void(int index, int count)>& body) {
  state_->pool.Run([&](const ThreadPool::Member& member) { body(member.index, member.count); });
}

}  // namespace kvant
