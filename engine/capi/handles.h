// The opaque handles of kvant/kvant.h. Each holds what it needs for as long as it lives, so that
// handles can be freed in any order, and in the middle of a callback.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/capi/border.h"
#include "kvant/beam_options.h"
#include "kvant/chat.h"
#include "kvant/grammar.h"
#include "kvant/kv_tensors.h"
#include "kvant/model.h"
#include "kvant/runner.h"
#include "kvant/sampler.h"
#include "kvant/token_text.h"

struct kvant_model {
  std::shared_ptr<const kvant::Model> model;
  std::string architecture;
  std::vector<std::string> keys;  // of the metadata
  uint64_t parameters = 0;
  kvant_sampling_options sampling = {};  // as the file recommends
  std::string samplers;                  // what `sampling` points to
};

struct kvant_tokenizer {
  std::shared_ptr<const kvant::Tokenizer> tokenizer;  // keeps its file or model
};

struct kvant_text_stream {
  std::shared_ptr<const kvant::Tokenizer> tokenizer;
  kvant::TokenText text;
  std::string piece;
};

struct kvant_template {
  std::shared_ptr<const kvant::Model> model;
  kvant::ChatTemplate chat_template;
};

struct kvant_grammar {
  std::shared_ptr<const kvant::Grammar> grammar;
};

struct kvant_sampler {
  kvant::Sampler sampler;
  size_t vocab;  // logits of a row
};

struct kvant_tensors {
  kvant::KvTensors tensors;
};

namespace kvant::capi {

// A runner and who is in a call on it. The flags outlive the runner, which reads one of them.
struct RunnerState {
  std::shared_ptr<const Model> model;
  std::atomic<bool> cancel = false;
  std::atomic<bool> busy = false;
  std::unique_ptr<Runner> runner;
};

}  // namespace kvant::capi

struct kvant_runner {
  std::shared_ptr<kvant::capi::RunnerState> state;
};

namespace kvant::capi {

// Runs what a call does, a function that returns Status, unless another call on the same state,
// with a `what`, is under way. A cancellation has had its effect when a call has ended with it.
template <class State, class Body>
Status AloneOn(std::shared_ptr<State> state, std::string_view what, Body&& body) {
  if (state->busy.exchange(true)) {
    return MakeError(ErrorCode::kInvalid,
                     "the {} is in another call: expected one thread at a time, and no calls from "
                     "its callbacks",
                     what);
  }
  struct Leave {
    std::atomic<bool>& busy;
    ~Leave() { busy = false; }
  } leave{state->busy};
  Status status = std::forward<Body>(body)();
  if (!status.ok() && status.error().code == ErrorCode::kCancelled) state->cancel = false;
  return status;
}

template <class Body>
Status Alone(std::shared_ptr<RunnerState> state, Body&& body) {
  return AloneOn(std::move(state), "runner", std::forward<Body>(body));
}

// Runs what a call on a runner does, a function of Runner& that returns Status, as Alone does.
template <class Body>
Status OnRunner(const std::shared_ptr<RunnerState>& state, Body&& body) {
  return Alone(state, [&] { return std::forward<Body>(body)(*state->runner); });
}

template <class Body>
kvant_status CallRunner(const kvant_runner* runner, Body&& body) noexcept {
  return Call(runner, [&]() -> Status {
    KVANT_TRY(Need(runner, "runner"));
    return OnRunner(runner->state, std::forward<Body>(body));
  });
}

// A new handle in `out`.
template <class Handle>
Status Give(Handle** out, std::unique_ptr<Handle> handle) {
  Forget(handle.get());
  *out = handle.release();
  return {};
}

template <class Handle>
void Free(Handle* handle) noexcept {
  Forget(handle);
  delete handle;
}

// The error of a callback that wants an end.
inline Error EndedByCallback() { return {ErrorCode::kCancelled, "ended by a callback"}; }

inline Status CheckRow(const kvant_sampler& sampler, size_t logits) {
  if (logits == sampler.vocab) return {};
  return MakeError(ErrorCode::kInvalid, "the sampler is for rows of {} logits, found {}",
                   sampler.vocab, logits);
}

// Null for NULL.
inline std::shared_ptr<const Grammar> GrammarOf(const kvant_grammar* grammar) {
  return grammar == nullptr ? nullptr : grammar->grammar;
}

// Texts that end with a 0.
Result<std::vector<std::string>> ReadTexts(const char* const* texts, size_t count,
                                           std::string_view name);

// The options of the library, of a caller's struct; NULL: the defaults. kInvalid names the field.
Result<SamplingOptions> ReadSampling(const kvant_sampling_options* given);
Result<BeamOptions> ReadBeams(const kvant_beam_options* given);
Result<SessionOptions> ReadRunner(const kvant_runner_options* given);
Result<ChatRenderOptions> ReadRender(const kvant_template_options* given);
// The options in C, without their lists.
kvant_sampling_options SamplingInC(const SamplingOptions& options);

}  // namespace kvant::capi
