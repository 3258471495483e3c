// kvant serve: models behind the HTTP interfaces that other programs know.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/available_memory.h"
#include "base/log.h"
#include "base/result.h"
#include "kvant/embed.h"
#include "tools/commands.h"
#include "tools/options/model_names.h"
#include "tools/options/number_list.h"
#include "tools/options/sampling_defaults.h"
#include "tools/serve/answer/served_model.h"
#include "tools/serve/api_handler.h"
#include "tools/serve/models/model_folder.h"
#include "tools/serve/models/model_pool.h"
#include "tools/serve/serve_options.h"
#include "tools/serve/slot_folder.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

using namespace std::chrono_literals;

constexpr const char* kServeCommon[] = {"--host",
                                        "--port",
                                        "--api-key",
                                        "--api-key-file",
                                        "--cors-origins",
                                        "--alias",
                                        "--models",
                                        "--memory-max",
                                        "--parallel",
                                        "--ctx-size",
                                        "--predict",
                                        "--stall-ms",
                                        "--queue",
                                        "--drain-s",
                                        "--temp",
                                        "--chat-template",
                                        "--chat-template-kwargs",
                                        "--threads",
                                        "--kv-type",
                                        "--kv-budget",
                                        "--help"};

constexpr HelpText kServeHelp = {
    "MODEL [OPTIONS] | --models DIR [OPTIONS]",
    "Serves a model over HTTP, with the interfaces of OpenAI, Anthropic and llama-server:\n"
    "/v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/models, /tokenize,\n"
    "/v1/embeddings, /v1/rerank, /health, /metrics and others. It prints the addresses that it\n"
    "listens on; a browser finds a page to chat on there.\n"
    "\n"
    "Texts are made side by side, and each has the bits that it would have alone. A long prompt\n"
    "is read in slices between the tokens of other texts. Prompts that begin alike are computed\n"
    "once.\n"
    "\n"
    "With --models all models of a folder are there by name. A request loads its model, and "
    "models\n"
    "leave when their memory is needed. Embedding models give vectors, and rerankers scores.\n"
    "\n"
    "Only this machine reaches the server, unless --host names an address of the network; then a\n"
    "key is needed, or --no-key. SIGTERM and Ctrl+C let texts end for --drain-s seconds.",
    "  kvant serve dialogue\n"
    "  kvant serve model.gguf --port 9000 --parallel 16 -c 4096\n"
    "  kvant serve --models ~/models --memory-max 24GiB\n"
    "  kvant serve model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
    "  kvant serve minilm\n"
    "  kvant serve model.gguf --host /run/user/1000/kvant.sock\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", "
    "\"content\": \"Hello\"}]}'\n",
    kServeCommon,
};

// The name of a file without its folder and ending.
std::string NameOfFile(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

Result<std::vector<Listener>> OpenListeners(const ServeOptions& options) {
  std::vector<Listener> out;
  for (const std::string& host : SplitList(options.hosts)) {
    // Further addresses have the port of the first where that is any free one.
    const auto port = options.port == 0 && !out.empty() ? out.front().port()
                                                        : static_cast<uint16_t>(options.port);
    KVANT_ASSIGN(auto listeners, Listener::Open(host, port));
    for (Listener& listener : listeners) out.push_back(std::move(listener));
  }
  return out;
}

// Whether only this machine reaches all addresses.
Result<bool> AreLocal(const ServeOptions& options) {
  bool out = true;
  for (const std::string& host : SplitList(options.hosts)) {
    KVANT_ASSIGN(const bool is_local, Listener::IsLocal(host));
    out = out && is_local;
  }
  return out;
}

Result<std::shared_ptr<const Model>> OpenModel(const std::string& path,
                                               const ServeOptions& options) {
  auto opened = Model::Open(path, options.draft.With(options.model.Options()));
  // The models of a folder need not all have layers that guess.
  const bool plain = options.draft.predicts() && options.models.has_value() && !opened.ok() &&
                     opened.error().code == ErrorCode::kNotSupported;
  if (plain) {
    const std::string reason = opened.error().message;
    opened = Model::Open(path, options.model.Options());
    if (opened.ok()) Log(LogLevel::kWarning, fmt::format("{}; served without --draft", reason));
  }
  KVANT_ASSIGN(auto model, std::move(opened));
  if (options.WantsVectors(*model)) return model;
  KVANT_TRY(model->CheckDecoder());
  if (model->has_encoder()) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: models with an encoder are not served yet; 'kvant run' runs them", path);
  }
  return model;
}

// The options of the command, those of a model's file where nothing else was chosen.
struct ServeSetup {
  const OptionList& list;
  const ServeOptions& options;
  std::shared_ptr<ServeMetrics> metrics = std::make_shared<ServeMetrics>();
};

Result<std::unique_ptr<ServedModel>> LoadServed(const ServeSetup& setup, const std::string& alias,
                                                const std::shared_ptr<const Model>& model,
                                                const SessionOptions& session) {
  const ServeOptions& options = setup.options;
  SamplingGroup sampling = options.sampling;
  const std::string taken = TakeModelSampling(*model, setup.list, sampling);
  if (!taken.empty()) Note(taken);
  KVANT_ASSIGN(auto runner, options.session.OpenRunner(model, session));
  ServedModelOptions served;
  served.alias = alias;
  served.metrics = setup.metrics;
  served.sampling = sampling.Options();
  served.max_tokens = options.max_tokens;
  if (options.draft.predicts()) {
    served.draft = [draft = options.draft, loading = options.model, session, model] {
      return draft.Make(loading, session, model->vocab_size());
    };
    served.draft_tokens = options.draft.TokensAtOnce();
  }
  KVANT_ASSIGN(served.render, options.conversation.Render());
  served.queue_max = static_cast<size_t>(options.queue);
  served.stall = static_cast<double>(options.stall_ms) / 1000;
  const auto sampler = Sampler::Create(served.sampling, model->vocab_size(), &model->tokenizer());
  if (!sampler.ok()) return sampler.error();
  auto chat_template = options.conversation.Template(*model);
  if (!chat_template.ok() && options.conversation.template_name.has_value()) {
    return chat_template.error();
  }
  return ServedModel::Create(model, std::move(runner), std::move(chat_template), std::move(served));
}

// A model that is served for vectors or scores.
Result<std::unique_ptr<ServedModel>> LoadEmbedder(const ServeSetup& setup, const std::string& alias,
                                                  const std::shared_ptr<const Model>& model,
                                                  const EmbedOptions& embed) {
  KVANT_ASSIGN(auto embedder, Embedder::Create(model, embed));
  ServedModelOptions served;
  served.alias = alias;
  served.metrics = setup.metrics;
  served.queue_max = static_cast<size_t>(setup.options.queue);
  return ServedModel::Create(std::move(embedder), model, std::move(served));
}

Result<std::unique_ptr<ModelPool>> PoolOfOne(const ServeSetup& setup, const std::string& path) {
  KVANT_ASSIGN(const auto model, OpenModel(path, setup.options));
  if (setup.options.WantsVectors(*model)) {
    uint64_t bytes = 0;
    KVANT_ASSIGN(const EmbedOptions embed, setup.options.Embed(model, AvailableMemory(), &bytes));
    KVANT_ASSIGN(auto served,
                 LoadEmbedder(setup, setup.options.alias.value_or(NameOfFile(path)), model, embed));
    return std::make_unique<ModelPool>(std::move(served));
  }
  std::string note;
  KVANT_ASSIGN(const SessionOptions session, setup.options.Session(*model, &note));
  if (!note.empty()) Note(note);
  KVANT_ASSIGN(auto served,
               LoadServed(setup, setup.options.alias.value_or(NameOfFile(path)), model, session));
  return std::make_unique<ModelPool>(std::move(served));
}

// `setup` must outlive the pool.
Result<std::unique_ptr<ModelPool>> PoolOfFolder(const ServeSetup& setup) {
  const ServeOptions& options = setup.options;
  const std::string& folder = *options.models;
  KVANT_ASSIGN(const auto models, ModelsIn(folder));
  if (models.empty()) {
    return MakeError(ErrorCode::kIo, "--models: the folder '{}' has no GGUF files", folder);
  }
  ModelMaker maker;
  maker.list = [folder] { return ModelsIn(folder); };
  maker.open = [&options](const FolderModel& file, uint64_t bytes_max) -> Result<OpenedModel> {
    OpenedModel out;
    KVANT_ASSIGN(out.model, OpenModel(file.path, options));
    if (options.WantsVectors(*out.model)) {
      KVANT_ASSIGN(out.embed, options.Embed(out.model, bytes_max, &out.bytes));
      return out;
    }
    KVANT_ASSIGN(out.session, options.SessionWithin(*out.model, bytes_max, &out.bytes));
    return out;
  };
  maker.load = [&setup](const FolderModel& file,
                        const OpenedModel& opened) -> Result<std::unique_ptr<ServedModel>> {
    if (opened.embed.has_value()) {
      return LoadEmbedder(setup, file.name, opened.model, *opened.embed);
    }
    return LoadServed(setup, file.name, opened.model, opened.session);
  };
  return std::make_unique<ModelPool>(std::move(maker), options.MemoryMax());
}

// Lets texts under way end, for a time.
void Drain(ModelPool& models, ApiHandler& handler, std::chrono::seconds most) {
  handler.Drain();
  // The handler first: its requests go on to their models.
  const auto is_idle = [&] { return handler.idle() && models.idle(); };
  if (most > 0s && !models.failed() && !is_idle()) {
    Note(fmt::format("texts under way may go on for {} s; another signal ends them", most.count()));
  }
  const auto end = std::chrono::steady_clock::now() + most;
  while (std::chrono::steady_clock::now() < end && !models.failed()) {
    if (is_idle()) return;
    std::this_thread::sleep_for(10ms);
  }
}

// Serves until a signal, or an error of the only model.
Status Serve(ModelPool& models, const ServeSetup& setup, AccessRules rules,
             const SlotFolder* slot_folder, std::vector<Listener> listeners, ResultStream& out) {
  const ServeOptions& options = setup.options;
  std::string urls;
  for (const Listener& listener : listeners) urls += listener.url() + "\n";
  const auto names =
      options.strict_model ? ApiHandler::ModelNames::kOwnOnly : ApiHandler::ModelNames::kAny;
  // The server outlives what writes to its streams.
  std::unique_ptr<HttpServer> server;
  const auto page = options.no_page ? ApiHandler::PageUse::kNone : ApiHandler::PageUse::kShown;
  ApiHandler handler(models, *setup.metrics, Access(std::move(rules)), names, page, slot_folder);
  server = HttpServer::Create(std::move(listeners), options.Limits(), handler);
  handler.SetServer(server.get());
  std::thread reads([&server] { server->Run(); });
  out.Write(urls);
  while (!CancelFlag().load() && !models.failed()) std::this_thread::sleep_for(20ms);
  Drain(models, handler, std::chrono::seconds(options.drain_seconds));
  const Status status = models.Stop();
  handler.Stop();
  server->CloseListeners();
  constexpr int kFlushSteps = 300;  // seconds in which answers that are complete are sent: 3
  for (int i = 0; i < kFlushSteps && server->connections() > 0; ++i) {
    std::this_thread::sleep_for(10ms);
  }
  server->Stop();
  reads.join();
  return status;
}

int ServeModel(const CommandLine& line, const OptionList& list, const std::string& path,
               const ServeOptions& options) {
  auto rules = options.Access();
  if (!rules.ok()) return Fail(rules.error());
  const auto are_local = AreLocal(options);
  if (!are_local.ok()) return Fail(are_local.error());
  rules->local_names_only = *are_local;
  auto listeners = OpenListeners(options);
  if (!*are_local && rules->keys.empty() && !options.no_key) {
    std::string advice =
        "--host: other machines could use the server; give it a key (--api-key-file FILE), or "
        "--no-key";
    // That is not all, if a key would be of no use.
    if (!listeners.ok()) advice += fmt::format("; besides, {}", listeners.error().message);
    return line.UsageError(advice);
  }
  if (!listeners.ok()) return Fail(listeners.error());
  std::optional<SlotFolder> slot_folder;
  if (options.slot_folder.has_value()) {
    auto folder = SlotFolder::Open(*options.slot_folder);
    if (!folder.ok()) return Fail(folder.error());
    slot_folder.emplace(std::move(*folder));
  }
  const ServeSetup setup = {.list = list, .options = options};
  auto models = options.models.has_value() ? PoolOfFolder(setup) : PoolOfOne(setup, path);
  if (!models.ok()) return Fail(models.error());
  ResultStream out;
  const Status status =
      Serve(**models, setup, std::move(*rules), slot_folder.has_value() ? &*slot_folder : nullptr,
            std::move(*listeners), out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace

int ServeCommand(CommandLine& line) {
  ServeOptions options;
  OptionList list;
  options.Add(list);
  if (const auto code = line.Parse(list, kServeHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kOptional, StdinUse::kNone,
                                        &positionals)) {
    return *code;
  }
  if (!options.port_status.ok() && !list.Given("--port")) {
    return line.UsageError(options.port_status.error().message);
  }
  if (!options.models.has_value() && options.memory_bytes > 0) {
    return line.UsageError(
        "--memory-max: expected --models with it; --kv-budget is for one model, whose weights have "
        "a size");
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(positionals.model, ignored)) {
    return line.UsageError(fmt::format(
        "{}: is a directory; --models serves the GGUF files of one, and 'kvant convert' "
        "makes one of a folder of Hugging Face",
        positionals.model));
  }
  if (options.models.has_value() && !positionals.model.empty()) {
    return line.UsageError("--models: not possible together with a model");
  }
  if (options.models.has_value() && options.alias.has_value()) {
    return line.UsageError("--alias: not possible together with --models, whose files have names");
  }
  if (options.models.has_value() &&
      (options.embeddings || options.reranking || options.pooling.has_value())) {
    return line.UsageError(
        "--models: embedding models and rerankers are known by their files; --embeddings, "
        "--pooling and --reranking are for one model");
  }
  if (options.reranking && options.pooling.value_or(Pooling::kRank) != Pooling::kRank) {
    return line.UsageError("--reranking: not possible together with another --pooling than rank");
  }
  if (positionals.model.empty() && !options.models.has_value()) {
    std::string names;
    for (const std::string& name : ModelNames()) names += (names.empty() ? "" : ", ") + name;
    return line.UsageError(fmt::format(
        "no model given: name a GGUF file, as in 'kvant serve model.gguf' ('hf download' fetches "
        "one), a folder of them (--models DIR), or one of these names: {}",
        names));
  }
  for (const Status& status : {options.sampling.Check(list), options.draft.CheckPredicted(list)}) {
    if (!status.ok()) return line.UsageError(status.error().message);
  }
  return ServeModel(line, list, positionals.model, options);
}

}  // namespace kvant::tools
