// table_check.h: whether the tables that a plugin gives are whole, and are what its manifest said.
#pragma once
#include "kitbash/abi.h"
#include "plugin/manifest.h"
#include "plugin/problems.h"

namespace kitbash {

// Predicates for refusal(). Nothing is read past a struct_size. All fields of ABI 1.0 are required, except
// kb_component's service and kb_plugin's shutdown and extension.
Problems table_problems(const kb_plugin* table, const PluginInfo& info);

}  // namespace kitbash
