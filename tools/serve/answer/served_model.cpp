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
      scheduler_(*runner_, {.stall = options_.stall, .queue_max = options_.queue_max}),
      slots_(runner_->options().sequences) {
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
    served->status_ = served->scheduler_.Serve();
    served->failed_.store(!served->status_.ok());
  });
  return out;
}

ServedModel::~ServedModel() { (void)Stop(); }

Status ServedModel::Stop() {
  scheduler_.Stop();
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
