/* A plugin written by hand in C, with one fault chosen by FAULT_...; sound when none is. */
#include "kitbash/abi.h"

__attribute__((used, section("kitbash"))) static const char manifest[] =
    "kitbash = 1\nneeds = 0\nbuilt_minor = 0\nplugin = \"raw\"\nversion = \"1\"\n"
    "[[component]]\nkind = \"activation\"\nname = \"raw\"\n"
#ifdef FAULT_COUNT
    "[[component]]\nkind = \"activation\"\nname = \"second\"\n[[op]]\nname = \"raw_op\"\n"
#endif
#ifdef FAULT_KERNEL
    "[[kernel]]\nop = \"matmul\"\nname = \"fast\"\ndevice = \"cpu\"\n"
#endif
    ;

static int create(const kb_host* host, const kb_attr* config, uint32_t n, void** self, kb_error* error) {
  static int object;
  (void)host, (void)config, (void)n, (void)error;
  *self = &object;
  return KB_OK;
}
static void destroy(void* self) { (void)self; }
static int build(const void* self, kb_build* request, kb_error* error) {
  (void)self, (void)request, (void)error;
  return KB_OK;
}

/* What a plugin had that was built before `service` existed: its table really ends there. */
typedef struct {
  uint32_t struct_size;
  const char *kind, *name;
  int (*create)(const kb_host*, const kb_attr*, uint32_t, void**, kb_error*);
  void (*destroy)(void*);
  int (*build)(const void*, kb_build*, kb_error*);
} short_component;

static const short_component component = {
#ifdef FAULT_SHORT_COMPONENT
    .struct_size = KB_STRUCT_SIZE(kb_component, destroy),
#else
    .struct_size = sizeof(short_component),
#endif
    .kind = "activation",
#ifdef FAULT_NAME
    .name = "cooked",
#else
    .name = "raw",
#endif
#ifndef FAULT_FUNCTIONS
    .create = create,
    .destroy = destroy,
    .build = build,
#endif
};
#ifdef FAULT_NULL_LIST
#define COMPONENTS NULL
#else
static const kb_component* const components[] = {(const kb_component*)&component};
#define COMPONENTS components
#endif

#ifdef FAULT_KERNEL
static int launch(void* plan, const kb_call* call, kb_error* error) {
  (void)plan, (void)call, (void)error;
  return KB_OK;
}
static int prepare(const kb_call* call, void** plan, kb_error* error) {
  (void)call, (void)plan, (void)error;
  return KB_OK;
}
static const kb_kernel kernel = {.struct_size = KB_STRUCT_SIZE(kb_kernel, release),
                                 .op = "matmul",
                                 .name = "fast",
                                 .device = KB_CUDA,
                                 .prepare = prepare,
                                 .launch = launch};
static const kb_kernel* const kernels[] = {&kernel};
#endif

static const kb_plugin plugin = {
#ifdef FAULT_SHORT_TABLE
    .struct_size = 8,
#else
    .struct_size = KB_STRUCT_SIZE(kb_plugin, n_kernels), /* older than shutdown and extension */
#endif
#ifdef FAULT_TABLE_ABI
    .abi_major = 3,
#else
    .abi_major = KB_ABI_MAJOR,
#endif
    .built_with_minor = KB_ABI_MINOR,
    .components = COMPONENTS,
    .n_components = 1,
#ifdef FAULT_KERNEL
    .kernels = kernels,
    .n_kernels = 1,
#endif
};

#ifdef FAULT_NO_ENTRY
KB_EXPORT const kb_plugin* kitbash_other(void) { return (void)create, (void)destroy, (void)build, &plugin; }
#else
const kb_plugin* kitbash_plugin_v1(void) {
  (void)create, (void)destroy, (void)build, (void)component;
#ifdef FAULT_NULL_TABLE
  (void)plugin;
  return NULL;
#else
  return &plugin;
#endif
}
#endif
