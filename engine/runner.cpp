// Sequences by number, steps and branches; what goes back is in run/rewind.cpp, files in
// run/files.cpp, tensors in run/kv_tensors.cpp, counters and the log in run/report.cpp.
#include "kvant/runner.h"

#include <array>
#include <utility>

#include <fmt/ranges.h>

#include "base/check.h"
#include "base/result.h"
#include "engine/memory_plan.h"
#include "engine/run/parts.h"

namespace kvant {

// ---- Creation -----------------------------------------------------------------------------------

Result<std::unique_ptr<run::Parts>> run::Parts::Create(std::shared_ptr<const Model> model,
                                                       const SessionOptions& asked) {
  KVANT_ASSIGN(const SessionOptions resolved, ResolveOptions(*model, asked));
  auto parts = std::make_unique<Parts>();
  parts->core = std::make_unique<Core>(std::move(model), resolved);
  Core& core = *parts->core;
  core.threads_chosen_here = asked.threads == 0;
  if (resolved.kv_cache) {
    const kv::CacheOptions wanted = CacheOptionsFor(*core.model, resolved);
    if (resolved.kv_commit) KVANT_TRY(CheckMemory(wanted));
    KVANT_ASSIGN(core.cache, kv::Cache::Create(wanted));
  }
  parts->sequences = std::make_unique<Sequences>(core);
  parts->executor = std::make_unique<Executor>(core);
  KVANT_TRY(parts->executor->Prepare());
  parts->stepper = std::make_unique<Stepper>(core, *parts->sequences, *parts->executor);
  return parts;
}

Runner::Runner(std::unique_ptr<run::Parts> parts) : parts_(std::move(parts)) {}

Runner::~Runner() = default;

Result<std::unique_ptr<Runner>> Runner::Create(std::shared_ptr<const Model> model,
                                               const SessionOptions& options) {
  KVANT_CHECK(model != nullptr);
  KVANT_ASSIGN(auto parts, run::Parts::Create(std::move(model), options));
  return std::unique_ptr<Runner>(new Runner(std::move(parts)));
}

// ---- Sequences ----------------------------------------------------------------------------------

Result<SequenceId> Runner::NewSequence() { return parts_->sequences->New(); }

Status Runner::FreeSequence(SequenceId sequence) {
  KVANT_TRY(parts_->sequences->Get(sequence));
  parts_->sequences->Free(sequence);
  parts_->core->LogEvent("free sequence={}", sequence);
  return parts_->sequences->CheckIfAsked();
}

Status Runner::Reset(SequenceId sequence) {
  KVANT_ASSIGN(run::SequenceState* const state, parts_->sequences->Get(sequence));
  parts_->sequences->Clear(*state);
  parts_->core->LogEvent("reset sequence={}", sequence);
  return parts_->sequences->CheckIfAsked();
}

bool Runner::Has(SequenceId sequence) const { return parts_->sequences->Find(sequence) != nullptr; }

int64_t Runner::length(SequenceId sequence) const {
  const run::SequenceState* const state = parts_->sequences->Find(sequence);
  return state == nullptr ? 0 : state->kv.length;
}

std::span<const TokenId> Runner::tokens(SequenceId sequence) const {
  const run::SequenceState* const state = parts_->sequences->Find(sequence);
  return state == nullptr ? std::span<const TokenId>() : std::span(std::as_const(state->tokens));
}

std::span<const float> Runner::logits(SequenceId sequence) const {
  const run::SequenceState* const state = parts_->sequences->Find(sequence);
  return state == nullptr ? std::span<const float>() : parts_->sequences->logits(*state);
}

// ---- Steps --------------------------------------------------------------------------------------

Status Runner::Step(std::span<const StepInput> inputs, const StepOptions& options) {
  return parts_->stepper->Step(inputs, options);
}

Status Runner::Append(SequenceId sequence, std::span<const TokenId> tokens) {
  const StepInput input{sequence, tokens};
  return parts_->stepper->Step({&input, 1}, {});
}

Result<int64_t> Runner::ReusePrefix(SequenceId sequence, std::span<const TokenId> prompt) {
  KVANT_ASSIGN(run::SequenceState* const state, parts_->sequences->Get(sequence));
  if (!prompt.empty()) KVANT_TRY(run::CheckTokens(*parts_->core, state->kv.length, prompt));
  const int64_t reused = parts_->sequences->ReusePrefix(*state, prompt);
  KVANT_TRY(parts_->sequences->CheckIfAsked());
  return reused;
}

Status Runner::AppendScoring(SequenceId sequence, std::span<const TokenId> tokens, int64_t first,
                             const HeadRows& rows) {
  return parts_->stepper->Score(
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

PromptCut Runner::prompt_cut() const {
  return {.chunk = options().chunk, .few_rows = std::min(options().chunk, kSharedRowsMax)};
}

// ---- Branching ----------------------------------------------------------------------------------

Result<SequenceId> Runner::Fork(SequenceId sequence) {
  KVANT_ASSIGN(const SequenceId copy, parts_->sequences->Fork(sequence));
  parts_->core->LogEvent("fork sequence={} copy={}", sequence, copy);
  KVANT_TRY(parts_->sequences->CheckIfAsked());
  return copy;
}

Status Runner::Reorder(std::span<const SequenceId> sequences, std::span<const int> parents) {
  KVANT_TRY(parts_->sequences->Reorder(sequences, parents));
  parts_->core->LogEvent("reorder sequences=[{}] parents=[{}]", fmt::join(sequences, ","),
                         fmt::join(parents, ","));
  return parts_->sequences->CheckIfAsked();
}

Result<SnapshotId> Runner::TakeSnapshot(SequenceId sequence) {
  KVANT_ASSIGN(const run::SequenceState* const state, parts_->sequences->Get(sequence));
  const SnapshotId snapshot = parts_->sequences->NewSnapshot();
  parts_->sequences->Copy(*state, *parts_->sequences->FindSnapshot(snapshot));
  parts_->core->LogEvent("snapshot sequence={} snapshot={}", sequence, snapshot);
  KVANT_TRY(parts_->sequences->CheckIfAsked());
  return snapshot;
}

Status Runner::Restore(SequenceId sequence, SnapshotId snapshot) {
  KVANT_ASSIGN(run::SequenceState* const state, parts_->sequences->Get(sequence));
  KVANT_ASSIGN(const run::SequenceState* const from, parts_->sequences->GetSnapshot(snapshot));
  parts_->sequences->Clear(*state);
  parts_->sequences->Copy(*from, *state);
  parts_->core->LogEvent("restore sequence={} snapshot={}", sequence, snapshot);
  return parts_->sequences->CheckIfAsked();
}

Status Runner::DropSnapshot(SnapshotId snapshot) {
  KVANT_TRY(parts_->sequences->GetSnapshot(snapshot));
  parts_->sequences->FreeSnapshot(snapshot);
  return parts_->sequences->CheckIfAsked();
}

// ---- What there is ------------------------------------------------------------------------------

Status Runner::Check() const { return parts_->sequences->Check(); }

const Model& Runner::model() const { return *parts_->core->model; }

const SessionOptions& Runner::options() const { return parts_->core->options; }

void Runner::RunOnTeam(const std::function<void(int index, int count)>& body) {
  parts_->core->team.Run(
      [&](const ThreadPool::Member& member) { body(member.index, member.count); });
}

}  // namespace kvant
