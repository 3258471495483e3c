// A sequence on a runner of its own.
#include "kvant/session.h"

#include "base/result.h"

namespace kvant {

Result<std::unique_ptr<Session>> Session::Create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options) {
  SessionOptions one = options;
  one.sequences = 1;
  KVANT_ASSIGN(std::unique_ptr<Runner> runner, Runner::Create(std::move(model), one));
  KVANT_ASSIGN(const SequenceId sequence, runner->NewSequence());
  return std::unique_ptr<Session>(new Session(std::move(runner), sequence));
}

Status Session::Append(std::span<const TokenId> tokens) {
  return runner_->Append(sequence_, tokens);
}

Status Session::AppendAll(std::span<const TokenId> tokens, const LogitRow& row) {
  return runner_->AppendScoring(sequence_, tokens, 0, [&](int64_t, int64_t count) -> Status {
    for (int64_t i = 0; i < count; ++i) KVANT_TRY(row(runner_->row(i)));
    return {};
  });
}

Status Session::AppendScoring(std::span<const TokenId> tokens, int64_t first,
                              const LogitRowFunction& row) {
  return runner_->AppendScoring(sequence_, tokens, first,
                                [&](int64_t index, int64_t count) -> Status {
                                  runner_->RunOnTeam([&](int member, int members) {
                                    for (int64_t i = member; i < count; i += members)
                                      row(index + i, runner_->row(i));
                                  });
                                  return {};
                                });
}

std::span<const float> Session::logits() const { return runner_->logits(sequence_); }

int64_t Session::length() const { return runner_->length(sequence_); }

int64_t Session::context() const { return runner_->options().context; }

int32_t Session::vocab_size() const { return runner_->model().vocab_size(); }

std::span<const TokenId> Session::tokens() const { return runner_->tokens(sequence_); }

int Session::threads() const { return runner_->options().threads; }

Status Session::Rewind(int64_t length, Replay replay) {
  return runner_->Rewind(sequence_, length, replay);
}

Status Session::Prune(int64_t keep_first, int64_t keep_last, PrunePositions positions) {
  return runner_->Prune(sequence_, keep_first, keep_last, positions);
}

Status Session::Save(const std::string& path, const std::string& note) const {
  return runner_->Save(path, std::span(&sequence_, 1), {.note = note});
}

Status Session::Load(const std::string& path, std::string* note) {
  if (length() > 0) {
    return MakeError(ErrorCode::kInvalid, "{}: a session that has begun cannot load another", path);
  }
  KVANT_TRY(runner_->FreeSequence(sequence_));
  const auto loaded = runner_->Load(path, note);
  if (loaded.ok() && loaded->size() == 1) {
    sequence_ = loaded->front();
    return {};
  }
  KVANT_ASSIGN(sequence_, runner_->NewSequence());
  if (!loaded.ok()) return loaded.error();
  return MakeError(ErrorCode::kInvalid, "{}: expected one sequence, found none", path);
}

Status Session::ComputeLogits() { return runner_->ComputeLogits(sequence_); }

void Session::SetKvLog(Runner::LogSink sink) { runner_->SetKvLog(std::move(sink)); }

uint64_t Session::kv_bytes_used() const { return runner_->stats().kv_bytes_used; }

}  // namespace kvant
