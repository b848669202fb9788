// Linear warm-up, then half a cosine down to the floor.
#include "cosine.h"

KITBASH_PLUGIN("schedule-cosine", "0.1.0", "Apache-2.0", component<Cosine>("cosine"))
