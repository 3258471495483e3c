// Copies sequences from one cache into another one of equal shape, block by block in memory. It
// gives what a session file of them would give (session_file.h), without the file. Blocks that the
// sequences share are copied once and shared again.
#pragma once

#include "base/result.h"
#include "engine/kv/session_file.h"

namespace kvant::kv {

// Takes blocks from `to`, another cache than `from`. kNotSupported where groups, types or windows
// differ, kContextFull, kOutOfMemory; the cache is as before then. Rows of sources are copied where
// `session` says that they are saved.
Result<LoadedSession> CopySession(const Cache& from, const SavedSession& session, Cache& to);

}  // namespace kvant::kv
