// fields.h: the keys of a component, as a table and as JSON.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plugin/manifest.h"

namespace kitbash {

std::string value_text(const FieldValue& v);                                  // as a recipe would write it
std::string fields_table(const ComponentInfo& c, const std::string& indent);  // name, type, default, range, doc
nlohmann::ordered_json component_json(const ComponentInfo& c);

}  // namespace kitbash
