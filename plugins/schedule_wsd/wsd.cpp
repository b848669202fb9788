// Warm-up, stable, decay: a plateau at the peak and a straight line down to the floor.
#include "wsd.h"

KITBASH_PLUGIN("schedule-wsd", "0.1.0", "Apache-2.0", component<Wsd>("wsd"))
