// Calls a function that nothing defines; linked without -z defs, so that only loading shows it.
#include "kitbash/plugin.h"

extern "C" double nowhere_defined(double);

struct Half : kb::Activation<Half> {
  kb::Value build(kb::Builder&, kb::Value gate, kb::Value up) const { return nowhere_defined(0.5) * gate * up; }
};

KITBASH_PLUGIN("undefined-symbol", "0.1.0", "Apache-2.0", component<Half>("half"))
