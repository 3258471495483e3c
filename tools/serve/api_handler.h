// The server's handler of requests: who may ask, which endpoint answers, and which thread.
//
// Endpoints that only tell of the server are answered by the server's thread, so that they answer
// while a long request is read. All others have a thread of their own, and those with long bodies
// another one: a text of 16 MiB takes seconds to become tokens, and short requests go on meanwhile.
// Each of the two answers in the order in which requests came. A request for a model that is not
// loaded waits for it, and others go on.
//
// Thread-safety: OnHead, OnRequest and RefuseBytes belong to the server's thread; Drain, idle
// and Stop may be called by any other.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "tools/serve/access.h"
#include "tools/serve/answer/answer_format.h"
#include "tools/serve/endpoints.h"
#include "tools/serve/http/http_server.h"
#include "tools/serve/models/model_pool.h"
#include "tools/serve/work_queue.h"

namespace kvant::tools {

class ApiHandler final : public HttpHandler {
 public:
  enum class ModelNames : uint8_t { kAny, kOwnOnly };
  enum class PageUse : uint8_t { kShown, kNone };
  // `slot_folder` is null where slots are not saved; all of these outlive the handler.
  ApiHandler(ModelPool& models, ServeMetrics& metrics, Access access, ModelNames names,
             PageUse page, const SlotFolder* slot_folder);
  ~ApiHandler() override;

  // The server that calls this handler, for its numbers.
  void SetServer(const HttpServer* server) { server_ = server; }

  std::optional<HttpAnswer> OnHead(const HttpRequest& head) override;
  void OnRequest(HttpRequest request, std::shared_ptr<HttpStream> stream) override;
  HttpAnswer RefuseBytes(int status, const std::string& message) override;

  // New texts are refused from now on.
  void Drain() { draining_.store(true); }
  // Whether none of the requests that have come waits to be handed to its model.
  bool idle() const { return short_.idle() && long_.idle(); }
  // Ends the threads. Requests that wait for them are not answered.
  void Stop();

 private:
  Refusal CheckHead(const HttpRequest& head, const Endpoint** endpoint) const;
  std::vector<HttpHeader> HeadersFor(const HttpRequest& request) const;
  // `model` is null where it is not known yet which one answers.
  void Enqueue(const Endpoint& endpoint, Exchange exchange, const ModelLease& model);
  Refusal ReadModelName(const Exchange& exchange, std::string* out) const;
  void FindModel(const Endpoint& endpoint, Exchange exchange);
  void Answer(const Endpoint& endpoint, Exchange exchange, const ModelLease& model);

  Access access_;
  ServerContext context_;
  const HttpServer* server_ = nullptr;
  std::atomic<bool> draining_ = false;

  WorkQueue short_;
  WorkQueue long_;
};

}  // namespace kvant::tools
