// A plugin for the next major ABI.
#include "kitbash/plugin.h"
#undef KB_ABI_MAJOR
#define KB_ABI_MAJOR 2

struct Half : kb::Activation<Half> {
  kb::Value build(kb::Builder&, kb::Value gate, kb::Value up) const { return 0.5 * gate * up; }
};

KITBASH_PLUGIN("other-abi", "0.1.0", "Apache-2.0", component<Half>("half"))
