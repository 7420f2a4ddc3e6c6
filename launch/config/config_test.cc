#include "launch/config/config_loader.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/config/nearest.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NearestTest, CountsEditsOfOneCharacterAndSwaps) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("steps", "steps"), 0);
  EXPECT_EQ(EditDistance("setps", "steps"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(NearestTest, FindsMisspeltAndUnqualifiedWords) {
  EXPECT_EQ(NearestWord("trainer.stesp", {"trainer.steps", "trainer.ranks"}), "trainer.steps");
  EXPECT_EQ(NearestWord("budget", {"seed", "staleness.budget"}), "staleness.budget");
  EXPECT_EQ(NearestWord("completely_different", {"seed", "mode"}), std::nullopt);
}

TEST(ConfigTest, LaterSourcesWinAndKeepTheirPlaces) {
  const LoadedConfig loaded = ParseConfig("seed = 3\n[task]\nname = \"sort5\"\n[trainer]\n  steps = 7\n", "a.toml");
  ASSERT_TRUE(loaded.errors.empty()) << FormatDiagnostics(loaded.errors);
  EXPECT_EQ(loaded.config.GetInteger("seed"), 3);
  EXPECT_EQ(loaded.config.GetInteger("trainer.steps"), 7);
  EXPECT_EQ(loaded.config.PlaceOf("trainer.steps"), (Place{"a.toml", 5, 11}));
  EXPECT_TRUE(loaded.config.IsDefault("mode"));
}

TEST(ConfigTest, OverridesTakeTomlValuesAndBareWords) {
  const LoadedConfig loaded =
      LoadConfig({{},
                  {"task.name=sort5", "mode=\"sync\"", "trainer.steps=12", "optimizer.learning_rate=1",
                   "model.tied_head=false", "queue.max_bytes=2MiB", "run.directory=/tmp/x=y"}});
  ASSERT_TRUE(loaded.errors.empty()) << FormatDiagnostics(loaded.errors);
  EXPECT_EQ(loaded.config.GetString("task.name"), "sort5");
  EXPECT_EQ(loaded.config.GetString("mode"), "sync");
  EXPECT_EQ(loaded.config.GetInteger("trainer.steps"), 12);
  EXPECT_EQ(loaded.config.GetReal("optimizer.learning_rate"), 1.0);
  EXPECT_FALSE(loaded.config.GetBoolean("model.tied_head"));
  EXPECT_EQ(loaded.config.GetInteger("queue.max_bytes"), 2 * 1024 * 1024);
  EXPECT_EQ(loaded.config.GetString("run.directory"), "/tmp/x=y");
  EXPECT_EQ(loaded.config.PlaceOf("trainer.steps"), (Place{"<argument 3>", 1, 15}));
}

TEST(ConfigTest, ArgumentsAreFilesOrOverrides) {
  const ConfigSources sources = SplitArguments({"configs/a.toml", "seed=1", "dir=x/b.toml", "./a=b/c.toml"});
  EXPECT_THAT(sources.files, ElementsAre("configs/a.toml", "./a=b/c.toml"));
  EXPECT_THAT(sources.overrides, ElementsAre("seed=1", "dir=x/b.toml"));
}

TEST(ConfigTest, EveryKeyReadsBackFromTheResolvedFile) {
  Config config;
  for (const KeyInfo& info : Schema()) {
    // A legal value that is not the default.
    ConfigValue value = info.default_value();
    switch (info.type()) {
      case ValueType::kBoolean:
        value = !std::get<bool>(value);
        break;
      case ValueType::kInteger:
        value = std::get<int64_t>(value) + (info.CheckValue(std::get<int64_t>(value) + 1).empty() ? 1 : 0);
        break;
      case ValueType::kReal:
        value = std::get<double>(value) * 0.75 + 0.0123456789;
        break;
      case ValueType::kString:
        value = info.choices().empty() ? std::string("a \"quoted\" \\ text\n") : info.choices().back();
        break;
    }
    config.Set(info.key(), value, Place{});
  }
  const LoadedConfig back = ParseConfig(config.ToToml(), "resolved.toml");
  ASSERT_TRUE(back.errors.empty()) << FormatDiagnostics(back.errors);
  for (const KeyInfo& info : Schema()) {
    EXPECT_EQ(back.config.Get(info.key()), config.Get(info.key())) << info.key();
    EXPECT_FALSE(back.config.IsDefault(info.key())) << info.key();
  }
  EXPECT_EQ(back.config.RunFingerprint(), config.RunFingerprint());
}

TEST(ConfigTest, DefaultsAreLegalAndDocumented) {
  for (const KeyInfo& info : Schema()) {
    EXPECT_EQ(info.CheckValue(info.default_value()), "") << info.key();
    EXPECT_FALSE(info.documentation().empty()) << info.key();
    EXPECT_FALSE(info.readers().empty()) << info.key();
    EXPECT_FALSE(SectionDocumentation(info.section()).empty()) << info.section();
    EXPECT_TRUE(info.resume() != ResumeRule::kMayGrow || info.type() == ValueType::kInteger) << info.key();
  }
}

TEST(ConfigTest, DocumentsNameEveryKey) {
  const std::string markdown = SchemaMarkdown();
  const auto json = nlohmann::json::parse(SchemaJson());
  for (const KeyInfo& info : Schema()) {
    EXPECT_THAT(markdown, HasSubstr("| `" + info.key() + "` |"));
    std::string pointer;
    std::string rest = info.key();
    for (size_t dot; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1)) {
      pointer += "/properties/" + rest.substr(0, dot);
    }
    EXPECT_TRUE(json.contains(nlohmann::json::json_pointer(pointer + "/properties/" + rest))) << info.key();
  }
  EXPECT_EQ(json["properties"]["mode"]["enum"], nlohmann::json({"async", "sync"}));
  EXPECT_EQ(json["properties"]["task"]["required"], nlohmann::json({"name"}));
  EXPECT_EQ(json["properties"]["optimizer"]["properties"]["learning_rate"]["exclusiveMinimum"], 0.0);
}

TEST(ConfigTest, ResumeMayRaiseTheBudgetButNotLowerIt) {
  Config existing;
  Config wanted;
  existing.Set("staleness.budget", int64_t{2}, Place{});
  wanted.Set("staleness.budget", int64_t{4}, Place{});
  wanted.Set("trainer.steps", int64_t{500}, Place{});
  auto differences = CompareForResume(existing, wanted);
  ASSERT_EQ(differences.size(), 2);
  EXPECT_FALSE(differences[0].is_refused);
  EXPECT_FALSE(differences[1].is_refused);
  differences = CompareForResume(wanted, existing);
  EXPECT_EQ(differences[0].key, "staleness.budget");
  EXPECT_EQ(differences[0].before, "4");
  EXPECT_EQ(differences[0].after, "2");
  EXPECT_TRUE(differences[0].is_refused);
}

TEST(ConfigTest, ResumeRefusesAnotherIdentity) {
  Config existing;
  Config wanted;
  wanted.Set("seed", int64_t{9}, Place{});
  const auto differences = CompareForResume(existing, wanted);
  ASSERT_EQ(differences.size(), 1);
  EXPECT_TRUE(differences[0].is_refused);
  EXPECT_NE(existing.RunFingerprint(), wanted.RunFingerprint());
}

}  // namespace
}  // namespace leeway
