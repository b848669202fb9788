#include "text.h"

KITBASH_PLUGIN("source-text", "0.1.0", "Apache-2.0", component<TextFile>("text"))
