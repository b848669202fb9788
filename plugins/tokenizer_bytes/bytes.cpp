// The bytes of UTF-8 as tokens: no vocabulary to train, and every input can be written.
#include "bytes.h"

KITBASH_PLUGIN("tokenizer-bytes", "0.1.0", "Apache-2.0", component<Bytes>("bytes"))
