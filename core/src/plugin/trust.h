// trust.h: a plugin has all rights of the process, so nobody but its user and root may be able to change it.
#pragma once
#include <string>

#include "plugin/problems.h"

namespace kitbash {

// What speaks against loading the file: it or its folder is writable by group or everyone, or belongs to somebody else.
// `path` is canonical. Nothing is said of a file that does not exist.
Problems distrust(const std::string& path);
Problems distrust_folder(const std::string& folder);  // predicates about the folder itself

}  // namespace kitbash
