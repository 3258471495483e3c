#include "tools/options/json.h"

namespace kvant::tools {

std::string Dump(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvant::tools
