/* A plugin in plain C: one kernel for a base op, and a record of its shutdown. */
#include "tests/plugin/probe.h"

#include <string.h>

#include "kitbash/abi.h"

#ifdef PROBE_FAST
#define ID "probe-fast"
#define PRIORITY 5
#else
#define ID "probe"
#define PRIORITY 0
#endif

__attribute__((used, section("kitbash"))) static const char manifest[] =
    "kitbash = 1\nneeds = 0\nbuilt_minor = 0\nplugin = \"" ID
    "\"\nversion = \"1\"\n"
    "[[kernel]]\nop = \"matmul\"\nname = \"nothing\"\ndevice = \"cpu\"\n";

static struct Probe probe;

static int launch(void* plan, const kb_call* call, kb_error* error) {
  (void)plan, (void)call, (void)error;
  return KB_OK;
}
static void shut_down(void) {
  if (probe.clock) probe.stamp = ++*probe.clock;
}
static const void* extension(const char* name) { return strcmp(name, "test.probe") ? NULL : &probe; }

static const kb_kernel kernel = {.struct_size = KB_STRUCT_SIZE(kb_kernel, release),
                                 .op = "matmul",
                                 .name = "nothing",
                                 .device = KB_CPU,
                                 .priority = PRIORITY,
                                 .launch = launch};
static const kb_kernel* const kernels[] = {&kernel};
static const kb_plugin plugin = {.struct_size = KB_STRUCT_SIZE(kb_plugin, extension),
                                 .abi_major = KB_ABI_MAJOR,
                                 .built_with_minor = KB_ABI_MINOR,
                                 .kernels = kernels,
                                 .n_kernels = 1,
                                 .shutdown = shut_down,
                                 .extension = extension};

const kb_plugin* kitbash_plugin_v1(void) { return &plugin; }
