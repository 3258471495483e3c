#include "tools/serve/serve_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/available_memory.h"
#include "base/counted.h"
#include "engine/limits.h"
#include "engine/run/memory_plan.h"
#include "tools/options/groups/idle_options.h"
#include "tools/options/help_text.h"
#include "tools/options/model_facts.h"
#include "tools/options/number_list.h"
#include "tools/options/option_values.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr int64_t kPortMax = 65535;
constexpr int64_t kDayMs = int64_t{24} * 3600 * 1000;
constexpr int64_t kQueueMax = 1 << 20;
constexpr int64_t kConnectionsMax = 1 << 16;

// Refuses a limit of the KV cache below what the shortest texts need.
Status CheckBudget(const Model& model, const SessionOptions& session) {
  if (session.kv_bytes_max == 0) return {};
  constexpr int64_t kTokens = 32;  // a block
  SessionOptions alone = session;
  alone.context = kTokens;
  alone.sequences = 1;
  alone.kv_bytes_max = 0;
  KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(model, alone));
  if (plan.kv <= session.kv_bytes_max) return {};
  return MakeError(ErrorCode::kOutOfMemory, "--kv-budget: a text of {} needs {}, found {}",
                   Counted(kTokens, "token"), SizeText(plan.kv), SizeText(session.kv_bytes_max));
}

}  // namespace

void ServeOptions::AddServer(OptionList& list) {
  list.Group("Server");
  const auto take_hosts = [this](const std::string& text) -> Status {
    hosts = text;
    return {};
  };
  list.Checked("--host", take_hosts, "HOST,...",
               "Listen on these addresses, or on a socket in a file whose name ends with .sock",
               hosts);
  if (const char* const typed = std::getenv("KVANT_PORT")) {
    const auto number = ParseNumbers("KVANT_PORT", {typed}, {0, kPortMax});
    if (number.ok() && number->size() == 1) {
      port = number->front();
    } else {
      port_status = MakeError(ErrorCode::kInvalid,
                              "KVANT_PORT: expected a whole number from 0 to {}, found '{}'",
                              kPortMax, Visible(typed));
    }
  }
  list.Integer("--port", &port, {0, kPortMax}, "Listen on this port; 0 takes a free one");
  list.Texts("--api-key", &keys, "KEY,...", "Answer only requests with one of these keys");
  list.Text("--api-key-file", &key_file, "FILE",
            "Read keys from a file that only its owner may read, one a line");
  list.Flag("--no-key", &no_key, "Serve other machines without a key");
  list.Texts("--cors-origins", &origins, "ORIGIN,...",
             "Pages that may use the server from a browser, such as https://example.org");
  list.Text("-a,--alias", &alias, "NAME", "The model's name in answers", "that of its file");
  list.Text("--models,--models-dir", &models, "DIR",
            "Serve the GGUF files of this folder, and NAME/NAME.gguf in its folders, each by its "
            "name: requests tell which");
  list.Checked(
      "--memory-max",
      [this](const std::string& text) { return TakeSize(text, "24GiB", &memory_bytes); }, "SIZE",
      "Most memory of the models of --models that are loaded", "nine tenths of what is free");
  list.Flag("--strict-model", &strict_model, "Refuse requests for a model of another name");
  list.Flag("--no-page,--no-webui,--no-ui", &no_page, "Show browsers no page to chat on");
  list.Integer("--drain-s", &drain_seconds, {0, 3600},
               "Seconds in which texts may end after SIGTERM or Ctrl+C");
  list.Integer("--connections-max", &connections, {1, kConnectionsMax}, "Most connections");
  list.Integer("--write-timeout", &write_seconds, {1, 86400},
               "Leave a client that does not take 4 KiB of its answer in so many seconds");
  list.Checked(
      "--body-max",
      [this](const std::string& text) { return TakeSize(text, "4MiB or 500K", &body_bytes); },
      "SIZE", "Most bytes of a request's body", "16MiB");
}

void ServeOptions::AddVectors(OptionList& list) {
  list.Group("Vectors and scores");
  list.Flag("--embeddings,--embedding", &embeddings,
            "Make vectors instead of texts; embedding models do so by themselves");
  const auto take_pooling = [this](const std::string& text) -> Status {
    pooling = ParsePooling(text);
    if (pooling.has_value()) return {};
    return MakeError(ErrorCode::kInvalid, "expected none, mean, cls, last or rank, found '{}'",
                     Visible(text));
  };
  list.Checked("--pooling", take_pooling, "none|mean|cls|last|rank",
               "Make vectors instead of texts: of the rows of a text, by their mean, or of the "
               "first or last one; none makes one for each token, rank makes scores",
               "as the file says");
  list.Values("--pooling", {"none", "mean", "cls", "last", "rank"});
  list.Flag("--reranking,--rerank", &reranking,
            "Rank documents; rerankers whose files say that they are some need no option");
}

void ServeOptions::Add(OptionList& list) {
  AddServer(list);
  list.Group("Texts");
  list.Integer("--parallel", &parallel, {1, kSequencesMax},
               "Make at most so many texts side by side; -c is the context of each");
  list.Integer("--queue", &queue, {1, kQueueMax},
               "Refuse requests with 429 where so many texts wait");
  list.Integer("--stall-ms", &stall_ms, {1, kDayMs},
               "Milliseconds for which a prompt may keep other texts waiting at a time");
  list.Integer("-n,--predict,--n-predict", &max_tokens, {-1, kContextMax},
               "Most tokens of a chat's answer where the request says nothing; -1 is no limit");
  list.Flag("--no-cache-prompt,--no-prefix-cache", &no_prefix_cache,
            "Compute every prompt as a whole, whatever earlier ones began with");
  list.Checked(
      "--prefix-budget",
      [this](const std::string& text) { return TakeSize(text, "500M or 2GiB", &prefix_bytes); },
      "SIZE", "Most memory of the KV cache that beginnings of earlier texts may keep",
      "what texts under way leave");
  draft.AddPredicted(list);
  list.Text("--slot-save-path", &slot_folder, "DIR",
            "Save slots to files of this folder and restore them, as requests to /slots ask for");
  AddVectors(list);
  list.Group("Chats");
  list.Text("--chat-template,--chat-template-file", &conversation.template_name, "NAME|FILE",
            "Use this template instead of the model's own: one that comes with kvant, such as "
            "chatml, or a file with a Jinja template",
            "the one in the model's file");
  std::vector<std::string> names;
  for (const std::string_view name : ChatTemplate::BuiltInNames()) names.emplace_back(name);
  list.Values("--chat-template", std::move(names));
  list.Text("--chat-template-kwargs", &conversation.variables, "JSON",
            "Further variables of the template: {\"enable_thinking\": false}");
  sampling.Add(list);
  model.AddPath(list);
  model.AddPre(list);
  model.AddLoading(list);
  session.Add(list, SessionUse::kTexts, "the length the model was trained for");
  AddIdleOptions(list, IdleIn::kServe);
}

Result<AccessRules> ServeOptions::Access() const {
  AccessRules rules;
  for (const std::string& texts : keys) {
    for (std::string& key : SplitList(texts)) {
      if (key.empty()) return MakeError(ErrorCode::kInvalid, "--api-key: a key is empty");
      rules.keys.push_back(std::move(key));
    }
  }
  if (const char* const key = std::getenv("KVANT_API_KEY"); key != nullptr && *key != '\0') {
    rules.keys.emplace_back(key);
  }
  if (key_file.has_value()) {
    KVANT_ASSIGN(std::vector<std::string> more, ReadKeys(*key_file));
    std::ranges::move(more, std::back_inserter(rules.keys));
  }
  for (const std::string& texts : origins) {
    for (std::string& origin : SplitList(texts)) {
      const size_t name = origin.find("://");
      if (name == origin.npos || origin.find('/', name + 3) != origin.npos ||
          origin.find('*') != origin.npos) {
        return MakeError(ErrorCode::kInvalid,
                         "--cors-origins: expected origins such as https://example.org, found '{}'",
                         origin);
      }
      rules.origins.push_back(std::move(origin));
    }
  }
  return rules;
}

HttpLimits ServeOptions::Limits() const {
  HttpLimits limits;
  limits.body_bytes_max = body_bytes;
  limits.connections_max = static_cast<size_t>(connections);
  limits.write_seconds = static_cast<double>(write_seconds);
  return limits;
}

Result<SessionOptions> ServeOptions::FullSession() const {
  KVANT_ASSIGN(SessionOptions out, session.Options());
  out.cancel = nullptr;  // a signal lets texts end first
  out.sequences = parallel;
  out.prefix_cache = !no_prefix_cache && out.kv_cache;
  if (prefix_bytes > 0) out.prefix_bytes_max = prefix_bytes;
  return draft.With(out);
}

bool ServeOptions::WantsVectors(const Model& opened) const {
  return embeddings || reranking || pooling.has_value() || opened.is_embedder();
}

Result<EmbedOptions> ServeOptions::Embed(const std::shared_ptr<const Model>& opened,
                                         uint64_t bytes_max, uint64_t* bytes) const {
  KVANT_ASSIGN(const SessionOptions asked, session.Options());
  EmbedOptions out;
  out.threads = asked.threads;
  out.placement = asked.placement;
  out.context = asked.context;
  // In a folder -c is that of models that chat; one of fewer tokens keeps what it has.
  if (models.has_value() && opened->is_embedder() && out.context > opened->context_length()) {
    out.context = 0;
  }
  out.pooling = reranking ? Pooling::kRank : pooling;
  KVANT_ASSIGN(const EmbedMemory memory, Embedder::PlanMemory(opened, out));
  *bytes = memory.total();
  if (memory.total() <= bytes_max) return out;
  return MakeError(ErrorCode::kOutOfMemory,
                   "it needs {}, of which {} are for texts of the longest kind (-c), and {} may be "
                   "used",
                   SizeText(memory.total()), SizeText(memory.activations), SizeText(bytes_max));
}

uint64_t ServeOptions::MemoryMax() const {
  if (memory_bytes > 0) return memory_bytes;
  const uint64_t available = AvailableMemory();
  return available == UINT64_MAX ? available : available - available / 10;
}

Result<SessionOptions> ServeOptions::SessionWithin(const Model& opened, uint64_t bytes_max,
                                                   uint64_t* bytes) const {
  KVANT_ASSIGN(SessionOptions out, FullSession());
  KVANT_ASSIGN(const SessionOptions resolved, ResolveOptions(opened, out));
  KVANT_ASSIGN(const MemoryPlan all, PlanMemory(opened, resolved));
  SessionOptions alone = resolved;
  alone.sequences = 1;
  KVANT_ASSIGN(const MemoryPlan one, PlanMemory(opened, alone));
  const uint64_t others = all.total() - all.kv;
  uint64_t kv = std::min(all.kv, std::max(one.kv, bytes_max / 4));
  if (out.kv_bytes_max > 0) kv = std::min(all.kv, out.kv_bytes_max);
  if (others + std::min(kv, one.kv) > bytes_max) {
    return MakeError(ErrorCode::kOutOfMemory,
                     "it needs {} with the KV cache of one text of {}, and the models of this "
                     "server may use {} (--memory-max)",
                     SizeText(others + one.kv), Counted(resolved.context, "token"),
                     SizeText(bytes_max));
  }
  kv = std::min(kv, bytes_max - others);
  if (kv < all.kv) out.kv_bytes_max = kv;
  *bytes = others + kv;
  return out;
}

Result<SessionOptions> ServeOptions::Session(const Model& opened, std::string* note) const {
  KVANT_ASSIGN(SessionOptions out, FullSession());
  KVANT_TRY(CheckBudget(opened, out));
  if (out.kv_bytes_max > 0 || !out.kv_cache) return out;
  KVANT_ASSIGN(const SessionOptions resolved, ResolveOptions(opened, out));
  KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(opened, resolved));
  const uint64_t available = AvailableMemory();
  const uint64_t others = plan.total() - plan.kv;
  if (available == UINT64_MAX || plan.total() <= available) return out;
  // A tenth stays free for what is no part of the plan: requests, answers, the system.
  const uint64_t room = available - std::min(available, others) - available / 10;
  if (others + available / 10 >= available) {
    return MakeError(ErrorCode::kOutOfMemory,
                     "the model needs {} without its KV cache, and {} of memory are free",
                     SizeText(others), SizeText(available));
  }
  out.kv_bytes_max = room;
  *note = fmt::format("the KV cache is limited to {} (--kv-budget), since {} of {} would need {}",
                      SizeText(room), parallel == 1 ? "a text" : fmt::format("{} texts", parallel),
                      resolved.context, SizeText(plan.kv));
  return out;
}

}  // namespace kvant::tools
