// The options of `kvant serve`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/embed.h"
#include "kvant/pooling.h"
#include "tools/chat/chat_options.h"
#include "tools/options/groups/draft_group.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/sampling_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/serve/access.h"
#include "tools/serve/http/http_server.h"

namespace kvant::tools {

struct ServeOptions {
  ModelGroup model;
  ConversationGroup conversation;  // its template and variables
  SessionGroup session;
  SamplingGroup sampling;
  DraftGroup draft;  // "mtp" alone

  std::string hosts = "127.0.0.1";  // a list with commas
  int64_t port = 8080;
  Status port_status;  // of KVANT_PORT
  std::vector<std::string> keys;
  std::optional<std::string> key_file;
  std::vector<std::string> origins;  // lists with commas
  bool no_key = false;
  std::optional<std::string> alias;
  std::optional<std::string> models;  // a folder
  uint64_t memory_bytes = 0;          // that its models may use; 0: what is free
  bool strict_model = false;
  bool no_page = false;

  // Vectors and scores instead of texts; embedding models and rerankers need none of these.
  bool embeddings = false;
  bool reranking = false;
  std::optional<Pooling> pooling;

  int64_t parallel = 8;
  int64_t queue = 64;
  int64_t stall_ms = 250;
  int64_t drain_seconds = 30;
  int64_t connections = 512;
  int64_t write_seconds = 60;
  uint64_t body_bytes = uint64_t{16} << 20;
  int64_t max_tokens = -1;
  bool no_prefix_cache = false;
  std::optional<std::string> slot_folder;
  uint64_t prefix_bytes = 0;  // 0: no limit

  void Add(OptionList& list);

  // The keys of all options and of KVANT_API_KEY.
  Result<AccessRules> Access() const;
  HttpLimits Limits() const;
  // With as many sequences as --parallel, and with a limit for the KV cache where the memory that
  // is free would not be enough; `note` then says so.
  Result<SessionOptions> Session(const Model& model, std::string* note) const;
  // Whether a model is served for vectors or scores, and how then. kOutOfMemory where it needs more
  // than `bytes_max`; `bytes` is what it needs.
  bool WantsVectors(const Model& model) const;
  Result<EmbedOptions> Embed(const std::shared_ptr<const Model>& model, uint64_t bytes_max,
                             uint64_t* bytes) const;
  // The memory of all models of a folder together.
  uint64_t MemoryMax() const;
  // The session of a model of a folder: its KV cache is that of --parallel texts, but has at most a
  // quarter of `bytes_max`, or what one text needs. `bytes` is what the model needs with it.
  // kOutOfMemory where that is more than `bytes_max`.
  Result<SessionOptions> SessionWithin(const Model& model, uint64_t bytes_max,
                                       uint64_t* bytes) const;

 private:
  void AddServer(OptionList& list);
  void AddVectors(OptionList& list);
  // With as many sequences as --parallel.
  Result<SessionOptions> FullSession() const;
};

}  // namespace kvant::tools
