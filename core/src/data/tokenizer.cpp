#include <cstring>

#include "data/stream.h"
#include "graph/graph.h"
#include "graph/instance.h"

namespace kitbash {
namespace {

template <class T>
kb_sink append_to(std::vector<T>& out) {
  return {&out, [](void* to, const void* data, uint64_t bytes) {
            if (bytes % sizeof(T)) return 1;
            auto& v = *static_cast<std::vector<T>*>(to);
            const size_t before = v.size();
            v.resize(before + bytes / sizeof(T));
            if (bytes) std::memcpy(v.data() + before, data, bytes);
            return 0;
          }};
}

}  // namespace

struct Tokenizer::Impl {
  std::unique_ptr<Instance> instance;
  const kb_tokenizer* table = nullptr;
  int64_t vocab = 0, bos = -1, eos = -1;

  int64_t special(const char* name) const {
    const int64_t id = table->special(instance->self, name);
    if (id < -1 || id >= vocab)
      kb::fail("[", instance->id(), "] the id of '", name, "' must be in [0, ", vocab, "), or -1 for none, but is ",
               id);
    return id;
  }
};

Tokenizer::Tokenizer(const ComponentConfig& c, Registry& registry) : impl_(std::make_unique<Impl>()) {
  impl_->instance = create_instance(c, registry, &host_table());
  impl_->table = static_cast<const kb_tokenizer*>(service_of(*impl_->instance->table));
  const auto* t = impl_->table;
  if (!t || !KB_HAS(kb_tokenizer, t, decode) || !t->vocab || !t->special || !t->encode || !t->decode)
    kb::fail("[", c.info->id(), "] the plugin must offer the tokenizer table, whole; rebuild it with this SDK");
  impl_->vocab = t->vocab(impl_->instance->self);
  if (impl_->vocab < 1 || impl_->vocab > INT32_MAX)
    kb::fail("[", c.info->id(), "] the vocabulary must have 1 to 2^31 - 1 ids but has ", impl_->vocab);
  impl_->bos = impl_->special("bos"), impl_->eos = impl_->special("eos");
}
Tokenizer::~Tokenizer() = default;
int64_t Tokenizer::vocab() const { return impl_->vocab; }
int64_t Tokenizer::bos() const { return impl_->bos; }
int64_t Tokenizer::eos() const { return impl_->eos; }

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode_onto(text, ids);
  return ids;
}
void Tokenizer::encode_onto(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  kb_error e{};
  if (const int rc = impl_->table->encode(impl_->instance->self, text.data(), text.size(), append_to(ids), &e))
    throw kb::Error("[" + impl_->instance->id() + "] " + e.message, uint32_t(rc));
  for (size_t i = before; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= impl_->vocab)
      kb::fail("[", impl_->instance->id(), "] an id must be in [0, ", impl_->vocab, ") but encoding gave ", ids[i]);
}
std::string Tokenizer::decode(const std::vector<int32_t>& ids) const {
  std::vector<char> text;
  kb_error e{};
  if (const int rc = impl_->table->decode(impl_->instance->self, ids.data(), ids.size(), append_to(text), &e))
    throw kb::Error("[" + impl_->instance->id() + "] " + e.message, uint32_t(rc));
  return {text.begin(), text.end()};
}

}  // namespace kitbash
