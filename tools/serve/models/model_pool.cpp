#include "tools/serve/models/model_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace kvant::tools {
namespace {

ApiError PoolStops() {
  ApiError error;
  error.status = 503;
  error.message = "the server is stopping";
  error.code = "server_error";
  return error;
}

ApiError ModelError(const std::string& name, std::string_view message) {
  ApiError error;
  error.message = fmt::format("model {}: {}", name, message);
  error.param = "model";
  return error;
}

// An error of opening or loading. One of too little memory will not go away.
ApiError ModelError(const std::string& name, const Error& error) {
  ApiError out = ApiErrorOf(error, "model");
  if (error.code == ErrorCode::kOutOfMemory) out.status = 400;
  if (out.status == 400) out.code.clear();
  out.message = fmt::format("model {}: {}", name, out.message);
  return out;
}

void AddCounters(const SchedulerCounters& from, SchedulerCounters& to) {
  to.submitted += from.submitted;
  to.ended += from.ended;
  to.failed += from.failed;
  to.cancelled += from.cancelled;
  to.refused += from.refused;
  to.preemptions += from.preemptions;
  to.tokens_prefilled += from.tokens_prefilled;
  to.tokens_reused += from.tokens_reused;
  to.tokens_generated += from.tokens_generated;
  to.rounds += from.rounds;
  to.parts += from.parts;
  to.prefill_seconds += from.prefill_seconds;
  to.decode_seconds += from.decode_seconds;
}

// Adds the numbers of what models do now.
void AddPresent(const SchedulerCounters& from, SchedulerCounters& to) {
  to.waiting += from.waiting;
  to.preempted += from.preempted;
  to.running += from.running;
  to.blocks.used += from.blocks.used;
  to.blocks.shared += from.blocks.shared;
  to.blocks.free += from.blocks.free;
}

bool IsIdle(const SchedulerCounters& counters) {
  return counters.submitted == counters.ended && counters.waiting == 0;
}

}  // namespace

ModelPool::ModelPool(std::unique_ptr<ServedModel> only) : only_(std::move(only)) {}

ModelPool::ModelPool(ModelMaker maker, uint64_t bytes_max)
    : maker_(std::move(maker)), bytes_max_(bytes_max), thread_([this] { Work(); }) {}

ModelPool::~ModelPool() { (void)Stop(); }

// ---- Requests -----------------------------------------------------------------------------------

// Reads the folder again: files may come and go. An entry stays while its model is in use.
void ModelPool::FindFiles() {
  const auto files = maker_.list();
  if (!files.ok()) return;
  for (const FolderModel& file : *files) {
    auto& entry = entries_[file.name];
    if (entry == nullptr) entry = std::make_unique<Entry>();
    if (entry->state == State::kUnloaded) entry->file = file;
  }
  std::erase_if(entries_, [&](const auto& one) {
    const Entry& entry = *one.second;
    return entry.state == State::kUnloaded && !entry.is_pending && entry.waiting.empty() &&
           std::ranges::none_of(*files, [&](const auto& file) { return file.name == one.first; });
  });
}

ModelPool::Entry* ModelPool::Find(const std::string& name) {
  if (name.empty()) return entries_.size() == 1 ? entries_.begin()->second.get() : nullptr;
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.get();
}

Refusal ModelPool::UnknownModel(const std::string& name) {
  std::string names;
  for (const auto& [known, entry] : entries_) names += (names.empty() ? "" : ", ") + known;
  ApiError error = WrongValue(
      "model", name.empty() ? fmt::format("expected the name of a model: {}", names)
                            : fmt::format("there is no model {}; there are: {}", name, names));
  if (name.empty()) return error;
  error.status = 404;
  error.code = "model_not_found";
  return error;
}

void ModelPool::Acquire(const std::string& name, Ready ready) {
  if (has_one()) return ready(only_, {});
  Lock lock(mutex_);
  Entry* entry = Find(name);
  if (entry == nullptr) {
    FindFiles();
    entry = Find(name);
  }
  if (entry == nullptr || stopping_) {
    const Refusal refusal = stopping_ ? Refusal(PoolStops()) : UnknownModel(name);
    lock.unlock();
    return ready(nullptr, refusal);
  }
  entry->used = ++tick_;
  if (entry->state == State::kLoaded && !entry->is_leaving) {
    if (!entry->served->failed()) {
      const ModelLease lease = Lease(*entry);
      lock.unlock();
      return ready(lease, {});
    }
    entry->is_leaving = true;  // and is loaded anew
  }
  entry->waiting.push_back(std::move(ready));
  Enqueue(*entry);
  changed_.notify_all();
}

void ModelPool::Enqueue(Entry& entry) {
  if (std::exchange(entry.is_pending, true)) return;
  pending_.push_back(&entry);
}

ModelLease ModelPool::Lease(Entry& entry) {
  ++entry.leases;
  // The model belongs to the pool, which outlives all leases.
  return {entry.served.get(), [this, &entry](ServedModel*) { GiveBack(entry); }};
}

void ModelPool::GiveBack(Entry& entry) {
  const std::lock_guard lock(mutex_);
  --entry.leases;
  if (entry.leases == 0) changed_.notify_all();
}

Refusal ModelPool::Load(const std::string& name) {
  if (has_one()) return ModelError(only_->options().alias, "it is loaded already");
  const std::lock_guard lock(mutex_);
  FindFiles();
  Entry* const entry = name.empty() ? nullptr : Find(name);
  if (entry == nullptr) return UnknownModel(name);
  if (stopping_) return PoolStops();
  if (entry->state == State::kLoaded && !entry->is_leaving) {
    return ModelError(name, "it is loaded already");
  }
  Enqueue(*entry);
  changed_.notify_all();
  return {};
}

Refusal ModelPool::Unload(const std::string& name) {
  if (has_one()) return ModelError(only_->options().alias, "it is the only one, and stays");
  const std::lock_guard lock(mutex_);
  Entry* const entry = name.empty() ? nullptr : Find(name);
  if (entry == nullptr) return UnknownModel(name);
  if (entry->state != State::kLoaded) return ModelError(name, "it is not loaded");
  entry->is_leaving = true;
  changed_.notify_all();
  return {};
}

// ---- What there is ------------------------------------------------------------------------------

std::vector<ModelPool::Listed> ModelPool::List() {
  std::vector<Listed> out;
  if (has_one()) {
    out.push_back({.name = only_->options().alias, .state = State::kLoaded, .model = only_});
    return out;
  }
  const std::lock_guard lock(mutex_);
  FindFiles();
  for (const auto& [name, entry] : entries_) {
    Listed& one = out.emplace_back();
    one.name = name;
    // One that is to leave takes no requests any more, whether it still has some or not.
    const bool leaves = entry->state == State::kLoaded && entry->is_leaving;
    one.state = leaves ? State::kUnloading : entry->state;
    one.file_bytes = entry->file.bytes;
    one.error = entry->error;
    if (entry->state == State::kLoaded) one.model = Lease(*entry);
  }
  return out;
}

SchedulerCounters ModelPool::counters() {
  if (has_one()) return only_->counters();
  const std::lock_guard lock(mutex_);
  SchedulerCounters sum = gone_;
  for (const auto& [name, entry] : entries_) {
    if (entry->served == nullptr) continue;
    const SchedulerCounters counters = entry->served->counters();
    AddCounters(counters, sum);
    AddPresent(counters, sum);
  }
  return sum;
}

int64_t ModelPool::sequences() {
  if (has_one()) return only_->sequences();
  const std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry->served != nullptr) sum += entry->served->sequences();
  }
  return sum;
}

size_t ModelPool::loaded() {
  if (has_one()) return 1;
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::ranges::count_if(
      entries_, [](const auto& one) { return one.second->state == State::kLoaded; }));
}

uint64_t ModelPool::bytes_used() {
  const std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [name, entry] : entries_) sum += entry->bytes;
  return sum;
}

bool ModelPool::idle() {
  if (has_one()) return IsIdle(only_->counters());
  const std::lock_guard lock(mutex_);
  return pending_.empty() && std::ranges::all_of(entries_, [](const auto& one) {
           const auto& served = one.second->served;
           return served == nullptr || served->failed() || IsIdle(served->counters());
         });
}

bool ModelPool::failed() { return has_one() && only_->failed(); }

// ---- The thread ---------------------------------------------------------------------------------

void ModelPool::Work() {
  Lock lock(mutex_);
  while (!stopping_) {
    // Each may have made the other one possible.
    if (UnloadOne(lock) || LoadNext(lock) || UnloadOne(lock)) continue;
    // LoadNext gives up the lock for a while, in which Stop may have come.
    if (!stopping_) changed_.wait(lock);
  }
}

// Unloads a model that is to leave and that nobody uses. False: there is none.
bool ModelPool::UnloadOne(Lock& lock) {
  const auto found = std::ranges::find_if(entries_, [](const auto& one) {
    const Entry& entry = *one.second;
    return entry.state == State::kLoaded && entry.is_leaving && entry.leases == 0;
  });
  if (found == entries_.end()) return false;
  Entry& entry = *found->second;
  entry.state = State::kUnloading;
  std::shared_ptr<ServedModel> served = entry.served;
  lock.unlock();
  const Status status = served->Stop();
  lock.lock();
  AddCounters(served->counters(), gone_);
  entry.served.reset();
  lock.unlock();
  served.reset();  // its memory is free now
  lock.lock();
  entry.bytes = 0;
  entry.is_leaving = false;
  entry.error = status.ok() ? "" : status.error().message;
  entry.state = State::kUnloaded;
  return true;
}

// Loads the first model that is waited for. False: there is none, or no room yet.
bool ModelPool::LoadNext(Lock& lock) {
  if (pending_.empty()) return false;
  Entry& entry = *pending_.front();
  if (entry.state == State::kLoaded && !entry.is_leaving) {
    EndLoading(lock, entry, {});
    return true;
  }
  if (entry.state == State::kLoaded) return false;  // it has to be unloaded first
  entry.state = State::kLoading;
  const FolderModel file = entry.file;
  if (!entry.opened.has_value()) {
    lock.unlock();
    auto opened = maker_.open(file, bytes_max_);
    lock.lock();
    if (!opened.ok()) {
      entry.error = opened.error().message;
      EndLoading(lock, entry, ModelError(file.name, opened.error()));
      return true;
    }
    entry.opened = std::move(*opened);
  }
  if (!MakeRoom(entry)) return false;
  const OpenedModel opened = *std::exchange(entry.opened, std::nullopt);
  entry.bytes = opened.bytes;
  lock.unlock();
  auto served = maker_.load(file, opened);
  lock.lock();
  if (!served.ok()) {
    entry.bytes = 0;
    entry.error = served.error().message;
    EndLoading(lock, entry, ModelError(file.name, served.error()));
    return true;
  }
  entry.served = std::move(*served);
  entry.state = State::kLoaded;
  entry.error.clear();
  EndLoading(lock, entry, {});
  return true;
}

// Whether there is room for a model. Where there is none, the model that was used least recently is
// told to leave: one that nobody uses, else one that is in use.
bool ModelPool::MakeRoom(const Entry& wanted) {
  uint64_t used = 0;
  Entry* victim = nullptr;
  bool one_leaves = false;
  for (const auto& [name, entry] : entries_) {
    used += entry->bytes;
    if (entry->state != State::kLoaded) continue;
    one_leaves |= entry->is_leaving;
    const auto rank = [](const Entry& one) { return std::pair(one.leases > 0, one.used); };
    if (entry->is_leaving || entry.get() == &wanted) continue;
    if (victim == nullptr || rank(*entry) < rank(*victim)) victim = entry.get();
  }
  if (used <= bytes_max_ && wanted.opened->bytes <= bytes_max_ - used) return true;
  if (!one_leaves && victim != nullptr) victim->is_leaving = true;
  return false;
}

// Tells those who wait for the first model of the queue.
void ModelPool::EndLoading(Lock& lock, Entry& entry, const Refusal& refusal) {
  pending_.pop_front();
  entry.is_pending = false;
  if (refusal.has_value()) entry.state = State::kUnloaded;
  const std::vector<Ready> waiting = std::exchange(entry.waiting, {});
  std::vector<ModelLease> leases;
  for (size_t i = 0; i < waiting.size(); ++i) {
    leases.push_back(refusal.has_value() ? nullptr : Lease(entry));
  }
  lock.unlock();
  for (size_t i = 0; i < waiting.size(); ++i) waiting[i](leases[i], refusal);
  leases.clear();
  lock.lock();
}

Status ModelPool::Stop() {
  if (has_one()) return only_->Stop();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::vector<Ready> waiting;
  std::vector<std::shared_ptr<ServedModel>> models;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, entry] : entries_) {
      std::ranges::move(std::exchange(entry->waiting, {}), std::back_inserter(waiting));
      if (entry->served != nullptr) models.push_back(entry->served);
    }
  }
  for (const Ready& ready : waiting) ready(nullptr, PoolStops());
  for (const auto& served : models) (void)served->Stop();
  return {};
}

}  // namespace kvant::tools
