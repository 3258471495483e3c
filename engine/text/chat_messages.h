// Messages as values of a template, and messages of JSON.
#pragma once

#include <span>

#include "base/result.h"
#include "engine/jinja/value.h"
#include "kvant/chat.h"

namespace kvant {

// A list of dicts. `reasoning` is the name that the template has for the reasoning of an assistant.
// kInvalid where the further members of a message are no JSON object.
Result<jinja::Value> MessageValues(std::span<const ChatMessage> messages, const char* reasoning);

// kInvalid where the further members of the message are no JSON object.
Status CheckMembers(const ChatMessage& message);

}  // namespace kvant
