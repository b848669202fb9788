#include "plugin/elf_section.h"

#include <elf.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>
#include <random>

#include "tests/plugin/fixture.h"

namespace kitbash {
namespace {

using test::content;
using test::Folder;

std::string problem_of(const std::string& bytes) {
  const Folder f;
  return read_manifest_section(f.file("x.so", bytes)).problem;
}

class ElfSection : public ::testing::Test {
 protected:
  Folder folder;
  std::string good = content(folder.plugin("test_sample"));
  Elf64_Ehdr header() const {
    Elf64_Ehdr h;
    std::memcpy(&h, good.data(), sizeof h);
    return h;
  }
  // The section's header, and where it lies in the file.
  size_t manifest_at() const {
    const Elf64_Ehdr h = header();
    const auto* s = reinterpret_cast<const Elf64_Shdr*>(good.data() + h.e_shoff);
    for (int i = 0; i < h.e_shnum; ++i)
      if (!std::strcmp(good.data() + s[h.e_shstrndx].sh_offset + s[i].sh_name, "kitbash"))
        return h.e_shoff + size_t(i) * sizeof *s;
    return 0;
  }
  std::string with_manifest_header(const std::function<void(Elf64_Shdr&)>& change) const {
    std::string b = good;
    Elf64_Shdr s;
    std::memcpy(&s, b.data() + manifest_at(), sizeof s);
    change(s);
    std::memcpy(b.data() + manifest_at(), &s, sizeof s);
    return b;
  }
};

TEST_F(ElfSection, gives_the_text_of_a_plugin) {
  const ManifestSection m = read_manifest_section(folder / "libkb_test_sample.so");
  EXPECT_EQ(m.problem, "");
  EXPECT_EQ(m.bytes.rfind("kitbash = 1\nneeds = 0\nbuilt_minor = 0\nplugin = \"sample\"\n", 0), 0u) << m.bytes;
}

TEST_F(ElfSection, refuses_a_file_cut_at_any_length) {
  for (size_t n = 0; n < good.size(); n += n < 128 ? 1 : 997) {
    const std::string p = problem_of(good.substr(0, n));
    EXPECT_TRUE(p.rfind("is damaged or cut short: ", 0) == 0 || p.rfind("is not a shared library (", 0) == 0)
        << n << ": " << p;
  }
  EXPECT_NE(problem_of(good.substr(0, good.size() - 1)), "");
}

TEST_F(ElfSection, checks_size_and_offset_before_it_reads) {
  EXPECT_EQ(problem_of(with_manifest_header([](auto& s) { s.sh_size = kMaxManifest + 1; })),
            "has a manifest of 65537 bytes; at most 65536 are read");
  EXPECT_EQ(problem_of(with_manifest_header([](auto& s) { s.sh_size = UINT64_MAX; })),
            "has a manifest of 18446744073709551615 bytes; at most 65536 are read");
  const std::string end = " lies outside a file of " + std::to_string(good.size()) + " bytes. Copy or build it again";
  EXPECT_EQ(problem_of(with_manifest_header([](auto& s) { s.sh_size = 10, s.sh_offset = UINT64_MAX - 4; })),
            "is damaged or cut short: its manifest (10 bytes at 18446744073709551611)" + end);
  EXPECT_EQ(problem_of(with_manifest_header([](auto& s) { s.sh_size = 0; })), "has an empty manifest");
  EXPECT_EQ(problem_of(with_manifest_header([](auto& s) { s.sh_type = SHT_NOBITS; })),
            "is damaged: its manifest is a section of type 8");
}

TEST_F(ElfSection, names_folders_pipes_and_absent_files) {
  EXPECT_EQ(read_manifest_section(folder / "none.so").problem, "cannot be opened: No such file or directory");
  EXPECT_EQ(read_manifest_section(folder.path()).problem, "is not a regular file");
  ASSERT_EQ(::mkfifo((folder / "pipe.so").c_str(), 0600), 0);
  EXPECT_EQ(read_manifest_section(folder / "pipe.so").problem, "is not a regular file");
}

TEST_F(ElfSection, survives_random_damage_of_headers_and_section_table) {
  std::mt19937 random(7);
  const Elf64_Ehdr h = header();
  const size_t table = h.e_shoff, table_bytes = size_t(h.e_shnum) * sizeof(Elf64_Shdr);
  for (int round = 0; round < 2000; ++round) {
    std::string b = good;
    for (int k = 0; k < 4; ++k) {
      const size_t at = random() % 2 ? random() % sizeof h : table + random() % table_bytes;
      b[at] = char(random());
    }
    const ManifestSection m =
        read_manifest_section(folder.file("damaged.so", b));  // under ASan: no access out of bounds
    EXPECT_NE(m.bytes.empty(), m.problem.empty());
    EXPECT_LE(m.bytes.size(), kMaxManifest);
  }
}

}  // namespace
}  // namespace kitbash
