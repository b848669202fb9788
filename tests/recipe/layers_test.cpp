// extends, --set, and the switch of a `use` from outside.
#include <gtest/gtest.h>

#include "fake_source.h"

namespace kitbash {
namespace {

using Notes = std::vector<std::string>;

TEST(Extends, ChainsAndTheLaterFileWins) {
  Recipes r;
  r.write("base/base.toml", good_recipe());
  r.write("base/middle.toml", "kitbash = 1\nextends = \"base.toml\"\n[model]\ndim = 64\nlayers = 4\n");
  r.write("top.toml", "kitbash = 1\nextends = \"base/middle.toml\"\nname = \"top\"\n[model]\ndim = 32\n");
  const Recipe x = r.load("top.toml");
  EXPECT_EQ(x.name, "top");
  EXPECT_EQ(x.model.dim, 32);
  EXPECT_EQ(x.model.layers.size(), 4u);
  EXPECT_EQ(x.model.vocab, 259);
}
TEST(Extends, ErrorsNameTheFileThatWroteTheMistakeTheNamedFileFirst) {
  Recipes r;
  std::string bad = good_recipe();
  bad.replace(bad.find("vocab = 259"), 11, "vocab = 1.5");
  r.write("base/base.toml", bad);
  r.write("top.toml", "kitbash = 1\nextends = \"base/base.toml\"\n[model.layer.linear.attention]\nheads = 0\n");
  EXPECT_EQ(r.errors("top.toml", {"train.seed=-1"}),
            "top.toml:4:9: error: 'heads' must be in [1, 512] but got 0\n"
            "base/base.toml:6:9: error: 'vocab' wants int but got float\n"
            "--set train.seed=-1: error: 'seed' must be in [0, 9007199254740992] but got -1\n");
}
TEST(Extends, ACircleAndAMissingFileAreErrorsAtTheKey) {
  Recipes r;
  r.write("a.toml", "kitbash = 1\nextends = \"b.toml\"\n");
  r.write("b.toml", "kitbash = 1\nextends = \"a.toml\"\n");
  r.write("c.toml", "kitbash = 1\nextends = \"none.toml\"\n");
  EXPECT_EQ(r.errors("a.toml"),
            "b.toml:2:11: error: recipes extend each other in a circle: a.toml -> b.toml -> a.toml\n");
  EXPECT_EQ(r.errors("c.toml"),
            "c.toml:2:11: error: [none.toml] the recipe must be a file that can be read but does not exist\n");
  EXPECT_EQ(r.errors("d.toml"), "error: [d.toml] the recipe must be a file that can be read but does not exist\n");
}
TEST(Extends, AWrongTypeIsTheOnlyErrorAsWhatLiesBelowIsNotKnown) {
  Recipes r;
  r.write("a.toml", "kitbash = 1\nextends = 5\n");
  EXPECT_EQ(r.errors("a.toml"), "a.toml:2:11: error: 'extends' wants string but got int\n");
}
TEST(Extends, ACurriculumIsReplacedAsAWhole) {
  Recipes r;
  r.write("base.toml", good_recipe());
  r.write("top.toml",
          "kitbash = 1\nextends = \"base.toml\"\n[[curriculum]]\ncontext = 8\ntokens = 64\nbatch_tokens = 64\nlr = 1\n"
          "schedule = { use = \"wsd\", decay = 0.5 }\n");
  const Recipe x = r.load("top.toml");
  ASSERT_EQ(x.curriculum.size(), 1u);
  EXPECT_EQ(x.curriculum[0].context, 8);
  EXPECT_EQ(x.curriculum[0].schedule->info->name, "wsd");
}
TEST(Set, TakesTomlValuesOrPlainNamesAndIndexesArrays) {
  Recipes r;
  r.write("good.toml", good_recipe());
  const Recipe x =
      r.load("good.toml", {"model.dim=256", "curriculum.0.lr=1", "train.compute=bf16", "train.recompute=\"block\"",
                           "model.pattern=[\"linear\"]", "model.at.2=global", "train.deterministic=false"});
  EXPECT_EQ(x.model.dim, 256);
  EXPECT_DOUBLE_EQ(x.curriculum[0].lr, 1.0);
  EXPECT_EQ(x.train.compute, "bf16");
  EXPECT_EQ(x.train.recompute, "block");
  EXPECT_FALSE(x.train.deterministic);
  EXPECT_EQ(x.model.layers[2].name, "global");
  EXPECT_EQ(x.model.layers[3].name, "linear");
}
TEST(Set, ReachesLayersThatAreLikeTheOneChanged) {
  Recipes r;
  r.write("good.toml", good_recipe());
  const Recipe x = r.load("good.toml", {"model.layer.linear.ffn.experts=32", "model.layer.linear.attention.heads=2"});
  EXPECT_EQ(int_of(*x.model.named.at("global").ffn, "experts"), 32);
  EXPECT_EQ(int_of(*x.model.named.at("first").attention, "heads"), 2);
  EXPECT_EQ(int_of(*x.model.named.at("global").attention, "heads"), 4);
}
TEST(Set, APathOrNameThatDoesNotExistIsAnErrorThatNamesIt) {
  Recipes r;
  r.write("good.toml", good_recipe());
  EXPECT_EQ(r.errors("good.toml", {"model.residul.use=x", "model.layer.linaer.ffn.use=dense", "curriculum.3.lr=1",
                                   "curriculum.first.lr=1", "model.residual.use=standart", "model.dim.x=1", "dim",
                                   "a..b=1", "model.layer.linear.attention.decay.flor=-1", "extends=x.toml"}),
            "--set model.residul.use=x: error: model has no key 'residul'; did you mean 'residual'?\n"
            "--set model.layer.linaer.ffn.use=dense: error: there is no layer 'linaer'; did you mean 'linear'?\n"
            "--set curriculum.3.lr=1: error: 'curriculum' has 1 entries; there is no 'curriculum.3'\n"
            "--set curriculum.first.lr=1: error: 'curriculum' is a list: write a number from 0 but got 'first'\n"
            "--set model.residual.use=standart: error: there is no residual 'standart'; did you mean 'standard'?\n"
            "--set model.dim.x=1: error: 'dim' wants int but got table\n"
            "--set dim: error: wants KEY=VALUE, as in --set model.dim=128\n"
            "--set a..b=1: error: 'a..b' has an empty name between its dots\n"
            "--set model.layer.linear.attention.decay.flor=-1: error: decay.bounded has no key 'flor'; did you mean "
            "'floor'?\n"
            "--set extends=x.toml: error: 'extends' cannot be set from outside; write a recipe that extends\n"
            "  note: decay.bounded 0.1.0 from /lib/libkb_fake.so accepts: floor\n");
}
TEST(Set, OfTheFormatSaysWhatTheFileWouldSay) {
  Recipes r;
  r.write("good.toml", good_recipe());
  EXPECT_EQ(r.errors("good.toml", {"kitbash=2"}),
            "--set kitbash=2: error: 'kitbash' must be 1, the recipe format of this program, but got 2\n");
  EXPECT_EQ(r.load("good.toml", {"kitbash=1"}).name, "good");
}
TEST(Set, IsTextThatNestsWithinReason) {
  Recipes r;
  r.write("good.toml", good_recipe());
  std::string names = "a", brackets(20000, '[');
  for (int i = 0; i < 20000; ++i) names += ".a";
  const auto refused = [&](const std::string& set, const std::string& message) {
    EXPECT_EQ(r.errors("good.toml", {set}), "--set " + set.substr(0, 120) + "...: error: " + message + "\n");
  };
  refused(names + "=1", "a key must have at most 32 names between its dots but has 20001");
  refused("name={" + names + "=1}", "a key must have at most 32 names between its dots but has more");
  refused("name=" + brackets, "at most 32 brackets may be open at once but there are more");
  EXPECT_EQ(r.errors("good.toml", {"train.seed=\xff"}),
            "--set: error: a key and its value must be UTF-8 but byte 12 after 'train.seed=' is not\n");
}
TEST(Switch, ASetDropsKeysOfTheOldComponentWithOneNoteEach) {
  Recipes r;
  r.write("good.toml", good_recipe());
  for (const char* set :
       {"model.residual.use=standard", "model.residual=standard", "model.residual={use=\"standard\"}"}) {
    const Recipe x = r.load("good.toml", {set});
    EXPECT_EQ(x.model.residual->info->name, "standard");
    EXPECT_EQ(x.notes, Notes{"note: model.residual: 'block_layers' is dropped: residual.standard has no such key"})
        << set;
  }
}
TEST(Switch, KeepsKeysOfTheSameNameAndTypeOnly) {
  Recipes r;
  r.write("good.toml", good_recipe());
  const Recipe x = r.load("good.toml", {"model.residual.eps=0.5", "model.residual.use=scaled"});
  EXPECT_DOUBLE_EQ(real_of(*x.model.residual, "eps"), 0.5);
  EXPECT_DOUBLE_EQ(real_of(*x.model.residual, "block_layers"), 1.0);
  EXPECT_EQ(x.notes, Notes{"note: model.residual: 'block_layers' is dropped: residual.scaled wants float there"});
}
TEST(Switch, OfALayerIsToldOnceThoughOthersAreLikeIt) {
  Recipes r;
  r.write("good.toml", good_recipe());
  const Recipe x = r.load("good.toml", {"model.layer.linear.ffn.use=dense"});
  EXPECT_EQ(x.model.named.at("global").ffn->info->name, "dense");
  EXPECT_EQ(int_of(*x.model.named.at("global").ffn, "width"), 48);
  EXPECT_EQ(x.notes, (Notes{"note: model.layer.linear.ffn: 'active' is dropped: ffn.dense has no such key",
                            "note: model.layer.linear.ffn: 'experts' is dropped: ffn.dense has no such key",
                            "note: model.layer.linear.ffn: 'latent' is dropped: ffn.dense has no such key"}));
}
TEST(Switch, OfALayerThatIsLikeAnotherKeepsWhatItInherits) {
  Recipes r;
  r.write("good.toml", good_recipe());
  const Recipe x = r.load("good.toml", {"model.layer.global.ffn.use=dense"});
  EXPECT_EQ(int_of(*x.model.named.at("global").ffn, "width"), 48);
  EXPECT_EQ(x.model.named.at("linear").ffn->info->name, "latent-moe");
  EXPECT_EQ(x.notes.size(), 3u);
}
TEST(Switch, ByAnOverlayIsLenientBelowAndStrictBesideTheNewUse) {
  Recipes r;
  r.write("base.toml", good_recipe());
  r.write("over.toml",
          "kitbash = 1\nextends = \"base.toml\"\n[model.layer.linear.attention.decay]\nuse = \"softplus\"\n"
          "[model.residual]\nuse = \"standard\"\nblock_layers = 2\n");
  EXPECT_EQ(r.errors("over.toml"),
            "over.toml:7:1: error: residual.standard has no key 'block_layers'\n"
            "  note: residual.standard 0.1.0 from /lib/libkb_fake.so accepts no keys\n");
  r.write("fine.toml",
          "kitbash = 1\nextends = \"base.toml\"\n[model.layer.linear.attention.decay]\nuse = \"softplus\"\n");
  EXPECT_EQ(r.load("fine.toml").notes,
            Notes{"note: model.layer.linear.attention.decay: 'floor' is dropped: decay.softplus has no such key"});
}
TEST(Switch, AKeySetAfterItIsStrictAndOneSetBeforeItIsNot) {
  Recipes r;
  r.write("good.toml", good_recipe());
  EXPECT_EQ(r.errors("good.toml", {"model.residual.use=standard", "model.residual.block_layers=2"}),
            "--set model.residual.block_layers=2: error: residual.standard has no key 'block_layers'\n"
            "  note: residual.standard 0.1.0 from /lib/libkb_fake.so accepts no keys\n");
  EXPECT_EQ(r.load("good.toml", {"model.residual.block_layers=2", "model.residual.use=standard"}).notes.size(), 1u);
}
TEST(Switch, ToTheSameComponentIsNone) {
  Recipes r;
  r.write("good.toml", good_recipe());
  const Recipe x = r.load("good.toml", {"model.residual.use=block-attnres"});
  EXPECT_EQ(int_of(*x.model.residual, "block_layers"), 4);
  EXPECT_TRUE(x.notes.empty());
}
TEST(Switch, OfADefaultSlotWithoutUseIsASwitchToo) {
  Recipes r;
  r.write("good.toml", good_recipe() + std::string("[model.norm]\neps = 1e-6\n"));
  EXPECT_DOUBLE_EQ(real_of(*r.load("good.toml").model.norm, "eps"), 1e-6);
  EXPECT_EQ(r.load("good.toml", {"model.norm.use=table"}).notes,
            Notes{"note: model.norm: 'eps' is dropped: norm.table has no such key"});
}
TEST(Switch, ShortFormAndTableFormMix) {
  Recipes r;
  std::string s = good_recipe();
  s.replace(s.find("{ use = \"bounded\", floor = -4 }"), 31, "\"bounded\"");
  r.write("short.toml", s);
  const Recipe x = r.load("short.toml", {"model.layer.linear.attention.decay.floor=-2"});
  EXPECT_DOUBLE_EQ(real_of(*x.model.named.at("linear").attention->children.at("decay"), "floor"), -2.0);
  const Recipe y = r.load("short.toml", {"curriculum.0.schedule.floor=0.1"});
  EXPECT_DOUBLE_EQ(real_of(*y.curriculum[0].schedule, "floor"), 0.1);
}
TEST(Was, AnOldNameIsTakenWithANote) {
  Recipes r;
  std::string s = good_recipe();
  s.replace(s.find("floor = -4"), 10, "gate_floor = -3");
  r.write("old.toml", s);
  const Recipe x = r.load("old.toml");
  EXPECT_DOUBLE_EQ(real_of(*x.model.named.at("linear").attention->children.at("decay"), "floor"), -3.0);
  EXPECT_EQ(x.notes, Notes{"note: model.layer.linear.attention.decay: 'gate_floor' is now called 'floor'"});
  EXPECT_NE(r.errors("old.toml", {"model.layer.linear.attention.decay.floor=-1"})
                .find("'floor' and 'gate_floor' are the same key of decay.bounded"),
            std::string::npos);
}

}  // namespace
}  // namespace kitbash
