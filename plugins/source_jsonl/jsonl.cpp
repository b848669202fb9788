#include "jsonl.h"

KITBASH_PLUGIN("source-jsonl", "0.1.0", "Apache-2.0", component<Jsonl>("jsonl"))
