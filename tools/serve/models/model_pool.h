// The models of a server, by name: which of them are loaded, and who uses them.
//
// A model is loaded when a request asks for it, and stays until its memory is needed. Each has a
// plan of what it needs, known once its file is open; the plans of all that are loaded are never
// more than the memory that the pool may use. Where there is no room, the model that was used least
// recently goes. One that is in use takes no new requests then, ends those that it has, and goes;
// requests are never ended for others. Requests for models that are not loaded wait, in the order
// in which they came; those for models that are go on meanwhile. A file that cannot be opened is an
// error of the requests for it alone, and is tried again by the next one.
//
// One thread of the pool opens, loads and unloads. Thread-safety: any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kvant/embed.h"
#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/session_options.h"
#include "tools/serve/answer/served_model.h"
#include "tools/serve/models/model_folder.h"
#include "tools/serve/request/api_error.h"

namespace kvant::tools {

// A model that somebody uses: it is not unloaded before this is given up.
using ModelLease = std::shared_ptr<ServedModel>;

// A model whose file is open, with what it will need.
struct OpenedModel {
  std::shared_ptr<const Model> model;
  SessionOptions session;             // of one that makes texts
  std::optional<EmbedOptions> embed;  // of one that makes vectors or scores
  uint64_t bytes = 0;                 // by the plan
};

// How models are found, opened and loaded.
struct ModelMaker {
  std::function<Result<std::vector<FolderModel>>()> list;
  // kOutOfMemory, with the sizes, for a model that `bytes_max` bytes can never hold.
  std::function<Result<OpenedModel>(const FolderModel& model, uint64_t bytes_max)> open;
  std::function<Result<std::unique_ptr<ServedModel>>(const FolderModel& model,
                                                     const OpenedModel& opened)>
      load;
};

class ModelPool {
 public:
  // A pool of one model, which stays loaded. Every name is that of this model.
  explicit ModelPool(std::unique_ptr<ServedModel> only);
  // A pool of many, of which as many are loaded as `bytes_max` bytes hold.
  ModelPool(ModelMaker maker, uint64_t bytes_max);
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  // Whether there is only one model, whatever requests ask for.
  bool has_one() const { return only_ != nullptr; }

  // Calls `ready` with the model of this name, or with a refusal: at once, or later by the pool's
  // thread, when the model is loaded. "" is the only model there is.
  using Ready = std::function<void(const ModelLease& model, const Refusal& refusal)>;
  void Acquire(const std::string& name, Ready ready);

  // kLoading: it is waited for, and its file is opened, waits for room or is loaded. kUnloading: it
  // takes no new requests, and may still end those that it has.
  enum class State : uint8_t { kUnloaded, kLoading, kLoaded, kUnloading };
  struct Listed {
    std::string name;
    State state = State::kUnloaded;
    uint64_t file_bytes = 0;
    std::string error = {};  // of the last attempt to load it
    ModelLease model = {};   // where it is loaded
  };
  // All models, in the order of their names.
  std::vector<Listed> List();

  // Begins to load a model, or to unload it when nobody uses it any more. Refuses a name that is
  // not there, and what is so already.
  Refusal Load(const std::string& name);
  Refusal Unload(const std::string& name);

  // The sums of all models' counters, those that were unloaded included, which never fall.
  SchedulerCounters counters();
  int64_t sequences();  // of those that are loaded
  size_t loaded();
  uint64_t bytes_used();  // by the plans of those
  uint64_t bytes_max() const { return bytes_max_; }

  // Whether no request waits for a model, and no model has a text to make.
  bool idle();
  // Whether the only model cannot go on.
  bool failed();
  // Refuses requests that wait, and ends all models. Returns why the only one had ended before.
  Status Stop();

 private:
  struct Entry {
    FolderModel file;
    State state = State::kUnloaded;
    bool is_leaving = false;  // it takes no new requests, and is unloaded when it is idle
    std::shared_ptr<ServedModel> served = {};
    int64_t leases = 0;
    uint64_t used = 0;   // tick of the last use
    uint64_t bytes = 0;  // of its plan, where it is loaded
    std::string error = {};
    std::optional<OpenedModel> opened = {};  // while it waits for room
    std::vector<Ready> waiting = {};
    bool is_pending = false;  // it is in `pending_`
  };
  using Lock = std::unique_lock<std::mutex>;

  void Work();
  bool UnloadOne(Lock& lock);
  bool LoadNext(Lock& lock);
  bool MakeRoom(const Entry& wanted);
  void EndLoading(Lock& lock, Entry& entry, const Refusal& refusal);
  void FindFiles();
  Entry* Find(const std::string& name);
  Refusal UnknownModel(const std::string& name);
  void Enqueue(Entry& entry);
  ModelLease Lease(Entry& entry);
  void GiveBack(Entry& entry);

  const std::shared_ptr<ServedModel> only_;
  const ModelMaker maker_;
  const uint64_t bytes_max_ = 0;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
  std::deque<Entry*> pending_;  // to be loaded
  uint64_t tick_ = 0;
  SchedulerCounters gone_;  // of models that were unloaded
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvant::tools
