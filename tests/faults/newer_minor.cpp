// A plugin that needs features of a later minor ABI.
#define KITBASH_NEEDS_MINOR 7
#include "kitbash/plugin.h"
#undef KB_ABI_MINOR
#define KB_ABI_MINOR 9

struct Half : kb::Activation<Half> {
  kb::Value build(kb::Builder&, kb::Value gate, kb::Value up) const { return 0.5 * gate * up; }
};

KITBASH_PLUGIN("newer-minor", "0.1.0", "Apache-2.0", component<Half>("half"))
