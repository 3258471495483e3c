// Sequences by number, steps and branches; what goes back is in run/rewind.cpp, files in
// run/files.cpp, tensors in run/kv_tensors.cpp, counters and the log in run/report.cpp.
#include "kvant/runner.h"

#include <array>
#include <atomic>
#include <utility>

#include <fmt/ranges.h>

#include "base/check.h"
#include "base/result.h"
#include "engine/run/engine.h"
#include "engine/run/memory_plan.h"
#include "engine/run/offload.h"

namespace kvant {

// ---- Creation -----------------------------------------------------------------------------------

Result<std::unique_ptr<run::Engine>> run::Engine::Create(std::shared_ptr<const Model> model,
                                                         const SessionOptions& asked) {
  KVANT_ASSIGN(const SessionOptions resolved, ResolveOptions(*model, asked));
  const CpuTopology topology = ThisCpuTopology();
  KVANT_ASSIGN(ThreadPlaces places,
               PlaceThreads(topology, resolved.placement, resolved.threads, CurrentNode(topology)));
  auto engine = std::make_unique<Engine>();
  engine->core = std::make_unique<Core>(std::move(model), resolved, std::move(places));
  Core& core = *engine->core;
  core.threads_chosen_here = asked.threads == 0;
  if (resolved.kv_cache) {
    KVANT_ASSIGN(const Offloaded offloaded, OpenOffload(*core.model, resolved));
    core.device = offloaded.space;
    const kv::CacheOptions wanted = CacheOptionsFor(*core.model, resolved, offloaded.layers);
    if (resolved.kv_commit) KVANT_TRY(CheckMemory(wanted));
    KVANT_ASSIGN(core.cache, kv::Cache::Create(wanted, kv::ListedStores(offloaded.space)));
  }
  if (core.places.PlacesMemory()) core.PlaceMemory();
  engine->sources = std::make_unique<Sources>(core);
  engine->sequences = std::make_unique<Sequences>(core, *engine->sources);
  engine->executor = std::make_unique<Executor>(core);
  KVANT_TRY(engine->executor->Prepare());
  engine->stepper = std::make_unique<Stepper>(core, *engine->sequences, *engine->executor);
  engine->predictor = std::make_unique<Predictor>(core, *engine->executor);
  KVANT_TRY(engine->predictor->Prepare());
  return engine;
}

Runner::Runner(std::unique_ptr<run::Engine> engine) : engine_(std::move(engine)) {}

Runner::~Runner() = default;

Result<std::unique_ptr<Runner>> Runner::Create(std::shared_ptr<const Model> model,
                                               const SessionOptions& options) {
  KVANT_CHECK(model != nullptr);
  KVANT_ASSIGN(auto engine, run::Engine::Create(std::move(model), options));
  return std::unique_ptr<Runner>(new Runner(std::move(engine)));
}

std::string_view Runner::name() const { return model().file().path(); }

// ---- Sequences ----------------------------------------------------------------------------------

Result<SequenceId> Runner::NewSequence() {
  KVANT_TRY(model().CheckDecoder());
  return engine_->sequences->New();
}

Status Runner::FreeSequence(SequenceId sequence) {
  KVANT_TRY(engine_->sequences->Get(sequence));
  engine_->sequences->Free(sequence);
  engine_->core->LogEvent("free sequence={}", sequence);
  return engine_->sequences->CheckIfAsked();
}

Status Runner::Reset(SequenceId sequence) {
  KVANT_ASSIGN(run::SequenceState* const state, engine_->sequences->Get(sequence));
  engine_->sequences->Clear(*state);
  engine_->core->LogEvent("reset sequence={}", sequence);
  return engine_->sequences->CheckIfAsked();
}

bool Runner::Has(SequenceId sequence) const {
  return engine_->sequences->Find(sequence) != nullptr;
}

int64_t Runner::length(SequenceId sequence) const {
  const run::SequenceState* const state = engine_->sequences->Find(sequence);
  return state == nullptr ? 0 : state->kv.length;
}

std::span<const TokenId> Runner::tokens(SequenceId sequence) const {
  const run::SequenceState* const state = engine_->sequences->Find(sequence);
  return state == nullptr ? std::span<const TokenId>() : std::span(std::as_const(state->tokens));
}

std::span<const float> Runner::logits(SequenceId sequence) const {
  const run::SequenceState* const state = engine_->sequences->Find(sequence);
  return state == nullptr ? std::span<const float>() : engine_->sequences->logits(*state);
}

// ---- Sources ------------------------------------------------------------------------------------

Result<SourceId> Runner::Encode(std::span<const TokenId> tokens, const SourceOptions& options) {
  const uint64_t passes = engine_->core->counters.encoder_passes;
  KVANT_ASSIGN(const SourceId source, engine_->sources->Encode(tokens, options));
  const bool found = engine_->core->counters.encoder_passes == passes;
  engine_->core->LogEvent("encode source={} tokens={}{}", source, tokens.size(),
                          found ? " found" : "");
  KVANT_TRY(engine_->sequences->CheckIfAsked());
  return source;
}

Result<SourceId> Runner::EncodeFrames(std::span<const float> frames, const SourceOptions& options) {
  const uint64_t passes = engine_->core->counters.encoder_passes;
  KVANT_ASSIGN(const SourceId source, engine_->sources->EncodeFrames(frames, options));
  const bool found = engine_->core->counters.encoder_passes == passes;
  engine_->core->LogEvent("encode source={} frames={}{}", source, model().frame_shape()->frames,
                          found ? " found" : "");
  KVANT_TRY(engine_->sequences->CheckIfAsked());
  return source;
}

Status Runner::FreeSource(SourceId source) {
  KVANT_TRY(engine_->sources->Free(source));
  engine_->core->LogEvent("free source={}", source);
  return engine_->sequences->CheckIfAsked();
}

Result<SequenceId> Runner::NewSequence(SourceId source) {
  KVANT_TRY(engine_->sources->Get(source));
  KVANT_ASSIGN(const SequenceId sequence, NewSequence());
  const Status set = SetSource(sequence, source);
  if (set.ok()) return sequence;
  engine_->sequences->Free(sequence);
  return set.error();
}

Result<SequenceId> Runner::NewSequenceOf(std::span<const TokenId> source) {
  KVANT_ASSIGN(const SourceId id, Encode(source));
  return NewSequenceAndFree(id);
}

Result<SequenceId> Runner::NewSequenceOfFrames(std::span<const float> frames) {
  KVANT_ASSIGN(const SourceId id, EncodeFrames(frames));
  return NewSequenceAndFree(id);
}

Result<SequenceId> Runner::NewSequenceAndFree(SourceId source) {
  auto sequence = NewSequence(source);
  const Status freed = FreeSource(source);
  if (sequence.ok() && !freed.ok()) return freed.error();
  return sequence;
}

std::span<const TokenId> Runner::source_tokens(SequenceId sequence) const {
  const run::SequenceState* const state = engine_->sequences->Find(sequence);
  if (state == nullptr || state->source == nullptr) return {};
  return state->source->input.tokens;
}

std::span<const float> Runner::source_frames(SequenceId sequence) const {
  const run::SequenceState* const state = engine_->sequences->Find(sequence);
  if (state == nullptr || state->source == nullptr) return {};
  return state->source->input.frames;
}

Status Runner::SetSource(SequenceId sequence, SourceId source) {
  KVANT_ASSIGN(run::SequenceState* const state, engine_->sequences->Get(sequence));
  KVANT_ASSIGN(const run::SourceState* const held, engine_->sources->Get(source));
  KVANT_TRY(engine_->sequences->SetSource(*state, *held));
  engine_->core->LogEvent("source sequence={} source={}", sequence, source);
  return engine_->sequences->CheckIfAsked();
}

// ---- Rows ---------------------------------------------------------------------------------------

Result<RowIds> Runner::AddRows(std::span<const float> rows) {
  KVANT_TRY(model().CheckDecoder());
  kv::RowBlocks& blocks = engine_->core->row_blocks;
  KVANT_ASSIGN(const TokenId first, blocks.Add(rows));
  const RowIds ids = {first, std::ssize(rows) / blocks.dim()};
  engine_->core->LogEvent("rows first={} count={}", ids.first, ids.count);
  return ids;
}

Status Runner::FreeRows(TokenId first) {
  KVANT_TRY(engine_->core->row_blocks.Free(first));
  engine_->core->LogEvent("free rows first={}", first);
  return engine_->sequences->CheckIfAsked();
}

// ---- Steps --------------------------------------------------------------------------------------

Status Runner::Step(std::span<const StepInput> inputs, const StepOptions& options) {
  return engine_->stepper->Step(inputs, options);
}

Status Runner::Append(SequenceId sequence, std::span<const TokenId> tokens) {
  const StepInput input{sequence, tokens};
  return engine_->stepper->Step({&input, 1}, {});
}

Result<int64_t> Runner::ReusePrefix(SequenceId sequence, std::span<const TokenId> prompt) {
  KVANT_ASSIGN(run::SequenceState* const state, engine_->sequences->Get(sequence));
  if (!prompt.empty()) KVANT_TRY(run::CheckTokens(*engine_->core, state->kv.length, prompt));
  const int64_t reused = engine_->sequences->ReusePrefix(*state, prompt);
  KVANT_TRY(engine_->sequences->CheckIfAsked());
  return reused;
}

Status Runner::AppendScoring(SequenceId sequence, std::span<const TokenId> tokens, int64_t first,
                             const HeadRows& rows) {
  return engine_->stepper->Score(
      sequence, tokens, first,
      [&](int64_t index, std::span<const run::LogitRow> computed) -> Status {
        if (!rows) return {};
        std::array<std::span<const float>, static_cast<size_t>(graph::kHeadRows)> logits;
        for (size_t i = 0; i < computed.size(); ++i) logits[i] = computed[i].logits;
        shown_ = std::span(logits).first(computed.size());
        Status status = rows(index, std::ssize(computed));
        shown_ = {};
        return status;
      });
}

std::span<const float> Runner::row(int64_t i) const {
  return i < 0 || i >= std::ssize(shown_) ? std::span<const float>()
                                          : shown_[static_cast<size_t>(i)];
}

Result<std::span<const TokenId>> Runner::Predict(SequenceId sequence, TokenId next, int64_t count) {
  KVANT_ASSIGN(run::SequenceState* const state, engine_->sequences->Get(sequence));
  const bool full = state->kv.length >= context();
  if (state->hidden == nullptr || full) return std::span<const TokenId>();
  KVANT_TRY(run::CheckTokens(*engine_->core, state->kv.length, {&next, 1}));
  return engine_->predictor->Guess(state->kv, *state->hidden, next, count);
}

std::span<const float> Runner::predicted_logits() const { return engine_->predictor->logits(); }

PromptCut Runner::prompt_cut() const {
  return {.chunk = options().chunk, .few_rows = std::min(options().chunk, kSharedRowsMax)};
}

int64_t Runner::free_rewind() const {
  const auto& cache = engine_->core->cache;
  return cache.has_value() && cache->holds_states() ? options().state_log : INT64_MAX;
}

// ---- Branching ----------------------------------------------------------------------------------

Result<SequenceId> Runner::Fork(SequenceId sequence) {
  KVANT_ASSIGN(const SequenceId copy, engine_->sequences->Fork(sequence));
  engine_->core->LogEvent("fork sequence={} copy={}", sequence, copy);
  KVANT_TRY(engine_->sequences->CheckIfAsked());
  return copy;
}

Status Runner::Reorder(std::span<const SequenceId> sequences, std::span<const int> parents) {
  KVANT_TRY(engine_->sequences->Reorder(sequences, parents));
  engine_->core->LogEvent("reorder sequences=[{}] parents=[{}]", fmt::join(sequences, ","),
                          fmt::join(parents, ","));
  return engine_->sequences->CheckIfAsked();
}

Result<SnapshotId> Runner::TakeSnapshot(SequenceId sequence) {
  KVANT_ASSIGN(const run::SequenceState* const state, engine_->sequences->Get(sequence));
  const SnapshotId snapshot = engine_->sequences->NewSnapshot();
  engine_->sequences->Copy(*state, *engine_->sequences->FindSnapshot(snapshot));
  engine_->core->LogEvent("snapshot sequence={} snapshot={}", sequence, snapshot);
  KVANT_TRY(engine_->sequences->CheckIfAsked());
  return snapshot;
}

Status Runner::Restore(SequenceId sequence, SnapshotId snapshot) {
  KVANT_ASSIGN(run::SequenceState* const state, engine_->sequences->Get(sequence));
  KVANT_ASSIGN(const run::SequenceState* const from, engine_->sequences->GetSnapshot(snapshot));
  engine_->sequences->Clear(*state);
  engine_->sequences->Copy(*from, *state);
  engine_->core->LogEvent("restore sequence={} snapshot={}", sequence, snapshot);
  return engine_->sequences->CheckIfAsked();
}

Status Runner::DropSnapshot(SnapshotId snapshot) {
  KVANT_TRY(engine_->sequences->GetSnapshot(snapshot));
  engine_->sequences->FreeSnapshot(snapshot);
  return engine_->sequences->CheckIfAsked();
}

// ---- What there is ------------------------------------------------------------------------------

Status Runner::SetAdapters(SequenceId sequence, std::span<const AdapterUse> uses) {
  return engine_->sequences->SetAdapters(sequence, uses);
}

Status Runner::Check() const { return engine_->sequences->Check(); }

const Model& Runner::model() const { return *engine_->core->model; }

const SessionOptions& Runner::options() const { return engine_->core->options; }

void Runner::RunApart(size_t count, const std::function<void(size_t i)>& task) {
  std::atomic<size_t> next = 0;
  engine_->core->team.Run([&](const ThreadPool::Member&) {
    for (size_t i = next++; i < count; i = next++) task(i);
  });
}

void Runner::RunOnTeam(const std::function<void(int index, int count)>& body) {
  engine_->core->team.Run(
      [&](const ThreadPool::Member& member) { body(member.index, member.count); });
}

}  // namespace kvant
