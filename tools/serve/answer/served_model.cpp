#include "tools/serve/answer/served_model.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/version.h"
#include "cpu/kernels/table.h"
#include "kvant/reasoning_text.h"
#include "tools/options/model_facts.h"

namespace kvant::tools {

ServedModel::ServedModel(std::shared_ptr<const Model> model, std::unique_ptr<Runner> runner,
                         Result<ChatTemplate> chat_template, ServedModelOptions options)
    : model_(std::move(model)),
      runner_(std::move(runner)),
      template_(std::move(chat_template)),
      tools_(template_, model_->tokenizer()),
      fill_tokens_(FindFillTokens(model_->file(), model_->tokenizer())),
      options_(std::move(options)),
      slots_(runner_ == nullptr ? 0 : runner_->options().sequences) {
  if (runner_ != nullptr) {
    scheduler_.emplace(*runner_,
                       SchedulerOptions{.stall = options_.stall, .queue_max = options_.queue_max});
  }
  created_ = std::chrono::duration_cast<std::chrono::seconds>(
                 std::chrono::system_clock::now().time_since_epoch())
                 .count();
  marks_are_control_ = MarksAreControlTokens(model_->tokenizer());
  const ModelFacts facts = GatherFacts(model_->file());
  parameters_ = facts.parameters;
  bytes_ = facts.tensor_bytes;
  fingerprint_ = fmt::format("b{}-{}-{:016x}-{}", Version().version, Version().commit,
                             model_->Fingerprint(), model_->kernels().isa);
}

std::unique_ptr<ServedModel> ServedModel::Create(std::shared_ptr<const Model> model,
                                                 std::unique_ptr<Runner> runner,
                                                 Result<ChatTemplate> chat_template,
                                                 ServedModelOptions options) {
  std::unique_ptr<ServedModel> out(new ServedModel(std::move(model), std::move(runner),
                                                   std::move(chat_template), std::move(options)));
  out->thread_ = std::thread([served = out.get()] {
    served->status_ = served->scheduler_->Serve();
    served->failed_.store(!served->status_.ok());
  });
  return out;
}

std::unique_ptr<ServedModel> ServedModel::Create(std::unique_ptr<Embedder> embedder,
                                                 std::shared_ptr<const Model> model,
                                                 ServedModelOptions options) {
  const size_t queue_max = options.queue_max;
  const Error no_chats = {ErrorCode::kNotSupported, "the model makes no texts"};
  std::unique_ptr<ServedModel> out(
      new ServedModel(std::move(model), nullptr, no_chats, std::move(options)));
  out->embed_queue_ = std::make_unique<EmbedQueue>(std::move(embedder), queue_max);
  return out;
}

ServedModel::~ServedModel() { (void)Stop(); }

std::string_view ServedModel::WhatItDoes() const {
  if (makes_texts()) return "makes texts (POST /v1/chat/completions, /v1/completions)";
  return embedder()->pooling() == Pooling::kRank ? "ranks documents (POST /v1/rerank)"
                                                 : "turns texts into vectors (POST /v1/embeddings)";
}

int64_t ServedModel::context() const {
  return makes_texts() ? session().context : embedder()->context();
}

SchedulerCounters ServedModel::counters() const {
  return makes_texts() ? scheduler_->counters() : embed_queue_->counters();
}

Status ServedModel::Stop() {
  if (embed_queue_ != nullptr) embed_queue_->Stop();
  if (scheduler_.has_value()) scheduler_->Stop();
  if (thread_.joinable()) thread_.join();
  return status_;
}

Refusal ServedModel::CheckRoom(int64_t tokens, const std::string& param) const {
  ApiError error;
  error.param = param;
  error.code = "context_length_exceeded";
  error.type = "exceed_context_size_error";
  const int64_t context = session().context;
  error.further = {{"n_prompt_tokens", tokens}, {"n_ctx", context}};
  if (tokens > context) {
    error.message = fmt::format(
        "the request ({} tokens) exceeds the available context size ({} tokens); this model's "
        "maximum context length is {} tokens",
        tokens, context, context);
    return error;
  }
  if (session().kv_bytes_max == 0) return {};
  SessionOptions alone = session();
  alone.context = tokens;
  alone.sequences = 1;
  alone.kv_bytes_max = 0;
  const auto plan = PlanMemory(*model_, alone);
  if (!plan.ok() || plan->kv <= session().kv_bytes_max) return {};
  error.message = fmt::format(
      "the request ({} tokens) exceeds the available context size: its KV cache has {} bytes, and "
      "--kv-budget allows {}",
      tokens, plan->kv, session().kv_bytes_max);
  return error;
}

}  // namespace kvant::tools
