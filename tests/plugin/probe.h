/* probe.h: what a test plugin records of its shutdown; reached by extension("test.probe"). */
#ifndef KITBASH_TEST_PROBE_H
#define KITBASH_TEST_PROBE_H
#ifdef __cplusplus
namespace kitbash::test {
#endif
struct Probe {
  int* clock; /* counts shutdowns of all plugins */
  int stamp;  /* the clock after this one's */
};
#ifdef __cplusplus
}
#endif
#endif
