// folder.h: the names in a folder of checkpoints.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace kitbash {

std::string step_name(int64_t step);       // step-00001000
int64_t step_of(const std::string& name);  // of exactly such a name; -1: it is another

struct FolderEntry {
  std::string name;
  int64_t step = -1;        // of a published checkpoint
  bool unfinished = false;  // left by a save that did not come to its end: step-*.tmp, latest.tmp
};
// Sorted by step, then name; empty when there is no such folder. Throws kb::Error with KB_IO.
std::vector<FolderEntry> read_folder(const std::string& path);
std::vector<std::string> names_in(const std::string& path);

}  // namespace kitbash
