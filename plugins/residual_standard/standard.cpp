// The plain residual stream: x <- x + f(x). The carry is x.
#include "kitbash/plugin.h"
using kb::Value;
using kb::Values;

struct Standard : kb::Residual<Standard> {
  Values begin(kb::Builder&, Value embedding) const { return {embedding}; }
  kb::Entered input(kb::Builder&, const Values& carry, const kb::Depth&) const { return {carry[0], carry}; }
  Values output(kb::Builder&, const Values& carry, Value y, const kb::Depth&) const { return {carry[0] + y}; }
  Value end(kb::Builder&, const Values& carry, int64_t) const { return carry[0]; }
};

KITBASH_PLUGIN("residual-standard", "0.1.0", "Apache-2.0", component<Standard>("standard"))
