#include "plugin/registry.h"

#include "kitbash/op.h"
#include "tests/plugin/fixture.h"
#include "tests/plugin/probe.h"

namespace kitbash {
namespace {

using test::error_of;
using test::Folder;

struct Other {  // an op of the host with the name of a plugin's
  static constexpr const char* name = "sample_triple";
  void infer(kb::Infer& s) const { s.like(s.in(0, "x")); }
};

// Every build of the sample by every compiler must behave the same through the seam (CMakeLists.txt).
class SampleBuiltBy : public ::testing::TestWithParam<std::string> {
 protected:
  Folder folder;
  std::string path = folder.plugin(GetParam());
  Registry registry{Catalog::from_files({path})};
  const kb_component& linear() { return registry.component(*registry.catalog().find("schedule", "linear")); }
};
INSTANTIATE_TEST_SUITE_P(, SampleBuiltBy, ::testing::Values(KITBASH_SAMPLES), [](const auto& i) { return i.param; });

TEST_P(SampleBuiltBy, creates_and_serves_a_component) {
  const kb_component& c = linear();
  EXPECT_STREQ(c.name, "linear");
  const kb_attr config[] = {
      {"floor", KB_FLOAT, 1, {.f = 0.25}}, {"power", KB_INT, 1, {.i = 1}}, {"note", KB_TEXT, 1, {.s = "plain"}}};
  void* self = nullptr;
  kb_error e{};
  ASSERT_EQ(c.create(nullptr, config, 3, &self, &e), KB_OK) << e.message;
  const auto* s = static_cast<const kb_schedule*>(service_of(c));
  ASSERT_NE(s, nullptr);
  EXPECT_DOUBLE_EQ(s->at(self, 50, 100), 0.625);
  c.destroy(self);
}

TEST_P(SampleBuiltBy, carries_the_words_of_its_errors_across) {
  const kb_attr config[] = {
      {"floor", KB_FLOAT, 1, {.f = 0.75}}, {"power", KB_INT, 1, {.i = 1}}, {"note", KB_TEXT, 1, {.s = "plain"}}};
  void* self = nullptr;
  kb_error e{};
  EXPECT_EQ(linear().create(nullptr, config, 3, &self, &e), KB_INVALID);
  EXPECT_STREQ(e.message, "'floor' must be at most 0.5 but got 0.75");
  EXPECT_EQ(linear().create(nullptr, config, 2, &self, &e), KB_INVALID);
  EXPECT_STREQ(e.message, "got 2 keys; the manifest lists 3");
  EXPECT_EQ(self, nullptr);
}

TEST_P(SampleBuiltBy, runs_its_kernel) {
  const OpDef* op = registry.op("sample_triple");
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->provider, "sample");
  EXPECT_EQ(op->table->attr[0].v.f, 3);
  const auto& kernels = registry.kernels("sample_triple", KB_CPU);
  ASSERT_EQ(kernels.size(), 1u);
  double x[3] = {1, -2, 0.5}, y[3] = {};
  kb_tensor in{}, out{};
  in.data = x, out.data = y;
  in.type.dtype = KB_F64, in.type.rank = 1, in.type.shape[0] = 3;
  out.type = in.type;
  kb_call c{};
  c.struct_size = sizeof c;
  c.attr = op->table->attr, c.n_attr = op->table->n_attr;
  c.in = &in, c.n_in = 1, c.out = &out, c.n_out = 1;
  kb_error e{};
  ASSERT_EQ(kernels[0].table->launch(nullptr, &c, &e), KB_OK) << e.message;
  EXPECT_EQ(y[0], 3);
  EXPECT_EQ(y[1], -6);
  EXPECT_EQ(y[2], 1.5);
}

TEST(Registry, loads_on_first_use_and_once) {
  const Folder f;
  f.plugin("test_sample");
  Registry r(Catalog::discover({f.path()}));
  EXPECT_TRUE(r.loaded().empty());
  EXPECT_EQ(r.op("unknown"), nullptr);
  EXPECT_TRUE(r.kernels("unknown", KB_CPU).empty());
  EXPECT_TRUE(r.kernels("sample_triple", KB_CUDA).empty());
  EXPECT_TRUE(r.loaded().empty());
  const kb_op* first = r.op("sample_triple")->table;
  EXPECT_EQ(r.op("sample_triple")->table, first);
  r.component(*r.catalog().find("activation", "half"));
  EXPECT_EQ(r.loaded().size(), 1u);
}

TEST(Registry, names_both_providers_of_an_op) {
  const Folder f;
  const std::string a = f.plugin("test_sample", "a"), b = f.plugin("test_sample", "b");
  {
    Registry r(Catalog::from_files({a, b}));
    EXPECT_EQ(error_of([&] { r.op("sample_triple"); }),
              b + " holds op 'sample_triple', which is already provided by " + a + ". Remove one of the two files");
    r.load(*r.catalog().plugins()[0]);
    EXPECT_EQ(
        error_of([&] { r.load(*r.catalog().plugins()[1]); }),
        b + " holds op 'sample_triple', which is already provided by " + a + ". Rename it, or remove one of the two");
    EXPECT_EQ(r.loaded().size(), 1u);
  }
  Registry r(Catalog::from_files({a}));
  r.add_base_op(kb::op_table<Other>());
  EXPECT_EQ(r.op("sample_triple")->provider, "core");
  EXPECT_EQ(error_of([&] { r.load(*r.catalog().plugins()[0]); }),
            a + " holds op 'sample_triple', which is already provided by core. Rename it, or remove one of the two");
  EXPECT_EQ(error_of([&] { r.add_base_op(kb::op_table<Other>()); }),
            "[registry] op 'sample_triple' is already provided by core; base ops are added first, and once");
}

TEST(Registry, sees_that_a_file_has_changed_since_it_was_listed) {
  const Folder f;
  const std::string path = f.plugin("test_sample");
  Registry r(Catalog::from_files({path}));
  std::filesystem::rename(f.plugin("test_probe", "new"), path);
  EXPECT_EQ(error_of([&] { r.load(*r.catalog().plugins()[0]); }),
            path + " has changed since its manifest was read. Start kitbash again");
}

TEST(Registry, sorts_kernels_by_priority) {
  const Folder f;
  Registry r(Catalog::from_files({f.plugin("test_probe", "slow"), f.plugin("test_probe_fast", "fast")}));
  const auto& k = r.kernels("matmul", KB_CPU);
  ASSERT_EQ(k.size(), 2u);
  EXPECT_EQ(k[0].provider, "probe-fast");
  EXPECT_EQ(k[1].provider, "probe");
}

TEST(Registry, shuts_plugins_down_once_and_last_first) {
  const Folder f;
  test::Probe *slow = nullptr, *fast = nullptr;
  int clock = 0;
  {
    Registry outer(Catalog::from_files({f.plugin("test_probe", "slow"), f.plugin("test_probe_fast", "fast")}));
    const auto probe_of = [](Registry& r, size_t i) {
      const void* p = r.load(*r.catalog().plugins()[i]).table->extension("test.probe");
      return static_cast<test::Probe*>(const_cast<void*>(p));
    };
    slow = probe_of(outer, 0), fast = probe_of(outer, 1);
    slow->clock = fast->clock = &clock;
    {
      Registry inner(Catalog::from_files({f / "libkb_slow.so"}));
      EXPECT_EQ(probe_of(inner, 0), slow);
    }
    EXPECT_EQ(clock, 0) << "shut down while another registry works with it";
  }
  EXPECT_EQ(fast->stamp, 1);
  EXPECT_EQ(slow->stamp, 2);
  EXPECT_EQ(clock, 2);
}

TEST(Registry, says_that_a_backend_is_absent) {
  Registry r(Catalog::from_manifests({}));
  EXPECT_EQ(
      error_of([&] { r.backend(KB_CUDA); }),
      "[registry] there must be a plugin 'backend-cuda' among the 0 plugins found, but there is none. `kitbash plugin "
      "path` lists the places that are searched; it is built where there is nvcc");
}

TEST(Registry, checks_the_table_of_a_backend) {
  const Folder f;
  const std::string path = f.plugin("test_backend");
  Registry r(Catalog::from_files({path}));
  EXPECT_EQ(error_of([&] { r.backend(KB_CPU); }),
            path + " is named as the backend for cpu, but its table is for device kind 1");
}

}  // namespace
}  // namespace kitbash
