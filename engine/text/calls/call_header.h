// The beginning of a call, up to its arguments.
//
// Thread-safety: free functions.
#pragma once

#include <cstdint>
#include <string>

#include "engine/text/calls/call_cursor.h"
#include "engine/text/calls/tool_list.h"
#include "kvant/tool_calls.h"

namespace kvant {

// In an array no mark comes before a call.
enum class CallPlace : uint8_t { kOutside, kInArray };

struct CallHeader {
  std::string name;
  std::string id;
  bool opens_array = false;  // the call is the first element of an array
  // kJson: how many objects are open, and whether the arguments are JSON in a text.
  int depth = 0;
  bool has_text_arguments = false;
  // Arguments that stood before the name. The object may be at its end then: depth is 0.
  std::string arguments;
};

// Whether a call can begin without a mark.
bool IsBareFormat(const ToolFormat& format);

// Reads a header; blanks before it are left out. The state of the cursor tells whether there is
// one; the name is set as soon as it is known.
void TakeHeader(const ToolFormat& format, const ToolList& tools, CallPlace place,
                CallCursor& cursor, CallHeader& header);

// The members of a call's object behind its arguments; `id` is set where there is one.
void TakeMembersBehind(const ToolFormat& format, int depth, CallCursor& cursor, std::string& id);

}  // namespace kvant
