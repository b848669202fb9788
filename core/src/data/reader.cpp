#include "data/reader.h"

#include <cmath>

#include "data/missing.h"
#include "graph/graph.h"
#include "graph/instance.h"
#include "kitbash/error.h"

namespace kitbash {

struct SourceReader::Impl {
  std::unique_ptr<Instance> instance;
  const kb_source* table = nullptr;
  void* reader = nullptr;
  ~Impl() {
    if (reader) table->close(reader);
  }
};

namespace {
std::string how_to_prepare(const ComponentConfig& c) {
  for (const MissingFile& m : missing_files(c))
    if (!m.prepare.empty()) return "; make it with: " + prepare_command(m.prepare);
  return "";
}
}  // namespace

SourceReader::SourceReader(const std::string& name, const ComponentConfig& c, Registry& registry,
                           const std::string& split)
    : impl_(std::make_unique<Impl>()) {
  const std::string at = c.where.text();
  where_ = kb::text("[data.sources.", name, at.empty() ? "" : " (" + at + ")", "] ");
  impl_->instance = create_instance(c, registry, &host_table());
  impl_->table = static_cast<const kb_source*>(service_of(*impl_->instance->table));
  const auto* t = impl_->table;
  if (!t || !KB_HAS(kb_source, t, close) || !t->open || !t->count || !t->sample || !t->close)
    kb::fail(where_, c.info->id(), ": the plugin must offer the source table, whole; rebuild it with this SDK");
  kb_error e{};
  if (const int rc = t->open(impl_->instance->self, split.c_str(), &impl_->reader, &e))
    throw kb::Error(where_ + e.message + how_to_prepare(c), uint32_t(rc));
  if (!impl_->reader) kb::fail(where_, c.info->id(), " opened '", split, "' but gave no reader");
  count_ = t->count(impl_->reader);
  if (count_ < 0) kb::fail(where_, c.info->id(), " must count at least 0 samples in '", split, "' but counts ", count_);
}
SourceReader::~SourceReader() = default;

void SourceReader::sample(uint64_t seed, int64_t index, SampleText& out) const {
  out.text.clear(), out.segments.clear();
  const kb_sample to{&out, [](void* ctx, const char* bytes, uint64_t n, double weight) {
                       if (!std::isfinite(weight) || weight < 0) return 1;
                       auto& s = *static_cast<SampleText*>(ctx);
                       if (n) s.text.append(bytes, n);
                       s.segments.push_back({s.text.size(), float(weight)});
                       return 0;
                     }};
  kb_error e{};
  if (const int rc = impl_->table->sample(impl_->reader, seed, index, to, &e))
    throw kb::Error(kb::text(where_, "sample ", index, ": ", e.message), uint32_t(rc));
}

}  // namespace kitbash
