// A CUDA backend without a GPU: the kernels of the CPU backend, and AdamW's, on memory that nothing but this plugin can touch. Its pages are
// unreadable except while one of the functions below works, so a read by the host is a crash, not a wrong number. Recording
// keeps calls and checks the rules of kb_backend: what may not be recorded, and what is dropped.
#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <map>

#include "kitbash/plugin.h"
#include "plugins/backend_cpu/kernels.h"
#include "plugins/optimizer_adamw/adamw_step.h"

namespace fake {

struct Pages {
  uint64_t bytes;
};

struct State {
  std::map<char*, Pages> blocks;
  struct Graph {
    std::vector<std::function<void()>> before, guarded, after;
    const float* flag = nullptr;
  };
  Graph* recording = nullptr;
  std::vector<std::function<void()>>* to = nullptr;
  bool conditional = false;
  int open_depth = 0;
};
State& state(const kb_device* d) { return *static_cast<State*>(const_cast<void*>(d->team)); }

// Memory can be touched while one of these lives.
struct Open {
  explicit Open(State& state) : s(state) {
    if (s.open_depth++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  ~Open() {
    if (--s.open_depth == 0) protect(PROT_NONE);
  }
  void protect(int how) const {
    for (auto& [p, pages] : s.blocks) mprotect(p, pages.bytes, how);
  }
  State& s;
};

void enqueue(const kb_device* d, std::function<void()> f) {
  State& s = state(d);
  if (s.recording) {
    s.to->push_back(std::move(f));
    return;
  }
  Open open(s);
  f();
}

// A CPU kernel, on the fake device. The call outlives its node's recordings, as the runtime promises.
template <class K>
struct On : K {
  static constexpr uint32_t device = KB_CUDA;
  template <class... P>
  static void launch(const kb::Call& c, const typename K::Op& op, P&... plan) {
    if (!c.c->device || c.c->device->kind != KB_CUDA) kb::fail("is launched on another device");
    enqueue(c.c->device, [call = *c.c, op, &plan...] {
      kb_device cpu{};
      cpu.struct_size = KB_STRUCT_SIZE(kb_device, nccl);
      cpu.threads = 1, cpu.deterministic = 1;
      kb_call now = call;
      now.device = &cpu;
      K::launch(kb::Call{&now}, op, plan...);
    });
  }
};

int open_device(int32_t, kb_device* out, kb_error* e) {
  return kb::guard("fake open", e, [&] {
    if (const char* refuse = std::getenv("KITBASH_FAKE_CUDA_REFUSES")) throw kb::Error(refuse, KB_UNSUPPORTED);
    out->kind = KB_CUDA, out->arch = 90, out->threads = 1, out->deterministic = 1;
    out->team = new State;
  });
}
void close_device(kb_device* d) {
  State& s = state(d);
  if (!s.blocks.empty()) std::fprintf(stderr, "fake cuda: %zu blocks are left\n", s.blocks.size()), std::abort();
  delete &s;
}
int memory(const kb_device* d, uint64_t* free, uint64_t* total, kb_error* e) {
  return kb::guard("fake memory", e, [&] {
    const char* most = std::getenv("KITBASH_FAKE_CUDA_BYTES");
    *total = most ? std::strtoull(most, nullptr, 10) : uint64_t(1) << 33;
    uint64_t used = 0;
    for (const auto& [p, pages] : state(d).blocks) used += pages.bytes;
    *free = *total - std::min(*total, used);
  });
}
int alloc(const kb_device* d, uint64_t bytes, void** out, kb_error* e) {
  return kb::guard("fake alloc", e, [&] {
    if (state(d).recording) kb::fail("memory is asked for while recording");
    const uint64_t whole = (std::max<uint64_t>(bytes, 1) + 4095) / 4096 * 4096;
    void* p = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) kb::fail("no memory");
    std::memset(p, 0xff, whole);  // contents are undefined
    state(d).blocks[static_cast<char*>(p)] = {whole};
    mprotect(p, whole, PROT_NONE);
    *out = p;
  });
}
void release(const kb_device* d, void* p) {
  const auto at = state(d).blocks.find(static_cast<char*>(p));
  munmap(p, at->second.bytes);
  state(d).blocks.erase(at);
}
void no_recording(const kb_device* d, const char* what) {
  if (state(d).recording) kb::fail(what, " may not be recorded");
}
int upload(const kb_device* d, void* to, const void* host, uint64_t bytes, kb_error* e) {
  return kb::guard("fake upload", e, [&] {
    no_recording(d, "upload");
    Open open(state(d));
    std::memcpy(to, host, bytes);
  });
}
int download(const kb_device* d, void* host, const void* from, uint64_t bytes, kb_error* e) {
  return kb::guard("fake download", e, [&] {
    no_recording(d, "download");
    Open open(state(d));
    std::memcpy(host, from, bytes);
  });
}
int copy(const kb_device* d, void* to, const void* from, uint64_t bytes, kb_error* e) {
  return kb::guard("fake copy", e, [&] { enqueue(d, [=] { std::memmove(to, from, bytes); }); });
}
int fill(const kb_device* d, void* to, uint64_t n, uint32_t width, const void* host, kb_error* e) {
  return kb::guard("fake fill", e, [&] {
    const std::string one(static_cast<const char*>(host), width);
    enqueue(d, [=] {
      for (uint64_t i = 0; i < n; ++i) std::memcpy(static_cast<char*>(to) + i * width, one.data(), width);
    });
  });
}
int clear_tail(const kb_device* d, void* data, uint64_t rows, uint64_t row_bytes, const int32_t* used, kb_error* e) {
  return kb::guard("fake clear_tail", e, [&] {
    enqueue(d, [=] {
      if (uint64_t(*used) < rows)
        std::memset(static_cast<char*>(data) + uint64_t(*used) * row_bytes, 0, (rows - uint64_t(*used)) * row_bytes);
    });
  });
}
int wait(const kb_device* d, kb_error* e) {
  return kb::guard("fake wait", e, [&] { no_recording(d, "wait"); });
}
int stamp(const kb_device* d, uint32_t, kb_error* e) {
  return kb::guard("fake stamp", e, [&] { no_recording(d, "stamp"); });
}
int elapsed(const kb_device*, uint32_t, uint32_t, double* seconds, kb_error*) {
  *seconds = 1e-3;
  return KB_OK;
}

int record(const kb_device* d, kb_error* e) {
  return kb::guard("fake record", e, [&] {
    no_recording(d, "record");
    state(d).recording = new State::Graph;
    state(d).to = &state(d).recording->before;
  });
}
int only_if(const kb_device* d, const float* flag, kb_error* e) {
  return kb::guard("fake only_if", e, [&] {
    State& s = state(d);
    if (!s.recording || s.recording->flag) kb::fail("a condition needs a recording, and one condition is all");
    s.recording->flag = flag, s.to = &s.recording->guarded, s.conditional = true;
  });
}
int always(const kb_device* d, kb_error* e) {
  return kb::guard("fake always", e, [&] {
    State& s = state(d);
    if (!s.conditional) kb::fail("there is no condition");
    s.to = &s.recording->after, s.conditional = false;
  });
}
int recorded(const kb_device* d, void** graph, kb_error* e) {
  return kb::guard("fake recorded", e, [&] {
    State& s = state(d);
    if (!s.recording || (graph && s.conditional)) kb::fail("nothing whole is recorded");
    if (graph)
      *graph = s.recording;
    else
      delete s.recording;
    s.recording = nullptr, s.conditional = false;
  });
}
int replay(const kb_device* d, void* graph, kb_error* e) {
  return kb::guard("fake replay", e, [&] {
    no_recording(d, "replay");
    const auto& g = *static_cast<State::Graph*>(graph);
    Open open(state(d));
    for (const auto& f : g.before) f();
    if (!g.flag || *g.flag != 0)
      for (const auto& f : g.guarded) f();
    for (const auto& f : g.after) f();
  });
}
void discard(const kb_device*, void* graph) { delete static_cast<State::Graph*>(graph); }

const kb_backend backend{KB_STRUCT_SIZE(kb_backend, discard),
                         KB_CUDA,
                         open_device,
                         close_device,
                         memory,
                         alloc,
                         release,
                         upload,
                         download,
                         copy,
                         fill,
                         clear_tail,
                         wait,
                         stamp,
                         elapsed,
                         record,
                         only_if,
                         always,
                         recorded,
                         replay,
                         discard};
const void* extension(const char* name) { return std::strcmp(name, "kitbash.backend") ? nullptr : &backend; }

}  // namespace fake

namespace kb {
template <class K>
constexpr KernelPart<fake::On<K>> on_fake() {
  return {};
}
}  // namespace kb
// The CPU backend's lists say kernel<K>(): here each is the fake's.
#define kernel on_fake
KITBASH_PLUGIN_WITH(fake::extension, "backend-cuda", "0.1.0", "Apache-2.0", KB_PRODUCT_KERNELS, KB_ELEMENT_KERNELS,
                    kernel<AdamwCpu>())
