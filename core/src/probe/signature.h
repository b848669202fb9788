// signature.h: the tensors that a verb of a kind reads and returns, by name, as `kitbash probe` reads and writes them.
#pragma once
#include <string>
#include <vector>

#include "kitbash/abi.h"

namespace kitbash {

struct Port {
  const char* name;
  uint32_t dtype;  // KB_COMPUTE, KB_WIDE or KB_I32
  bool optional = false;
};
struct Signature {
  const char *kind, *verb;
  uint32_t number;
  std::vector<Port> inputs;
  bool sequence;  // cu, position, document (past, slot) follow the inputs
  bool document;  // document alone follows
  std::vector<const char*> outputs;
  std::vector<std::string> attributes;  // of the call, as the kind's header lists them
};
// Throws kb::Error that lists the verbs of the kind, or the kinds that can be probed.
const Signature& find_signature(const std::string& kind, const std::string& verb);

}  // namespace kitbash
