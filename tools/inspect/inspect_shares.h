// kvant inspect --shares: how evenly a team of threads shares the phases of a pass, of as many
// threads as one likes, whatever this machine has.
#pragma once

#include <string>

#include "kvant/session.h"
#include "tools/options/json.h"

namespace kvant::tools {

// The shares of two passes: one over a prompt's first chunk, and one over a token at the end of the
// context.
Result<Json> SharesJson(const Model& model, const SessionOptions& options);

// The result of SharesJson as text for people.
std::string SharesText(const Json& shares);

}  // namespace kvant::tools
