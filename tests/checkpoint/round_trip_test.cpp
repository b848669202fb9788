#include "base/safetensors.h"
#include "checkpoint/hash.h"
#include "faulty_files.h"
#include "fixture.h"

namespace kitbash {
namespace {

TEST(RoundTrip, EveryDtypeAndLifeComesBackBitForBit) {
  TempFolder t;
  Values a, b;
  declare_all(a), declare_all(b);
  a.fill(1), b.fill(2);
  const auto others = b.bytes(false);
  const std::string path = CheckpointFolder(t.path()).save(a.memory, info_at(1000));
  EXPECT_EQ(path, t.path() + "/step-00001000");
  load_checkpoint(path, b.memory);
  EXPECT_EQ(a.bytes(), b.bytes());
  for (const StoreEntry& e : b.store.entries())  // the other lives are not touched
    EXPECT_TRUE(Values::saved(e.life) || b.bytes(false)[e.name] == others.at(e.name)) << e.name;
}

TEST(RoundTrip, InformationComesBackAsItWas) {
  TempFolder t;
  Values a;
  declare_all(a), a.fill(1);
  const CheckpointInfo in = info_at(42);
  const std::string path = CheckpointFolder(t.path()).save(a.memory, in);
  const CheckpointInfo out = load_checkpoint(path, a.memory);
  EXPECT_EQ(out.position, in.position);
  EXPECT_EQ(out.recipe_name, in.recipe_name);
  EXPECT_EQ(out.recipe, in.recipe);
  EXPECT_EQ(out.recipe_seed, in.recipe_seed);
  EXPECT_EQ(out.loss, in.loss);
  EXPECT_EQ(out.plugins, in.plugins);
  EXPECT_EQ(out.written.size(), 20u);
  int64_t bytes = 0;
  for (const auto& f : fs::directory_iterator(path)) bytes += int64_t(f.file_size());
  EXPECT_EQ(out.bytes, bytes);
}

TEST(RoundTrip, ShardsHoldAtMostTheLimitAndLargeTensorsAreCutBetweenRows) {
  TempFolder t;
  Values a, b;
  declare_all(a), declare_all(b);
  a.fill(1), b.fill(2);
  const std::string path =
      CheckpointFolder(t.path(), 3, {.shard_bytes = 500, .files = nullptr}).save(a.memory, info_at(1));
  int shards = 0;
  bool cut = false;
  for (const auto& f : fs::directory_iterator(path)) {
    if (f.path().extension() != ".safetensors") continue;
    ++shards;
    const SafetensorsFile s = SafetensorsFile::open(f.path().string());
    uint64_t data = 0;
    for (const auto& [name, x] : s.tensors()) data += x.end - x.begin, cut |= name == "embed.weight[10:20]";
    EXPECT_LE(data, 500u) << f.path();
  }
  EXPECT_GT(shards, 8);
  EXPECT_TRUE(cut);
  load_checkpoint(path, b.memory);
  EXPECT_EQ(a.bytes(), b.bytes());
}

TEST(RoundTrip, ShardsAreSafetensorsByTheStrictReader) {
  TempFolder t;
  Values a;
  declare_all(a), a.fill(1);
  const std::string path = CheckpointFolder(t.path()).save(a.memory, info_at(1));
  const SafetensorsFile model = SafetensorsFile::open(path + "/model-00001-of-00001.safetensors");
  const SafetensorsFile optimizer = SafetensorsFile::open(path + "/optimizer-00001-of-00001.safetensors");
  EXPECT_EQ(model.tensors().size(), 9u);
  EXPECT_EQ(optimizer.tensors().size(), 2u);
  const SafeTensor& q = model.at("layer0.q");
  EXPECT_EQ(q.dtype, "BF16");
  EXPECT_EQ(q.shape, (std::vector<int64_t>{12, 24}));
  EXPECT_EQ(std::string(q.data, 12 * 24 * 2), a.bytes()["layer0.q"]);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(model.at("layer0.scale").data) % 8, 0u);
}

TEST(RoundTrip, AWriteThatTakesAFewBytesAtATimeIsContinued) {
  TempFolder t;
  Values a, b;
  declare_all(a), declare_all(b);
  a.fill(1), b.fill(2);
  FaultyFiles files;
  files.most = 37;
  const std::string path = CheckpointFolder(t.path(), 3, {.files = &files}).save(a.memory, info_at(1));
  load_checkpoint(path, b.memory);
  EXPECT_EQ(a.bytes(), b.bytes());
}

TEST(RoundTrip, AStoreWithoutOptimizerHasNoOptimizerFile) {
  TempFolder t;
  Values a;
  a.add("w", KB_F32, {3}, Life::param);
  a.fill(1);
  const std::string path = CheckpointFolder(t.path()).save(a.memory, info_at(1));
  EXPECT_FALSE(fs::exists(path + "/optimizer-00001-of-00001.safetensors"));
  verify_checkpoint(path);
}

TEST(RoundTrip, AMissingRunFolderIsMade) {
  TempFolder t;
  Values a;
  declare_all(a), a.fill(1);
  verify_checkpoint(CheckpointFolder(t.path() + "/runs/x/checkpoints").save(a.memory, info_at(1)));
}

TEST(Hash, Xxh3OfPiecesIsThatOfTheWhole) {
  const std::string s(100001, 'x');
  for (size_t cut : {size_t(0), size_t(1), size_t(255), size_t(65536), s.size()}) {
    Xxh3 h;
    h.add(s.data(), cut);
    h.add(s.data() + cut, s.size() - cut);
    EXPECT_EQ(h.digest(), xxh3(s)) << cut;
  }
  EXPECT_EQ(hex(xxh3("")), "99aa06d3014798d86001c324468d497f");  // XXH3 specification: empty input, seed 0
}

}  // namespace
}  // namespace kitbash
