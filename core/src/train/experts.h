// experts.h: how evenly the experts of a step were loaded, from the routers' `load` reports.
#pragma once
#include "runtime/program.h"

namespace kitbash {

struct ExpertLoad {
  double worst = 0;   // largest load over mean load, over all routers; 0: there is no router
  int64_t dead = 0;   // experts without a token, over all routers
  std::string where;  // the router with the worst load
};
// After a good step of apply.
ExpertLoad expert_load(const Program& apply);

}  // namespace kitbash
