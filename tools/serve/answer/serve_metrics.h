// Counts what the server has done, for /metrics: numbers in the text format of Prometheus.
//
// Thread-safety: any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvant/scheduler.h"
#include "kvant/text_request.h"

namespace kvant::tools {

// How often values were at most so large.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void Add(double value);
  // The lines of a histogram of this name.
  std::string Lines(std::string_view name, std::string_view help) const;

 private:
  std::vector<double> bounds_;  // seconds, ascending
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

// The lines of a number that may fall.
std::string GaugeLines(std::string_view name, std::string_view help, uint64_t value);

struct TokenCounts {
  int64_t prompt = 0;
  int64_t cached = 0;  // of the prompt
  int64_t completion = 0;
  int64_t reasoning = 0;  // of the completion
};

class ServeMetrics {
 public:
  void CountAnswer(const std::string& path, int status);
  void CountUnknownFields(int64_t count);
  void CountTokens(const TokenCounts& counts);
  void CountClosed();                   // a client has left before its answer ended
  void CountGenerated(int64_t tokens);  // of a text, its end token included
  void CountLength(int64_t tokens);     // of a text with its prompt
  void CountGuesses(const Generation& text);
  void AddFirstToken(double seconds);  // from a request to its first token
  void AddTokenGap(double seconds);    // between two tokens of a text

  int64_t began() const { return began_; }  // counting, in seconds since 1970

  // All lines. `sequences`: how many texts there may be at the same time.
  std::string Lines(const SchedulerCounters& counters, int64_t sequences, size_t connections) const;

 private:
  const int64_t began_ = std::chrono::duration_cast<std::chrono::seconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> answers_;  // by path and status
  uint64_t unknown_fields_ = 0;
  uint64_t closed_ = 0;
  uint64_t generated_ = 0;
  uint64_t drafts_ = 0;  // passes with guesses
  uint64_t guessed_ = 0;
  uint64_t right_ = 0;
  int64_t length_max_ = 0;
  TokenCounts tokens_;
  Histogram first_token_{{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}};
  Histogram token_gap_{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10}};
};

}  // namespace kvant::tools
