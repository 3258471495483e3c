// A model that is being served: its runner, the scheduler, and the thread that makes the steps.
//
// Thread-safety: everything but Open, Stop and the destructor may be called by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/tokenizer/fill_tokens.h"
#include "kvant/chat.h"
#include "kvant/memory_plan.h"
#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/runner.h"
#include "kvant/sampler.h"
#include "kvant/scheduler.h"
#include "tools/serve/answer/serve_metrics.h"
#include "tools/serve/answer/served_tools.h"
#include "tools/serve/answer/slot_table.h"
#include "tools/serve/request/api_error.h"

namespace kvant::tools {

struct ServedModelOptions {
  std::string alias;         // the model's name in answers
  SamplingOptions sampling;  // where requests say nothing else
  int64_t max_tokens = -1;   // of a chat, where requests say nothing else
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
  ~ServedModel();
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  const Model& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return model_->tokenizer(); }
  std::shared_ptr<const Tokenizer> shared_tokenizer() const { return SharedTokenizer(model_); }
  const Result<ChatTemplate>& chat_template() const { return template_; }
  ServedTools& tools() { return tools_; }
  // The tokens for gaps, or why they cannot be read.
  const Result<FillTokens>& fill_tokens() const { return fill_tokens_; }
  const ServedModelOptions& options() const { return options_; }
  const SessionOptions& session() const { return runner_->options(); }
  Scheduler& scheduler() { return scheduler_; }
  // For requests of the scheduler, in the thread that serves.
  Runner& runner() { return *runner_; }
  ServeMetrics& metrics() { return *options_.metrics; }
  SlotTable& slots() { return slots_; }
  const SlotTable& slots() const { return slots_; }

  int64_t created() const { return created_; }  // seconds since 1970
  // "b0.1.0-COMMIT-MODEL-avx2": what the bits of a text depend on.
  const std::string& fingerprint() const { return fingerprint_; }
  // Whether marks of reasoning are control tokens, which are then part of the text.
  bool marks_are_control() const { return marks_are_control_; }
  uint64_t parameters() const { return parameters_; }
  uint64_t bytes() const { return bytes_; }  // of all tensors

  // 400 where a prompt of so many tokens can never be served, with both numbers. `param` is the
  // field that the prompt comes from.
  Refusal CheckRoom(int64_t tokens, const std::string& param) const;

  // Ends all texts and the thread. Returns why the thread had ended before, if it had.
  Status Stop();
  // Whether the thread has ended with an error.
  bool failed() const { return failed_.load(); }

 private:
  ServedModel(std::shared_ptr<const Model> model, std::unique_ptr<Runner> runner,
              Result<ChatTemplate> chat_template, ServedModelOptions options);

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Runner> runner_;
  Result<ChatTemplate> template_;
  ServedTools tools_;
  Result<FillTokens> fill_tokens_;
  ServedModelOptions options_;
  Scheduler scheduler_;
  SlotTable slots_;
  int64_t created_ = 0;
  std::string fingerprint_;
  bool marks_are_control_ = false;
  uint64_t parameters_ = 0;
  uint64_t bytes_ = 0;
  std::atomic<bool> failed_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace kvant::tools
