// One process-wide sink behind a mutex: messages are rare, so contention does not matter, and lines
// of several threads never mix.
#include "base/log.h"

#include <mutex>
#include <utility>

namespace kvant {
namespace {

std::mutex& SinkMutex() {
  static std::mutex mutex;
  return mutex;
}

LogSink& Sink() {
  static LogSink sink;
  return sink;
}

}  // namespace

void SetLogSink(LogSink sink) {
  std::lock_guard lock(SinkMutex());
  Sink() = std::move(sink);
}

void Log(LogLevel level, std::string_view line) {
  std::lock_guard lock(SinkMutex());
  if (Sink()) Sink()(level, line);
}

}  // namespace kvant
