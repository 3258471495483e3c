// Where the library's diagnostics go. The library itself never prints: it hands one-line messages
// to the sink that the program installed, and to nobody if there is none.
//
// Thread-safety: SetLogSink must not race with running sessions; Log may be called from any thread.
#pragma once

#include <functional>
#include <string_view>

namespace kvant {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarning };

using LogSink = std::function<void(LogLevel level, std::string_view line)>;

void SetLogSink(LogSink sink);
void Log(LogLevel level, std::string_view line);

}  // namespace kvant
