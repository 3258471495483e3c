// Requests to the scheduler that save the tokens of a slot to a file, with their keys and values,
// and that make the tokens of a file known again. They wait for their turn like texts, and their
// work is done by the thread that serves, between two steps.
//
// Such a request fails without an error of its own, so that it does not count as a text that has
// failed.
//
// Thread-safety: as Request. `ended` is called by the thread that serves.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvant/request.h"
#include "kvant/result.h"
#include "kvant/runner.h"

namespace kvant::tools {

// The end of such a request: what went wrong, or the tokens of the file, and the seconds that the
// file took.
using SlotEnd =
    std::function<void(const Status& status, std::span<const TokenId> tokens, double seconds)>;

// Computes what is no longer known of the tokens, and writes all of it to the file.
class SlotSave final : public Request {
 public:
  // The runner must be the scheduler's.
  SlotSave(Runner& runner, std::vector<TokenId> tokens, std::string path, SlotEnd ended)
      : runner_(runner),
        tokens_(std::move(tokens)),
        path_(std::move(path)),
        ended_(std::move(ended)) {}

 protected:
  std::span<const TokenId> prompt() const override { return tokens_; }
  void Begin(SequenceId sequence) override { sequence_ = sequence; }
  Status AddInputs(SequenceHost&, std::vector<StepInput>&) override { return {}; }
  Status Advance(SequenceHost& host) override;
  bool done() const override { return done_; }
  void Release(SequenceHost& host, std::optional<SequenceId> kept) override;
  Status End() override;

 private:
  Runner& runner_;
  const std::vector<TokenId> tokens_;
  const std::string path_;
  SlotEnd ended_;
  SequenceId sequence_ = -1;
  bool done_ = false;
  Status saved_;
  double seconds_ = 0;
};

// Reads the file of a sequence, whose blocks the prefix cache then knows.
class SlotRestore final : public Request {
 public:
  SlotRestore(Runner& runner, std::string path, SlotEnd ended)
      : runner_(runner), path_(std::move(path)), ended_(std::move(ended)) {}

 protected:
  std::span<const TokenId> prompt() const override { return {}; }
  Status Prepare() override;
  void Begin(SequenceId) override {}
  Status AddInputs(SequenceHost&, std::vector<StepInput>&) override { return {}; }
  Status Advance(SequenceHost&) override { return {}; }
  bool done() const override { return true; }
  void Release(SequenceHost&, std::optional<SequenceId>) override {}
  Status End() override;

 private:
  Status Restore();

  Runner& runner_;
  const std::string path_;
  SlotEnd ended_;
  Status restored_;
  std::vector<TokenId> tokens_;
  double seconds_ = 0;
};

}  // namespace kvant::tools
