// Damage is found before the first byte of the store changes, and the message says where it is.
#include <random>

#include "base/safetensors.h"
#include "checkpoint/manifest.h"
#include "fixture.h"

namespace kitbash {
namespace {

class Corruption : public ::testing::Test {
 protected:
  Corruption() {
    declare_all(a), declare_all(b);
    a.fill(1), b.fill(2);
    // Small shards, so that there are several.
    path = CheckpointFolder(t.path(), 3, {.shard_bytes = 2000, .files = nullptr}).save(a.memory, info_at(1));
    for (const auto& f : fs::directory_iterator(path)) files.push_back(f.path().filename().string());
    std::sort(files.begin(), files.end());
  }
  // The error of loading; the store must be as it was.
  std::string refused() {
    const auto before = b.bytes(false);
    const std::string e = error_of([&] { load_checkpoint(path, b.memory); });
    EXPECT_EQ(before, b.bytes(false)) << e;
    EXPECT_NE(error_of([&] { verify_checkpoint(path); }), "");
    return e;
  }
  // As a program with a fault, or a person with a tool, would write it: checksums agree with the bytes.
  void sign(Manifest m) {
    for (FileRecord& f : m.files) {
      const std::string bytes = slurp(path + "/" + f.name);
      f.bytes = int64_t(bytes.size());
      f.digest = xxh3(bytes);
    }
    const std::string bytes = encode_manifest(m);
    spit(path + "/" + kManifestFile, bytes);
    spit(path + "/" + kManifestSum, manifest_sum(bytes));
  }

  TempFolder t;
  Values a, b;
  std::string path;
  std::vector<std::string> files;
};

TEST_F(Corruption, EveryOneOf200FlippedBitsIsCaughtAndNamed) {
  const Manifest m = open_manifest(path);
  std::vector<std::pair<std::string, size_t>> sizes;
  size_t total = 0;
  for (const std::string& f : files) sizes.push_back({f, fs::file_size(path + "/" + f)}), total += sizes.back().second;
  std::mt19937_64 random(20261130);
  int in_tensors = 0, in_headers = 0, in_manifest = 0;
  for (int i = 0; i < 200; ++i) {
    // Every second one by file, so that small files get their share.
    std::string file;
    size_t at = 0;
    if (i % 2) {
      const auto& f = sizes[random() % sizes.size()];
      file = f.first, at = random() % f.second;
    } else {
      at = random() % total;
      for (const auto& [name, n] : sizes) {
        file = name;
        if (at < n) break;
        at -= n;
      }
    }
    const std::string whole = slurp(path + "/" + file);
    std::string bad = whole;
    bad[at] = char(bad[at] ^ 1 << random() % 8);
    spit(path + "/" + file, bad);
    const std::string e = refused();
    EXPECT_TRUE(contains(e, file)) << file << " byte " << at << ": " << e;
    bool inside = false;
    for (const TensorRecord& tensor : m.tensors)
      for (const PieceRecord& p : tensor.pieces)
        if (p.file == file && int64_t(at) >= p.file_offset && int64_t(at) < p.file_offset + p.bytes) {
          EXPECT_TRUE(contains(e, file + ": " + tensor.name + "]")) << e;
          inside = true;
        }
    inside ? ++in_tensors : contains(file, "manifest") ? ++in_manifest : ++in_headers;
    spit(path + "/" + file, whole);
  }
  EXPECT_GT(in_tensors, 20);
  EXPECT_GT(in_headers, 20);
  EXPECT_GT(in_manifest, 20);
  load_checkpoint(path, b.memory);
  EXPECT_EQ(a.bytes(), b.bytes());
}

TEST_F(Corruption, ATruncatedOrLongerFileIsNamed) {
  for (const std::string& file : files) {
    const std::string whole = slurp(path + "/" + file);
    for (size_t n : {size_t(0), size_t(1), size_t(7), size_t(8), size_t(9), whole.size() / 2, whole.size() - 1}) {
      spit(path + "/" + file, whole.substr(0, n));
      EXPECT_TRUE(contains(refused(), file)) << file << " " << n;
    }
    spit(path + "/" + file, whole + '\0');
    EXPECT_TRUE(contains(refused(), file)) << file;
    spit(path + "/" + file, whole);
  }
}

TEST_F(Corruption, AMissingFileIsNamed) {
  for (const std::string& file : files) {
    fs::rename(path + "/" + file, t.path() + "/away");
    EXPECT_TRUE(contains(refused(), file));
    fs::rename(t.path() + "/away", path + "/" + file);
  }
}

TEST_F(Corruption, SwappedShardsAreCaught) {
  std::vector<std::string> shards;
  for (const std::string& f : files)
    if (f.ends_with(".safetensors")) shards.push_back(f);
  ASSERT_GE(shards.size(), 3u);
  for (size_t i = 0; i + 1 < shards.size(); ++i) {
    const std::string x = path + "/" + shards[i], y = path + "/" + shards[i + 1], z = t.path() + "/z";
    fs::rename(x, z), fs::rename(y, x), fs::rename(z, y);
    EXPECT_TRUE(contains(refused(), shards[i]));
    fs::rename(x, z), fs::rename(y, x), fs::rename(z, y);
  }
}

TEST_F(Corruption, ALinkInPlaceOfAShardIsRefused) {
  const std::string file = path + "/" + files.back();
  fs::rename(file, t.path() + "/elsewhere");
  fs::create_symlink(t.path() + "/elsewhere", file);
  EXPECT_TRUE(contains(refused(), "must be a regular file"));
}

TEST_F(Corruption, AManifestThatLeavesItsFolderIsRefused) {
  for (const char* name : {"../x.safetensors", "/etc/hostname", "..", "", "a/b"}) {
    Manifest m = open_manifest(path);
    const std::string old = m.files[0].name;
    m.files[0].name = name;
    for (TensorRecord& x : m.tensors)
      for (PieceRecord& p : x.pieces)
        if (p.file == old) p.file = name;
    EXPECT_TRUE(contains(error_of([&] { decode_manifest(encode_manifest(m), "m"); }), "without a folder")) << name;
  }
}

TEST_F(Corruption, ATensorThatOnlyTheFileHasIsNamed) {
  const std::string file = "optimizer-00001-of-00002.safetensors";
  ASSERT_TRUE(fs::exists(path + "/" + file));
  Manifest m = open_manifest(path);
  std::vector<TensorToWrite> all;
  const SafetensorsFile f = SafetensorsFile::open(path + "/" + file);
  for (const auto& [name, x] : f.tensors()) all.push_back({name, x.dtype, x.shape, x.data});
  const float one = 1;
  all.push_back({"zz.extra", "F32", {1}, &one});
  write_safetensors(t.path() + "/new", all, f.metadata());
  const SafetensorsFile g = SafetensorsFile::open(t.path() + "/new");
  const int64_t base = int64_t(fs::file_size(t.path() + "/new")) - int64_t(g.at("zz.extra").end);
  for (TensorRecord& x : m.tensors)
    for (PieceRecord& p : x.pieces)
      if (p.file == file) p.file_offset = base + int64_t(g.at(p.key).begin);
  fs::rename(t.path() + "/new", path + "/" + file);
  sign(m);
  EXPECT_TRUE(contains(refused(), file + ": zz.extra] is in the file but not in the manifest"));
}

TEST_F(Corruption, AManifestThatDisagreesWithAFileIsNamed) {
  const Manifest good = open_manifest(path);
  auto with = [&](auto&& change) {
    Manifest m = good;
    change(m.tensors[0]);
    sign(m);
    return refused();
  };
  EXPECT_TRUE(contains(with([](TensorRecord& x) { std::swap(x.shape[0], x.shape[1]); }), "embed.weight"));
  EXPECT_TRUE(contains(with([](TensorRecord& x) { x.dtype = KB_I32; }), "must be I32 by the manifest but is F32"));
  EXPECT_TRUE(contains(with([](TensorRecord& x) { x.pieces[0].key = "other"; }), "but not in the file"));
  EXPECT_TRUE(contains(with([](TensorRecord& x) { x.pieces[0].file_offset -= 4; }), "lies elsewhere"));
  EXPECT_TRUE(contains(with([](TensorRecord& x) { x.pieces.clear(); }), "must cover 444 elements but cover 0"));
  EXPECT_TRUE(contains(with([](TensorRecord& x) { x.pieces[0].bytes -= 4; }), "must cover 444 elements but cover 443"));
  EXPECT_TRUE(contains(with([](TensorRecord& x) { x.pieces.push_back(x.pieces[0]); }), "where 444 is due"));
}

TEST_F(Corruption, ANewerFormatSaysSo) {
  std::string bytes = slurp(path + "/" + kManifestFile);
  ASSERT_EQ(bytes[0], 8);  // field 1, varint: the format
  bytes[1] = 2;
  spit(path + "/" + kManifestFile, bytes);
  spit(path + "/" + kManifestSum, manifest_sum(bytes));
  EXPECT_TRUE(contains(refused(), "has format 2"));
}

TEST_F(Corruption, AnotherModelIsRefusedByName) {
  auto other = [&](auto&& change) {
    Values v;
    change(v);
    v.fill(3);
    const auto before = v.bytes(false);
    const std::string e = error_of([&] { load_checkpoint(path, v.memory); });
    EXPECT_EQ(before, v.bytes(false));
    return e;
  };
  EXPECT_TRUE(contains(other([](Values& v) { declare_all(v), v.add("more", KB_F32, {2}, Life::param); }),
                       "more] must be f32 [2] (parameter) but the checkpoint does not have it"));
  EXPECT_TRUE(contains(other([](Values& v) {
                         v.add("embed.weight", KB_F32, {12, 37}, Life::param);
                       }),
                       "embed.weight] must be f32 [12, 37] but is f32 [37, 12]"));
  EXPECT_TRUE(contains(other([](Values& v) {
                         v.add("embed.weight", KB_F64, {37, 12}, Life::param);
                       }),
                       "embed.weight] must be f64 [37, 12] but is f32 [37, 12]"));
  EXPECT_TRUE(contains(other([](Values& v) {
                         v.add("embed.weight", KB_F32, {37, 12}, Life::optimizer);
                       }),
                       "must have the life optimizer but has parameter"));
  EXPECT_TRUE(contains(other([](Values& v) {
                         v.add("embed.weight", KB_F32, {37, 12}, Life::param);
                       }),
                       "this model has no such value; nor 9 others"));
}

}  // namespace
}  // namespace kitbash
