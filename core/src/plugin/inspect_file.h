// inspect_file.h: everything that can be said of a plugin file before any of its code runs.
#pragma once
#include <string>

#include "plugin/manifest.h"
#include "plugin/problems.h"

namespace kitbash {

struct Inspection {
  PluginInfo info;        // valid when `broken` is empty
  Problems broken;        // no library, no or a bad manifest, not to be trusted: not listed at all
  Problems incompatible;  // a sound plugin for another kitbash: listed, but it will not load
  Problems all() const;
};
Inspection inspect_file(const std::string& path);  // path: canonical

}  // namespace kitbash
