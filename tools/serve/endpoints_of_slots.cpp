// Endpoints that show slots, save them to files and bring them back.
#include <fmt/format.h>

#include <charconv>
#include <span>
#include <string>
#include <utility>

#include "tools/serve/answer/sampling_json.h"
#include "tools/serve/answer/slot_requests.h"
#include "tools/serve/endpoints.h"

namespace kvant::tools {
namespace {

// An action with a slot, as a request asks for it.
struct SlotAction {
  int64_t slot = 0;
  std::string name;  // "save", "restore" or "erase"
  std::string file;  // but for erase
};

Refusal ReadSlotAction(const ServedModel& served, const Exchange& exchange, SlotAction* out) {
  const std::string& path = exchange.request.path;
  const std::string_view number = std::string_view(path).substr(path.rfind('/') + 1);
  const auto [end, wrong] =
      std::from_chars(number.data(), number.data() + number.size(), out->slot);
  const bool is_slot = wrong == std::errc() && end == number.data() + number.size() &&
                       out->slot >= 0 && out->slot < served.slots().count();
  ApiError error;
  if (!is_slot) {
    error.status = 404;
    error.message =
        fmt::format("there is no slot '{}', expected 0 to {}", number, served.slots().count() - 1);
    return error;
  }
  out->name = exchange.request.Parameter("action");
  if (out->name == "erase") return {};
  if (out->name != "save" && out->name != "restore") {
    error.message = "action: expected save, restore or erase";
    error.param = "action";
    return error;
  }
  RequestJson body;
  KVANT_REFUSE(ReadBody(exchange, &body));
  return ReadText(body, "filename", &out->file);
}

// An error of the file that a client has named. `path` is how the file was found.
ApiError FileError(const Error& error, const std::string& file, const std::string& path) {
  ApiError out = ApiErrorOf(error, "filename");
  if (const size_t place = out.message.find(path); !path.empty() && place != out.message.npos) {
    out.message.replace(place, path.size(), file);
  }
  // A file of another model, or of other types of the cache, is a wrong one.
  if (error.code == ErrorCode::kNotSupported) out.status = 400;
  if (error.code == ErrorCode::kOutOfMemory) out.status = 503;
  return out;
}

Json SlotAnswer(const SlotAction& action, const char* count, size_t tokens, const char* bytes,
                uint64_t size, const char* time, double seconds) {
  return {{"id_slot", action.slot},
          {"filename", action.file},
          {count, tokens},
          {bytes, size},
          {"timings", {{time, seconds * 1e3}}}};
}

Refusal SaveSlot(ServedModel& served, const SlotFolder& folder, const SlotAction& action,
                 const std::shared_ptr<Exchange>& exchange) {
  auto path = folder.PathToWrite(action.file);
  if (!path.ok()) return FileError(path.error(), action.file, "");
  std::vector<TokenId> tokens = served.slots().Tokens(action.slot);
  if (tokens.empty()) {
    ApiError error;
    error.message = fmt::format("slot {} has no text yet", action.slot);
    return error;
  }
  const auto ended = [&folder, action, exchange, path = *path](
                         const Status& status, std::span<const TokenId> saved, double seconds) {
    if (!status.ok()) return exchange->Refuse(FileError(status.error(), action.file, path));
    const auto file = folder.OpenToRead(action.file);
    const uint64_t bytes = file.ok() ? file->bytes() : 0;
    exchange->Send(JsonAnswer(
        SlotAnswer(action, "n_saved", saved.size(), "n_written", bytes, "save_ms", seconds)));
  };
  const Status status = served.scheduler().Submit(
      std::make_shared<SlotSave>(served.runner(), std::move(tokens), *path, ended));
  return status.ok() ? Refusal() : ApiErrorOf(status.error());
}

Refusal RestoreSlot(ServedModel& served, const SlotFolder& folder, const SlotAction& action,
                    const std::shared_ptr<Exchange>& exchange) {
  if (!served.session().prefix_cache) {
    ApiError error;
    error.status = 501;
    error.message =
        "a slot is restored to the known beginnings of texts, which "
        "--no-cache-prompt turns off";
    return error;
  }
  auto opened = folder.OpenToRead(action.file);
  if (!opened.ok()) {
    ApiError error = FileError(opened.error(), action.file, "");
    if (opened.error().code == ErrorCode::kIo) error.status = 404;
    return error;
  }
  const auto file = std::make_shared<SlotFolder::File>(std::move(*opened));
  const auto ended = [&served, action, exchange, file](
                         const Status& status, std::span<const TokenId> tokens, double seconds) {
    if (!status.ok()) {
      return exchange->Refuse(FileError(status.error(), action.file, file->path()));
    }
    served.slots().SetTokens(action.slot, {tokens.begin(), tokens.end()});
    exchange->Send(JsonAnswer(SlotAnswer(action, "n_restored", tokens.size(), "n_read",
                                         file->bytes(), "restore_ms", seconds)));
  };
  const Status status = served.scheduler().Submit(
      std::make_shared<SlotRestore>(served.runner(), file->path(), ended));
  return status.ok() ? Refusal() : ApiErrorOf(status.error());
}

Refusal StartSlotAction(EndpointContext& context, Exchange& exchange) {
  if (context.slot_folder == nullptr) {
    ApiError error;
    error.status = 501;
    error.message = "this server saves no slots: it was started without --slot-save-path";
    return error;
  }
  ServedModel& served = context.served;
  SlotAction action;
  KVANT_REFUSE(ReadSlotAction(served, exchange, &action));
  const auto shared = std::make_shared<Exchange>(exchange);
  if (action.name == "save") return SaveSlot(served, *context.slot_folder, action, shared);
  if (action.name == "restore") return RestoreSlot(served, *context.slot_folder, action, shared);
  const size_t erased = served.slots().Tokens(action.slot).size();
  served.slots().SetTokens(action.slot, {});
  exchange.Send(JsonAnswer({{"id_slot", action.slot}, {"n_erased", erased}}));
  return {};
}

// A slot as llama-server shows it. The second part is there once the slot has had a text, and is
// that of the newest one; without a text under way no token is the next one.
Json SlotJson(const ServedModel& served, size_t number, const SlotTable::Slot& slot) {
  const bool is_busy = slot.texts > 0;
  Json out = {{"id", number},
              {"n_ctx", served.session().context},
              {"speculative", false},
              {"is_processing", is_busy},
              {"n_prompt_tokens", slot.tokens}};
  if (slot.text < 0) return out;
  const TextFields& fields = *slot.fields;
  const SlotTable::Progress& progress = slot.progress;
  if (is_busy) out["n_prompt_tokens"] = progress.prompt + progress.generated;
  out["id_task"] = slot.text;
  out["n_prompt_tokens_processed"] = progress.prompt - progress.cached;
  out["n_prompt_tokens_cache"] = progress.cached;
  out["params"] = SettingsJson(fields, served.tokenizer());
  // Others need not see what a client has written.
  for (const char* const own : {"stop", "grammar", "logit_bias", "dry_sequence_breakers"}) {
    out["params"].erase(own);
  }
  out["params"]["seed"] = fields.sampling.seed.has_value() ? Json(*fields.sampling.seed) : Json(-1);
  const bool is_limited = is_busy && fields.max_tokens >= 0;
  out["next_token"] =
      Json::array({{{"has_next_token", is_busy},
                    {"has_new_line", is_busy && progress.has_new_line},
                    {"n_remain", is_limited ? fields.max_tokens - progress.generated : -1},
                    {"n_decoded", is_busy ? progress.generated : 0}}});
  return out;
}

}  // namespace

void AnswerSlots(EndpointContext& context, Exchange exchange) {
  const ServedModel& served = context.served;
  bool has_idle = false;
  Json slots = Json::array();
  for (const SlotTable::Slot& slot : served.slots().List()) {
    has_idle |= slot.texts == 0;
    slots.push_back(SlotJson(served, slots.size(), slot));
  }
  if (!exchange.request.Parameter("fail_on_no_slot").empty() && !has_idle) {
    ApiError error;
    error.status = 503;
    error.message = "no slot is free";
    return exchange.Refuse(error);
  }
  exchange.Send(JsonAnswer(slots));
}

void AnswerSlotAction(EndpointContext& context, Exchange exchange) {
  if (const Refusal refusal = StartSlotAction(context, exchange)) exchange.Refuse(*refusal);
}

}  // namespace kvant::tools
