// Every way in which a plugin can be broken, and the sentence that its user gets.
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "plugin/registry.h"
#include "tests/plugin/fixture.h"

namespace kitbash {
namespace {

using test::content;
using test::error_of;
using test::Folder;
namespace fs = std::filesystem;

class Fault : public ::testing::Test {
 protected:
  Folder folder;

  // Lists exactly this file and loads it; the message without the path that it must begin with.
  std::string refusal_of(const std::string& path) const {
    const std::string e = error_of([&] {
      Registry r(Catalog::from_files({path}));
      r.load(*r.catalog().plugins().at(0));
    });
    if (e.rfind(path + " ", 0) != 0) return e;
    return e.substr(path.size() + 1);
  }
  std::string refusal_of_built(const std::string& name) const { return refusal_of(folder.plugin("test_" + name)); }
};

TEST_F(Fault, other_abi) {
  EXPECT_EQ(refusal_of_built("other_abi"),
            "speaks plugin ABI 2; this kitbash speaks 1. Rebuild it with this SDK, or use kitbash 2.x");
}

TEST_F(Fault, other_abi_is_a_warning_when_found_and_an_error_when_used) {
  const std::string path = folder.plugin("test_other_abi");
  const std::string sentence =
      path + " speaks plugin ABI 2; this kitbash speaks 1. Rebuild it with this SDK, or use kitbash 2.x";
  Registry r(Catalog::discover({folder.path()}));
  EXPECT_EQ(r.catalog().warnings(), std::vector<std::string>{sentence});
  const ComponentInfo* half = r.catalog().find("activation", "half");
  ASSERT_NE(half, nullptr);
  EXPECT_EQ(error_of([&] { r.component(*half); }), sentence);
}

TEST_F(Fault, needs_a_newer_minor) {
  EXPECT_EQ(refusal_of_built("newer_minor"),
            "needs plugin ABI 1.7 (built with 1.9); this kitbash has 1.0. Update kitbash to one that has at least 1.7");
}

TEST_F(Fault, undefined_symbol) {
  EXPECT_EQ(refusal_of_built("undefined_symbol"),
            "cannot load: undefined symbol 'nowhere_defined'. Link what defines it into the plugin; "
            "kitbash_add_plugin() finds "
            "this at link time");
}

TEST_F(Fault, absent_library) {
  // The library that it was linked with is not where the loader looks.
  const std::string path = folder.plugin("test_needs_library");
  EXPECT_EQ(refusal_of(path),
            "cannot load: it needs the library 'libkitbash_absent.so', which is not found. Install it, or link "
            "it statically into the plugin (ldd '" +
                path + "' lists all that it needs)");
}

TEST_F(Fault, no_manifest) {
  EXPECT_EQ(refusal_of_built("no_manifest"),
            "is not a kitbash plugin (no 'kitbash' section). Was it built with kitbash_add_plugin()?");
}

TEST_F(Fault, manifest_counts_differ_from_the_table_and_all_differences_are_shown) {
  EXPECT_EQ(refusal_of_built("raw_count"),
            "is refused, for 2 reasons:\n"
            "  it disagrees with itself: manifest lists 2 components, the table has 1. Rebuild it\n"
            "  it disagrees with itself: manifest lists 1 op, the table has 0. Rebuild it");
}

TEST_F(Fault, manifest_names_differ_from_the_table) {
  EXPECT_EQ(refusal_of_built("raw_name"),
            "disagrees with itself: component 1 is activation.raw in the manifest, activation.cooked in the table. "
            "Rebuild it");
}

TEST_F(Fault, manifest_kernel_differs_from_the_table_and_lacks_a_function) {
  EXPECT_EQ(refusal_of_built("raw_kernel"),
            "is refused, for 2 reasons:\n"
            "  it disagrees with itself: kernel 1 is 'fast' for op 'matmul' on cpu in the manifest, 'fast' for op "
            "'matmul' on "
            "cuda in the table. Rebuild it\n"
            "  it has no function 'release' in its table of kernel 'fast' for op 'matmul' on cpu, which has 'prepare'");
}

TEST_F(Fault, table_of_another_abi_than_the_manifest) {
  EXPECT_EQ(refusal_of_built("raw_table_abi"),
            "disagrees with itself: the plugin ABI is 1 in the manifest, 3 in the table. Rebuild it");
}

TEST_F(Fault, table_without_required_functions) {
  EXPECT_EQ(refusal_of_built("raw_functions"),
            "is refused, for 3 reasons:\n"
            "  it has no function 'create' in its table of activation.raw\n"
            "  it has no function 'destroy' in its table of activation.raw\n"
            "  it has neither 'build' nor 'service' in its table of activation.raw");
}

TEST_F(Fault, table_too_short_for_a_required_field) {
  EXPECT_EQ(refusal_of_built("raw_short_table"),
            "has a table of 8 bytes; at least 60 are needed. Set struct_size with KB_STRUCT_SIZE");
  EXPECT_EQ(refusal_of_built("raw_short_component"),
            "has a table whose component 1 is 40 bytes; at least 48 are needed. Set struct_size with KB_STRUCT_SIZE");
}

TEST_F(Fault, table_or_list_is_absent) {
  EXPECT_EQ(refusal_of_built("raw_null_table"), "gives no table: kitbash_plugin_v1() returned null");
  EXPECT_EQ(refusal_of_built("raw_null_list"), "has 1 component in its table, but no list of them (null)");
  EXPECT_EQ(refusal_of_built("raw_no_entry"),
            "has no function kitbash_plugin_v1. Does its source end with KITBASH_PLUGIN(...), and is it linked with "
            "kitbash_add_plugin()?");
}

TEST_F(Fault, older_and_shorter_tables_are_none) {
  Registry r(Catalog::from_files({folder.plugin("test_raw")}));
  const kb_component& c = r.component(*r.catalog().find("activation", "raw"));
  EXPECT_FALSE(KB_HAS(kb_component, &c, service));
  EXPECT_EQ(service_of(c), nullptr);
  void* self = nullptr;
  kb_error e{};
  EXPECT_EQ(c.create(nullptr, nullptr, 0, &self, &e), KB_OK);
  EXPECT_NE(self, nullptr);
  c.destroy(self);
}

TEST_F(Fault, exceptions_in_create_come_out_as_words) {
  Registry r(Catalog::from_files({folder.plugin("test_throws")}));
  const kb_component& c = r.component(*r.catalog().find("activation", "thrower"));
  const auto create = [&](int64_t how, kb_error& e) {
    const kb_attr config{"how", KB_INT, 1, {.i = how}};
    void* self = nullptr;
    const int code = c.create(nullptr, &config, 1, &self, &e);
    if (self) c.destroy(self);
    EXPECT_EQ(self != nullptr, code == KB_OK);
    return code;
  };
  kb_error e{};
  EXPECT_EQ(create(0, e), KB_OK);
  EXPECT_EQ(create(1, e), KB_INVALID);
  EXPECT_STREQ(e.message, "'how' must not be 1 but got 1");
  EXPECT_EQ(create(2, e), KB_INTERNAL);
  EXPECT_STREQ(e.message, "index 7 of 3 (thrown in create)");
  EXPECT_EQ(create(3, e), KB_INTERNAL);
  EXPECT_STREQ(e.message, "unknown exception in create");
}

TEST_F(Fault, no_elf_file) {
  EXPECT_EQ(refusal_of(folder.file("libkb_text.so", "INPUT(libsomething.so)\n")),
            "is not a shared library (no ELF header)");
  EXPECT_EQ(refusal_of(folder.file("libkb_empty.so", "")), "is not a shared library (0 bytes, no ELF header)");
}

TEST_F(Fault, cut_short) {
  const std::string all = content(folder.plugin("test_sample"));
  Elf64_Ehdr h;
  std::memcpy(&h, all.data(), sizeof h);
  EXPECT_EQ(refusal_of(folder.file("libkb_cut.so", all.substr(0, all.size() / 2))),
            kb::text("is damaged or cut short: its section table (", h.e_shnum * sizeof(Elf64_Shdr), " bytes at ",
                     h.e_shoff, ") lies outside a file of ", all.size() / 2, " bytes. Copy or build it again"));
}

TEST_F(Fault, other_machine_word_size_or_file_type) {
  const std::string all = content(folder.plugin("test_sample"));
  const auto patched = [&](size_t at, char value) {
    std::string b = all;
    b[at] = value;
    return refusal_of(folder.file("libkb_patched.so", b));
  };
  EXPECT_EQ(patched(offsetof(Elf64_Ehdr, e_machine), char(EM_AARCH64)), "is built for aarch64; this is x86-64");
  EXPECT_EQ(patched(offsetof(Elf64_Ehdr, e_machine), 1), "is built for machine 1; this is x86-64");
  EXPECT_EQ(patched(EI_CLASS, ELFCLASS32), "is not a 64-bit library; this kitbash is x86-64");
  EXPECT_EQ(patched(EI_DATA, ELFDATA2MSB), "is a big-endian library; this is x86-64");
  EXPECT_EQ(patched(offsetof(Elf64_Ehdr, e_type), ET_EXEC), "is not a shared library (ELF type 2, must be 3)");
}

TEST_F(Fault, writable_by_others) {
  const std::string path = folder.plugin("test_sample");
  const std::string todo = "; refuse to load (chmod go-w '" + path + "')";
  fs::permissions(path, fs::perms(0757));
  EXPECT_EQ(refusal_of(path), "is writable by everyone" + todo);
  fs::permissions(path, fs::perms(0775));
  EXPECT_EQ(refusal_of(path), "is writable by group" + todo);
  fs::permissions(path, fs::perms(0777));
  EXPECT_EQ(refusal_of(path), "is writable by group and everyone" + todo);
}

TEST_F(Fault, in_a_folder_writable_by_others) {
  const std::string path = folder.plugin("test_sample");
  fs::permissions(folder.path(), fs::perms(0777));
  EXPECT_EQ(refusal_of(path), "lies in a folder that is writable by group and everyone; refuse to load (chmod go-w '" +
                                  folder.path() + "')");
}

TEST_F(Fault, becomes_writable_after_it_was_listed) {
  const std::string path = folder.plugin("test_sample");
  Registry r(Catalog::from_files({path}));
  fs::permissions(path, fs::perms(0777));
  EXPECT_EQ(error_of([&] { r.load(*r.catalog().plugins()[0]); }),
            path + " is writable by group and everyone; refuse to load (chmod go-w '" + path + "')");
}

TEST_F(Fault, of_another_user) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const std::string path = folder.plugin("test_sample");
  ASSERT_EQ(::chown(path.c_str(), 12345, gid_t(-1)), 0);
  EXPECT_EQ(refusal_of(path),
            "belongs to user 12345, which is neither you (0) nor root; refuse to load (copy it to a folder of "
            "yours, or chown it)");
}

TEST_F(Fault, several_at_once_are_all_told) {
  const std::string path = folder.plugin("test_other_abi");
  fs::permissions(path, fs::perms(0757));
  EXPECT_EQ(refusal_of(path),
            "is refused, for 2 reasons:\n"
            "  it is writable by everyone; refuse to load (chmod go-w '" +
                path +
                "')\n"
                "  it speaks plugin ABI 2; this kitbash speaks 1. Rebuild it with this SDK, or use kitbash 2.x");
}

TEST_F(Fault, one_component_in_two_files_is_an_error_when_it_is_used) {
  const std::string a = folder.plugin("test_sample", "a"), b = folder.plugin("test_sample", "b");
  const Catalog c = Catalog::discover({folder.path()});
  EXPECT_TRUE(c.warnings().empty());
  EXPECT_EQ(error_of([&] { c.find("schedule", "linear"); }),
            b + " holds schedule.linear, which is already provided by " + a + ". Remove one of the two files");
  Registry r(Catalog::discover({folder.path()}));
  EXPECT_EQ(error_of([&] { r.component(*r.catalog().of_kind("schedule").at(0)); }),
            b + " holds schedule.linear, which is already provided by " + a + ". Remove one of the two files");
}

}  // namespace
}  // namespace kitbash
