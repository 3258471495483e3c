// A conversation in files: FILE has the messages as JSON, FILE.kvs the sequence with their tokens.
//
// Each file appears whole or not at all. The messages are the truth: where FILE.kvs is missing,
// older or of another model, the conversation is there all the same and is computed again. Every
// number of a file is checked.
#pragma once

#include <string>

#include "base/result.h"
#include "tools/chat/chat_session.h"

namespace kvant::tools {

// Saves both. `note` tells why the sequence could not be saved, "" if it was.
Status SaveChat(const ChatSession& session, const std::string& path, std::string* note);

// Takes a saved conversation over in place of the present one, which stays where this fails. `note`
// tells why its tokens will be computed again, "" if they need not be.
Status LoadChat(const std::string& path, ChatSession& session, std::string* note);

}  // namespace kvant::tools
