// json.h: figures for machines, as every verb prints them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace kitbash {

// A path or a text may hold bytes that are no UTF-8; JSON cannot, so they are replaced rather than ending the verb.
template <class Json>
std::string json_text(const Json& j, int indent = 2) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kitbash
