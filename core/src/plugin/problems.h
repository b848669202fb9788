// problems.h: why a plugin file is refused. Each reason is a predicate ("is built for aarch64; this is x86-64"), so
// that the message begins with the file; a file with several faults shows all of them at once.
#pragma once
#include <string>
#include <vector>

namespace kitbash {

using Problems = std::vector<std::string>;

// "<path> <reason>", or "<path> is refused, for N reasons:" and a line for each.
inline std::string refusal(const std::string& path, const Problems& reasons) {
  if (reasons.size() == 1) return path + " " + reasons[0];
  std::string s = path + " is refused, for " + std::to_string(reasons.size()) + " reasons:";
  for (const std::string& r : reasons) s += "\n  it " + r;
  return s;
}

}  // namespace kitbash
