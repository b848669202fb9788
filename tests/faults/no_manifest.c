/* A shared library of somebody else's with a name like a plugin's. */
__attribute__((visibility("default"))) int kitbash_answer(void) { return 42; }
