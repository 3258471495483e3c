// A model that is being served. One that makes texts has a runner, the scheduler, and the thread
// that makes the steps; one that makes vectors or scores has a queue of texts instead.
//
// Thread-safety: everything but Open, Stop and the destructor may be called by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/tokenizer/fill_tokens.h"
#include "kvant/chat.h"
#include "kvant/draft.h"
#include "kvant/embed.h"
#include "kvant/memory_plan.h"
#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/runner.h"
#include "kvant/sampler.h"
#include "kvant/scheduler.h"
#include "tools/serve/answer/embed_queue.h"
#include "tools/serve/answer/serve_metrics.h"
#include "tools/serve/answer/served_tools.h"
#include "tools/serve/answer/slot_table.h"
#include "tools/serve/request/api_error.h"

namespace kvant::tools {

struct ServedModelOptions {
  std::string alias;         // the model's name in answers
  SamplingOptions sampling;  // where requests say nothing else
  int64_t max_tokens = -1;   // of a chat, where requests say nothing else
  // Makes the draft of a text; empty: texts have none.
  std::function<Result<std::shared_ptr<Draft>>()> draft = {};
  int64_t draft_tokens = 0;
  ChatRenderOptions render;
  size_t queue_max = 64;
  double stall = 0.25;  // seconds, see SchedulerOptions
  std::shared_ptr<ServeMetrics> metrics = std::make_shared<ServeMetrics>();  // of the server
};

class ServedModel {
 public:
  // The thread begins at once. `chat_template` may be an error, which requests for chats then get.
  static std::unique_ptr<ServedModel> Create(std::shared_ptr<const Model> model,
                                             std::unique_ptr<Runner> runner,
                                             Result<ChatTemplate> chat_template,
                                             ServedModelOptions options);
  // A model that makes vectors, or scores where its embedder ranks.
  static std::unique_ptr<ServedModel> Create(std::unique_ptr<Embedder> embedder,
                                             std::shared_ptr<const Model> model,
                                             ServedModelOptions options);
  ~ServedModel();
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  const Model& model() const { return *model_; }
  // The sources' tokenizer, where only these are read.
  const Tokenizer& tokenizer() const {
    return makes_texts() ? model_->tokenizer() : model_->source_tokenizer();
  }
  bool makes_texts() const { return embed_queue_ == nullptr; }
  // Null for a model that makes texts.
  EmbedQueue* embed_queue() { return embed_queue_.get(); }
  const Embedder* embedder() const { return makes_texts() ? nullptr : &embed_queue_->embedder(); }
  // "turns texts into vectors (POST /v1/embeddings)"
  std::string_view WhatItDoes() const;

  // Most tokens of a text.
  int64_t context() const;
  // How many texts there may be at the same time; 0 for a model that makes none.
  int64_t sequences() const { return makes_texts() ? session().sequences : 0; }
  SchedulerCounters counters() const;

  // ---- Of models that make texts ----

  std::shared_ptr<const Tokenizer> shared_tokenizer() const { return SharedTokenizer(model_); }
  const Result<ChatTemplate>& chat_template() const { return template_; }
  ServedTools& tools() { return tools_; }
  // The tokens for gaps, or why they cannot be read.
  const Result<FillTokens>& fill_tokens() const { return fill_tokens_; }
  const ServedModelOptions& options() const { return options_; }
  const SessionOptions& session() const { return runner_->options(); }
  Scheduler& scheduler() { return *scheduler_; }
  // For requests of the scheduler, in the thread that serves.
  Runner& runner() { return *runner_; }
  SlotTable& slots() { return slots_; }
  const SlotTable& slots() const { return slots_; }
  // 400 where a prompt of so many tokens can never be served, with both numbers. `param` is the
  // field that the prompt comes from.
  Refusal CheckRoom(int64_t tokens, const std::string& param) const;

  // ---- Of all models ----

  ServeMetrics& metrics() { return *options_.metrics; }
  int64_t created() const { return created_; }  // seconds since 1970
  // "b0.1.0-COMMIT-MODEL-avx2": what the bits of a text depend on.
  const std::string& fingerprint() const { return fingerprint_; }
  // Whether marks of reasoning are control tokens, which are then part of the text.
  bool marks_are_control() const { return marks_are_control_; }
  uint64_t parameters() const { return parameters_; }
  uint64_t bytes() const { return bytes_; }  // of all tensors

  // Ends all texts and the thread. Returns why the thread had ended before, if it had.
  Status Stop();
  // Whether the thread has ended with an error.
  bool failed() const { return failed_.load(); }

 private:
  ServedModel(std::shared_ptr<const Model> model, std::unique_ptr<Runner> runner,
              Result<ChatTemplate> chat_template, ServedModelOptions options);

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Runner> runner_;  // null for a model that makes no texts
  Result<ChatTemplate> template_;
  ServedTools tools_;
  Result<FillTokens> fill_tokens_;
  ServedModelOptions options_;
  std::optional<Scheduler> scheduler_;
  SlotTable slots_;
  int64_t created_ = 0;
  std::string fingerprint_;
  bool marks_are_control_ = false;
  uint64_t parameters_ = 0;
  uint64_t bytes_ = 0;
  std::atomic<bool> failed_ = false;
  Status status_;
  std::unique_ptr<EmbedQueue> embed_queue_;
  std::thread thread_;
};

}  // namespace kvant::tools
