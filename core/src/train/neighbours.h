// neighbours.h: do other programs take the cores that the thread team runs on? Threads wait for each other after every node, so
// that one core which is taken away for a moment stops all of them.
#pragma once
#include <optional>
#include <string>

#include "runtime/device.h"

namespace kitbash {

// Time of the cores that this process may use, from /proc/stat, against its own.
class Neighbours {
 public:
  Neighbours();
  // Cores that others took since the beginning (or the last call that said so); nothing while it is too early to say, or where
  // the system does not tell.
  std::optional<double> cores_taken() const;
  // Once, when they take so much that fewer threads may be faster: what to do.
  std::optional<std::string> hint(const Device& device);

 private:
  double begun_, busy_, own_;  // seconds
  bool told_ = false;
};

}  // namespace kitbash
