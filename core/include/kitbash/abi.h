/* abi.h: the seam between the kitbash program and a plugin library. C99; the only file with binary meaning.
 *
 * Rules. Append only: nothing is reordered, retyped or removed within a major version. A table starts with struct_size, set
 * by KB_STRUCT_SIZE and read through KB_HAS; tables travel by pointer or in arrays of pointers. Four structs are frozen for
 * the whole major version instead, since they travel in plain arrays: kb_type, kb_attr, kb_tensor, kb_error.
 * Functions return KB_OK or another kb_code, and then fill *error. Nothing throws. Who allocates frees. Strings are UTF-8;
 * a string from a plugin lives as long as the plugin, one from the host as long as the call. */
#ifndef KITBASH_ABI_H
#define KITBASH_ABI_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define KB_ABI_MAJOR 1
#define KB_ABI_MINOR 0
#define KB_MAX_RANK 8
#define KB_MAX_OUT 16 /* outputs of one op */
#define KB_MAX_IN 256 /* inputs of one op */
#define KB_STRUCT_SIZE(T, last) ((uint32_t)(offsetof(T, last) + sizeof(((T*)0)->last)))
#define KB_HAS(T, p, field) ((p)->struct_size >= offsetof(T, field) + sizeof((p)->field))
#define KB_EXPORT __attribute__((visibility("default")))

typedef enum { KB_OK = 0, KB_INVALID = 1, KB_UNSUPPORTED = 2, KB_IO = 3, KB_INTERNAL = 4 } kb_code;

typedef enum {
  KB_NONE = 0,
  KB_U8 = 1,
  KB_I32 = 2,
  KB_I64 = 3,
  KB_BF16 = 4,
  KB_F32 = 5,
  KB_F64 = 6,
  /* Symbolic, resolved by the host when a value is made; a kb_type never holds them. */
  KB_COMPUTE = 64, /* what this graph computes in: bf16, f32, or f64 in a gradient check */
  KB_WIDE = 65     /* f32, or f64 in a gradient check: for numbers that must not be bf16 */
} kb_dtype;

/* ---- frozen structs ------------------------------------------------------------------------------------------------ */
typedef struct {
  uint32_t code;
  char message[508];
} kb_error; /* the caller's buffer */

typedef struct {
  uint32_t dtype;
  int32_t rank;
  int64_t shape[KB_MAX_RANK]; /* bounds: what memory is planned for */
  double lo, hi;              /* every element is in [lo, hi]; -inf, +inf when nothing is known */
  uint32_t extent; /* 0: all rows of axis 0 are in use; else the number of a device integer (kb_call.extents) that says
                      how many are. Rows past it are zero, and count nowhere. */
  uint32_t reserved; /* 0 */
} kb_type;

typedef enum { KB_INT = 1, KB_FLOAT = 2, KB_TEXT = 3, KB_INTS = 4, KB_FLOATS = 5 } kb_attr_kind;
typedef struct {
  const char* name;
  uint32_t kind, count; /* count: elements of a list, else 1 */
  union {
    int64_t i;
    double f;
    const char* s;
    const int64_t* is;
    const double* fs;
  } v;
} kb_attr;

typedef struct {
  void* data; /* NULL: an input that is absent, or an output that nobody reads and the kernel must not compute */
  kb_type type;
  int64_t stride[KB_MAX_RANK]; /* in elements; operands are dense in ABI 1.0 */
} kb_tensor;

/* ---- what a component may ask of the host while it builds ------------------------------------------------------------ */
typedef uint32_t kb_value; /* a value of the graph being built; 0 = none */
typedef struct kb_builder kb_builder;

typedef enum { KB_MATRIX = 0, KB_VECTOR = 1, KB_EMBEDDING = 2, KB_OTHER = 3 } kb_role; /* for the optimiser */
typedef enum {
  KB_NO_DECAY = 1,
  KB_PER_EXPERT = 2 /* axis 0 is experts: may be split over them */
} kb_param_flag;
typedef struct {
  uint32_t struct_size, role, flags, dtype;
  const char* name;
  kb_value init;  /* its shape is the parameter's; run once, seeded by the full name, then dropped */
  int64_t blocks; /* axis 0 is this many independent matrices (heads, experts) for the optimiser; 1 = whole */
  int64_t active; /* with KB_PER_EXPERT: how many of axis 0 work for one token; counts active parameters */
} kb_param;

typedef enum {
  KB_STATE_MODEL = 0,     /* saved and exported with the weights (a router's bias) */
  KB_STATE_STEP = 1,      /* gathered over the micro-batches of a step, reset to `fill` after update; not saved */
  KB_STATE_OPTIMIZER = 2, /* saved, not exported; belongs to the parameter being stepped */
  KB_STATE_SEQUENCE = 3,  /* serving: declared for one sequence; the value is [slots, ...] */
  KB_STATE_TOKEN = 4      /* serving: declared for one token; the value is [slots, capacity, ...] */
} kb_life;
typedef struct {
  uint32_t struct_size, life, dtype;
  int32_t rank;
  const char* name;
  const int64_t* shape;
  double fill;
} kb_state;

typedef enum {
  KB_REPORT = 0, /* a figure for logs and plans, by name */
  KB_LOSS = 1    /* a scalar, summed over tokens, added to the objective */
} kb_publish;

typedef struct {
  uint32_t struct_size, abi_minor;
  int (*emit)(kb_builder*, const char* op, const kb_value* in, uint32_t n_in, const kb_attr*, uint32_t n_attr,
              kb_value* out, uint32_t* n_out, kb_error*); /* *n_out: room in, count out */
  int (*type)(kb_builder*, kb_value, kb_type*, kb_error*);
  int (*param)(kb_builder*, const kb_param*, kb_value*, kb_error*);
  int (*state)(kb_builder*, const kb_state*, kb_value*, kb_error*); /* the value it has before this graph runs */
  int (*find)(kb_builder*, const char* name, kb_value*, kb_error*); /* own param or state; 0 if there is none */
  /* the state (in update also param) becomes now */
  int (*write)(kb_builder*, kb_value target, kb_value now, kb_error*);
  int (*call)(kb_builder*, const char* slot, uint32_t verb, const kb_value* in, uint32_t n_in, const kb_attr*,
              uint32_t n_attr, kb_value* out, uint32_t* n_out, kb_error*); /* build the child in a slot */
  int (*publish)(kb_builder*, uint32_t what, const char* name, kb_value, kb_error*);
  void (*log)(uint32_t level, const char* text); /* level: 0 debug, 1 note, 2 warning */
} kb_host;

/* Which graph this is, and what may be written in it (core/README.md, "Lives"):
 * TRAIN: STEP states. EVAL: nothing. PREFILL, DECODE: SEQUENCE and TOKEN states. STEP (the optimiser): OPTIMIZER states.
 * UPDATE (after it): STEP and MODEL states and own parameters. */
typedef enum { KB_TRAIN = 0, KB_EVAL = 1, KB_PREFILL = 2, KB_DECODE = 3, KB_STEP = 4, KB_UPDATE = 5 } kb_mode;
typedef struct {
  uint32_t struct_size; /* one request to build */
  const kb_host* host;
  kb_builder* builder;
  uint32_t verb, mode, compute; /* verb: see the kind's header; compute: the dtype that KB_COMPUTE stands for */
  const kb_value* in;           /* 0: absent */
  uint32_t n_in;
  const kb_attr* attr; /* UPDATE: those of the last build */
  uint32_t n_attr;
  kb_value* out;
  uint32_t n_out; /* room in, count out */
} kb_build;

/* ---- what a plugin provides -------------------------------------------------------------------------------------------- */
typedef struct {
  uint32_t struct_size;
  const char *kind, *name;
  int (*create)(const kb_host*, const kb_attr* config, uint32_t n, void** self, kb_error*); /* manifest order */
  void (*destroy)(void* self);
  int (*build)(const void* self, kb_build*, kb_error*); /* NULL for kinds that are no graph */
  const void* service;                                  /* the kind's own table (schedule, tokenizer, ...), or NULL */
} kb_component;

typedef struct {
  uint32_t struct_size;
  const kb_attr* attr; /* all that the op declares, in its order */
  uint32_t n_attr;
  const kb_type* in; /* dtype KB_NONE: absent */
  uint32_t n_in;
  kb_type* out;
  uint32_t n_out;
  int32_t alias[KB_MAX_OUT]; /* alias[o] = i: output o is input i changed in place; -1: a buffer of its own */
} kb_infer;

typedef struct {
  uint32_t struct_size;
  const kb_attr* attr;
  uint32_t n_attr;
  const kb_value* in;
  uint32_t n_in;
  const kb_value* out;
  uint32_t n_out;
  const kb_value* up;  /* gradient of each output, 0 = none */
  const uint8_t* need; /* need[i]: is the gradient of in[i] wanted; */
  kb_value* down;      /* put it in down[i]; 0 = zero */
} kb_node;

typedef struct {
  uint32_t struct_size;
  double flops, bytes; /* bytes < 0: every input read and every output written once */
} kb_cost;

typedef struct {
  uint32_t struct_size, kind, arch; /* kind: kb_device_kind; arch: CUDA compute capability (90), 0 on the CPU */
  int32_t threads;
  uint32_t deterministic;
  /* CPU: calls body on pieces of [0, n) of at least `grain` from the process's one thread team, and returns when all are
   * done. thread < threads tells workers apart. Not to be nested. */
  void (*parallel)(const void* team, int64_t n, int64_t grain,
                   void (*body)(void*, int64_t begin, int64_t end, int32_t thread), void* arg);
  const void* team;                                /* the backend's own */
  void *stream, *cublas, *cublaslt, *cudnn, *nccl; /* CUDA: the host's handles, never the plugin's */
} kb_device;

typedef struct {
  uint32_t struct_size;
  const kb_attr* attr;
  uint32_t n_attr;
  const kb_tensor* in;
  uint32_t n_in;
  const kb_tensor* out;
  uint32_t n_out;
  const int32_t* extents; /* in device memory, indexed by kb_type.extent; NULL outside launch */
  uint32_t accumulate;    /* bit o: add to output o instead of overwriting it */
  void* workspace;        /* as many bytes as workspace() asked for, 64-byte aligned; not cleared */
  const kb_device* device;
} kb_call;

typedef enum {
  KB_POINTWISE = 1,  /* element i of every output depends on element i of the (broadcast) inputs only */
  KB_VIEW = 2,       /* output 0 is input 0 in another shape; nothing runs */
  KB_RANDOM = 4,     /* the host supplies the attribute "seed" */
  KB_COLLECTIVE = 8, /* every rank runs it */
  KB_SOURCE = 16     /* a constant made from attributes alone */
} kb_trait;
typedef struct {
  uint32_t struct_size;
  const char* name;
  const kb_attr* attr; /* every attribute with its default */
  uint32_t n_attr;
  int (*infer)(kb_infer*, kb_error*);
  int (*cost)(const kb_call*, kb_cost*, kb_error*);                  /* data pointers are NULL; shapes decide */
  int (*gradient)(const kb_host*, kb_builder*, kb_node*, kb_error*); /* NULL: a gradient through it is an error */
  uint32_t traits;
} kb_op;

typedef enum { KB_CPU = 0, KB_CUDA = 1 } kb_device_kind;
typedef struct {
  uint32_t struct_size;
  const char *op, *name; /* for its own ops or anyone's */
  uint32_t device, arch_min, arch_max;
  int32_t priority;
  uint32_t accumulates;                                   /* bit o: launch honours the accumulate bit of output o */
  int (*supports)(const kb_call*, kb_error* why);         /* 0 = yes, else one sentence; NULL: always */
  uint64_t (*workspace)(const kb_call*);                  /* a bound from shapes and threads alone; NULL: none */
  int (*prepare)(const kb_call*, void** plan, kb_error*); /* once a node, before the first launch; NULL: no plan */
  int (*launch)(void* plan, const kb_call*, kb_error*); /* operands dense; on device->stream only; never synchronises */
  void (*release)(void* plan);
} kb_kernel;

typedef struct {
  uint32_t struct_size, abi_major, built_with_minor, needs_minor;
  const kb_component* const* components;
  uint32_t n_components;
  const kb_op* const* ops;
  uint32_t n_ops;
  const kb_kernel* const* kernels;
  uint32_t n_kernels;
  void (*shutdown)(void);                     /* once, before the process ends; may be NULL */
  const void* (*extension)(const char* name); /* growth outside the table; may be NULL */
} kb_plugin;

KB_EXPORT const kb_plugin* kitbash_plugin_v1(void); /* the one exported function */

/* A backend is a plugin of kernels that also opens a device: extension("kitbash.backend") gives this table. */
typedef struct {
  uint32_t struct_size, kind;
  /* out->struct_size is set by the host; threads 0: all cores */
  int (*open)(int32_t threads, kb_device* out, kb_error*);
  void (*close)(kb_device*);

  /* All that follows is given by a backend whose device has memory of its own, and by no other. Everything but memory, alloc
   * and release is enqueued on device->stream, in order with the kernels, and may be done after the call returns. */
  int (*memory)(const kb_device*, uint64_t* free, uint64_t* total, kb_error*);
  int (*alloc)(const kb_device*, uint64_t bytes, void** out, kb_error*); /* 256-byte aligned; contents are undefined */
  void (*release)(const kb_device*, void*);                              /* after all that was enqueued is done */
  int (*upload)(const kb_device*, void* to, const void* host, uint64_t bytes, kb_error*); /* host may change at once */
  int (*download)(const kb_device*, void* host, const void* from, uint64_t bytes, kb_error*); /* waits */
  int (*copy)(const kb_device*, void* to, const void* from, uint64_t bytes, kb_error*);       /* within the device */
  /* n elements of width 1, 2, 4 or 8 become the one at `host` */
  int (*fill)(const kb_device*, void* to, uint64_t n, uint32_t width, const void* host, kb_error*);
  /* rows from *used (in device memory) on become zero */
  int (*clear_tail)(const kb_device*, void* data, uint64_t rows, uint64_t row_bytes, const int32_t* used, kb_error*);
  int (*wait)(const kb_device*, kb_error*); /* until all is done; says what failed in it */
  /* Marks a moment on the stream; elapsed waits for both and gives the seconds between them. index: below 65536 */
  int (*stamp)(const kb_device*, uint32_t index, kb_error*);
  int (*elapsed)(const kb_device*, uint32_t from, uint32_t to, double* seconds, kb_error*);
  /* What is enqueued after record is kept instead of done, until recorded gives it as a graph that replay does as often as
   * wanted. Of what lies between only_if and always, a replay does nothing when the f32 at `flag` (device memory, as the part
   * before leaves it) is 0. upload, download, wait and stamp may not be recorded. graph NULL: what was kept is dropped. */
  int (*record)(const kb_device*, kb_error*);
  int (*only_if)(const kb_device*, const float* flag, kb_error*);
  int (*always)(const kb_device*, kb_error*);
  int (*recorded)(const kb_device*, void** graph, kb_error*);
  int (*replay)(const kb_device*, void* graph, kb_error*);
  void (*discard)(const kb_device*, void* graph);
} kb_backend;

/* ---- tables of the kinds that are no graph ------------------------------------------------------------------------------ */
typedef struct {
  uint32_t struct_size;
  double (*at)(const void* self, int64_t step, int64_t steps); /* step in [0, steps) -> factor on the peak rate */
} kb_schedule;

typedef struct {
  const char* name; /* of the tensor: "target", "loss_weight" */
  uint32_t dtype;
} kb_column;
typedef struct {
  uint32_t struct_size;
  /* per-token tensors of the batch; loss_weight among them */
  const kb_column* (*columns)(const void* self, uint32_t* n);
} kb_objective;

/* A sink takes what a service produces, in pieces; put returns 0, or not to refuse. */
typedef struct {
  void* ctx;
  int (*put)(void* ctx, const void* data, uint64_t bytes);
} kb_sink;

typedef struct {
  uint32_t struct_size;
  int64_t (*vocab)(const void* self);
  int64_t (*special)(const void* self, const char* name); /* "bos", "eos": an id, or -1 */
  int (*encode)(const void* self, const char* text, uint64_t bytes, kb_sink ids /* int32 */, kb_error*);
  int (*decode)(const void* self, const int32_t* ids, uint64_t n, kb_sink text, kb_error*);
} kb_tokenizer;

typedef struct {
  void* ctx;                                                            /* a sample is segments in order */
  int (*text)(void* ctx, const char* bytes, uint64_t n, double weight); /* weight 0: shown, not learnt */
} kb_sample;
typedef struct {
  uint32_t struct_size;
  int (*open)(const void* self, const char* split /* "train", "held_out" */, void** reader, kb_error*);
  int64_t (*count)(void* reader);                                                      /* samples of the split */
  int (*sample)(void* reader, uint64_t seed, int64_t index, kb_sample out, kb_error*); /* pure; any thread */
  void (*close)(void* reader);
} kb_source;

#ifdef __cplusplus
}
#endif
#endif
