// library.h: a shared library, opened by Boost.DLL and never closed. Unmapping code that something may still point to
// (an exception, a registered table, a thread-local destructor) is a crash nobody can place; so there is no unload.
#pragma once
#include <memory>
#include <string>

#include "kitbash/abi.h"

namespace kitbash {

struct Library {
  std::string path;
  void* native = nullptr;                     // of the loader; equal for one file opened twice
  const kb_plugin* (*entry)(void) = nullptr;  // kitbash_plugin_v1; null: it has none
  int users = 0;                              // registries that hold it
};

// `path`: absolute. Every symbol is resolved now, and none of its own is offered to other libraries. Throws kb::Error
// with a predicate for refusal().
std::shared_ptr<Library> open_library(const std::string& path);

}  // namespace kitbash
