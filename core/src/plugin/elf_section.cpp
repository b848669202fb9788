#include "plugin/elf_section.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "kitbash/error.h"

namespace kitbash {
namespace {

constexpr const char* kSection = "kitbash";

const char* machine_name(uint16_t m) {
  switch (m) {
    case EM_386:
      return "x86 (32 bits)";
    case EM_ARM:
      return "arm";
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_PPC64:
      return "ppc64";
    case EM_RISCV:
      return "riscv";
    case EM_S390:
      return "s390";
    default:
      return nullptr;
  }
}

class File {
 public:
  explicit File(const std::string& path) {
    // O_NONBLOCK: a named pipe in a plugin folder must not block discovery.
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) kb::fail("cannot be opened: ", std::strerror(errno));
    struct stat s {};
    if (::fstat(fd_, &s) != 0 || !S_ISREG(s.st_mode)) {
      ::close(fd_);
      kb::fail("is not a regular file");
    }
    size_ = uint64_t(s.st_size);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(fd_); }

  uint64_t size() const { return size_; }

  void read(uint64_t offset, void* to, uint64_t n, const char* what) const {
    if (offset > size_ || n > size_ - offset)
      kb::fail("is damaged or cut short: its ", what, " (", n, " bytes at ", offset, ") lies outside a file of ", size_,
               " bytes. Copy or build it again");
    auto* p = static_cast<char*>(to);
    for (uint64_t got = 0; got < n;) {
      const ssize_t k = ::pread(fd_, p + got, n - got, off_t(offset + got));
      if (k < 0 && errno == EINTR) continue;
      if (k <= 0) kb::fail("cannot be read: ", k < 0 ? std::strerror(errno) : "it became shorter");
      got += uint64_t(k);
    }
  }

 private:
  int fd_ = -1;
  uint64_t size_ = 0;
};

Elf64_Ehdr read_header(const File& f) {
  unsigned char ident[EI_NIDENT] = {};
  if (f.size() < sizeof ident) kb::fail("is not a shared library (", f.size(), " bytes, no ELF header)");
  f.read(0, ident, sizeof ident, "ELF header");
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) kb::fail("is not a shared library (no ELF header)");
  if (ident[EI_CLASS] != ELFCLASS64) kb::fail("is not a 64-bit library; this kitbash is x86-64");
  if (ident[EI_DATA] != ELFDATA2LSB) kb::fail("is a big-endian library; this is x86-64");
  Elf64_Ehdr h;
  f.read(0, &h, sizeof h, "ELF header");
  if (h.e_machine != EM_X86_64) {
    const char* name = machine_name(h.e_machine);
    kb::fail("is built for ", name ? name : kb::text("machine ", h.e_machine), "; this is x86-64");
  }
  if (h.e_type != ET_DYN) kb::fail("is not a shared library (ELF type ", h.e_type, ", must be ", ET_DYN, ")");
  return h;
}

std::string read_section(const File& f) {
  const Elf64_Ehdr h = read_header(f);
  const std::string none =
      kb::text("is not a kitbash plugin (no '", kSection, "' section). Was it built with kitbash_add_plugin()?");
  if (h.e_shoff == 0 || h.e_shnum == 0) kb::fail(none);
  if (h.e_shentsize != sizeof(Elf64_Shdr))
    kb::fail("is damaged: entries of its section table have ", h.e_shentsize, " bytes, must be ", sizeof(Elf64_Shdr));
  if (h.e_shstrndx >= h.e_shnum)
    kb::fail("is damaged: its section names are section ", h.e_shstrndx, " of ", h.e_shnum);
  std::vector<Elf64_Shdr> sections(h.e_shnum);
  f.read(h.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr), "section table");

  const Elf64_Shdr& names = sections[h.e_shstrndx];
  const size_t name_bytes = std::strlen(kSection) + 1;
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_name > names.sh_size || name_bytes > names.sh_size - s.sh_name) continue;
    char name[16] = {};
    if (names.sh_offset > f.size()) kb::fail("is damaged or cut short: its section names lie outside the file");
    f.read(names.sh_offset + s.sh_name, name, name_bytes, "section names");
    if (std::memcmp(name, kSection, name_bytes) != 0) continue;
    if (s.sh_type != SHT_PROGBITS) kb::fail("is damaged: its manifest is a section of type ", s.sh_type);
    if (s.sh_size > kMaxManifest)
      kb::fail("has a manifest of ", s.sh_size, " bytes; at most ", kMaxManifest, " are read");
    std::string bytes(s.sh_size, '\0');
    f.read(s.sh_offset, bytes.data(), bytes.size(), "manifest");
    while (!bytes.empty() && bytes.back() == '\0') bytes.pop_back();  // padding of the linker
    if (bytes.empty()) kb::fail("has an empty manifest");
    return bytes;
  }
  kb::fail(none);
}

}  // namespace

ManifestSection read_manifest_section(const std::string& path) {
  ManifestSection m;
  try {
    m.bytes = read_section(File(path));
  } catch (const kb::Error& e) {
    m.problem = e.what();
  }
  return m;
}

}  // namespace kitbash
