#include "plugin/catalog.h"

#include <stdlib.h>

#include "tests/plugin/fixture.h"

namespace kitbash {
namespace {

using test::error_of;
using test::Folder;
namespace fs = std::filesystem;

class Discovery : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("KITBASH_PLUGIN_PATH");
    ::setenv("XDG_DATA_HOME", (home / "data").c_str(), 1);
  }
  Folder home, folder;
};

TEST_F(Discovery, lists_places_in_order_and_says_what_each_holds) {
  const Folder a, b;
  const std::string plugin = a.plugin("test_sample");
  a.file("libother.so", "no plugin");
  fs::create_directory(a / "below");
  ::setenv("KITBASH_PLUGIN_PATH", (":" + b.path() + "::" + (b / "none") + ":").c_str(), 1);
  const auto places = search_places({a.path()});
  ASSERT_EQ(places.size(), 5u);
  EXPECT_EQ(places[0].origin, "--plugin-path");
  EXPECT_EQ(places[0].files, std::vector<std::string>{plugin});
  EXPECT_EQ(places[1].folder, b.path());
  EXPECT_EQ(places[1].origin, "KITBASH_PLUGIN_PATH");
  EXPECT_TRUE(places[1].exists);
  EXPECT_FALSE(places[2].exists);
  EXPECT_EQ(places[3].origin, "XDG_DATA_HOME");
  EXPECT_EQ(places[3].folder, home / "data/kitbash/plugins");
  EXPECT_EQ(places[4].origin, "prefix");
  EXPECT_EQ(places[4].folder,
            (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/kitbash/plugins").string());
}

TEST_F(Discovery, ignores_a_relative_data_folder) {
  ::setenv("XDG_DATA_HOME", "data", 1);
  ::setenv("HOME", home.path().c_str(), 1);
  EXPECT_EQ(search_places({})[0].folder, home / ".local/share/kitbash/plugins");
}

TEST_F(Discovery, finds_components_ops_and_kernels_without_loading) {
  const std::string path = folder.plugin("test_sample");
  const Catalog c = Catalog::discover({folder.path()});
  const ComponentInfo* linear = c.find("schedule", "linear");
  ASSERT_NE(linear, nullptr);
  EXPECT_EQ(linear->plugin->path, path);
  EXPECT_EQ(linear->fields[2].choices, (std::vector<std::string>{"plain", "fancy"}));
  EXPECT_EQ(linear->fields[2].was, "remark");
  EXPECT_EQ(c.find("schedule", "none"), nullptr);
  EXPECT_EQ(c.of_kind("activation").size(), 1u);
  EXPECT_EQ(c.with_op("sample_triple"), linear->plugin);
  EXPECT_EQ(c.with_op("none"), nullptr);
  EXPECT_EQ(c.with_kernel_for("sample_triple", "cpu").size(), 1u);
  EXPECT_TRUE(c.with_kernel_for("sample_triple", "cuda").empty());
  EXPECT_EQ(c.backend("tpu"), nullptr);
}

TEST_F(Discovery, warns_of_broken_plugins_by_name_and_ignores_other_files) {
  folder.plugin("test_sample");
  const std::string broken = folder.file("libkb_broken.so", "text");
  folder.file("libfftw3f.so", "text");
  folder.file("libkb_note.txt", "text");
  fs::create_directory(folder / "below");
  folder.file("below/libkb_deep.so", "text");
  const Catalog c = Catalog::discover({folder.path()});
  EXPECT_EQ(c.warnings(), std::vector<std::string>{broken + " is not a shared library (4 bytes, no ELF header)"});
  EXPECT_NE(c.find("schedule", "linear"), nullptr);
}

TEST_F(Discovery, of_exact_files_throws_on_the_first_broken_one) {
  const std::string good = folder.plugin("test_sample"), broken = folder.file("libkb_broken.so", std::string(99, 'x'));
  EXPECT_EQ(Catalog::from_files({good}).plugins().size(), 1u);
  EXPECT_EQ(error_of([&] {
              Catalog::from_files({good, broken});
            }),
            broken + " is not a shared library (no ELF header)");
}

TEST_F(Discovery, counts_a_file_reached_by_two_places_once) {
  folder.plugin("test_sample");
  const Folder other;
  fs::create_symlink(folder / "libkb_test_sample.so", other / "libkb_link.so");
  const Catalog c = Catalog::discover({folder.path(), other.path(), folder.path()});
  EXPECT_EQ(c.plugins().size(), 1u);
  EXPECT_NE(c.find("schedule", "linear"), nullptr);
}

TEST_F(Discovery, refuses_a_folder_that_others_can_write_once) {
  folder.plugin("test_sample", "a");
  folder.plugin("test_sample", "b");
  fs::permissions(folder.path(), fs::perms(0770));
  const Catalog c = Catalog::discover({folder.path()});
  EXPECT_EQ(c.warnings(),
            std::vector<std::string>{folder.path() + " is writable by group; refuse to load (chmod go-w '" +
                                     folder.path() + "')"});
  EXPECT_TRUE(c.plugins().empty());
}

TEST_F(Discovery, warns_of_a_plugin_path_that_is_no_folder) {
  EXPECT_EQ(Catalog::discover({folder / "none"}).warnings(),
            std::vector<std::string>{(folder / "none") + " (--plugin-path) is not a folder that can be read"});
}

}  // namespace
}  // namespace kitbash
