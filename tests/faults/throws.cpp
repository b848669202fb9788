// Throws exceptions of all sorts in create(), after plugin code has begun to run.
#include "kitbash/plugin.h"

struct Thrower : kb::Activation<Thrower> {
  int64_t how = 0;
  void check() const {
    if (how == 1) kb::fail("'how' must not be 1 but got ", how);
    if (how == 2) throw std::out_of_range("index 7 of 3");
    if (how == 3) throw 3;
  }
  kb::Value build(kb::Builder&, kb::Value gate, kb::Value) const { return gate; }
};
KITBASH_SCHEMA(Thrower, field("how", &Self::how, "what to throw"))

KITBASH_PLUGIN("throws", "0.1.0", "Apache-2.0", component<Thrower>("thrower"))
