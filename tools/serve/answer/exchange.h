// A request and where its answer goes, with the headers that all answers to it have.
//
// Thread-safety: as HttpStream; one thread at a time calls Send or Begin.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/serve/answer/serve_metrics.h"
#include "tools/serve/http/http_server.h"
#include "tools/serve/request/api_error.h"

namespace kvant::tools {

struct Exchange {
  HttpRequest request;
  std::string route;  // the endpoint's path, for the metrics
  std::shared_ptr<HttpStream> stream;
  std::shared_ptr<const void> model;  // keeps the model that answers loaded
  std::vector<HttpHeader> headers;
  ServeMetrics* metrics = nullptr;
  Json (*error_json)(const ApiError& error) = ErrorJson;  // the form of errors

  void Send(HttpAnswer answer) {
    metrics->CountAnswer(route, answer.status);
    AddTo(answer);
    stream->Send(std::move(answer));
  }
  void Refuse(const ApiError& error) { Send(AnswerOf(error, error_json(error))); }

  // Begins a stream of events. A comment is sent where there was nothing else for 15 s.
  void BeginEvents() {
    metrics->CountAnswer(route, 200);
    HttpAnswer head = TextAnswer("", "text/event-stream");
    head.headers.push_back({"Cache-Control", "no-store"});
    head.headers.push_back({"X-Accel-Buffering", "no"});
    AddTo(head);
    stream->Begin(std::move(head), ":\n\n", kSilenceSeconds);
  }

 private:
  static constexpr double kSilenceSeconds = 15;

  void AddTo(HttpAnswer& answer) const {
    answer.headers.insert(answer.headers.end(), headers.begin(), headers.end());
  }
};

}  // namespace kvant::tools
