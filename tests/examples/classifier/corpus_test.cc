#include "examples/classifier/corpus.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"

namespace classifier {
namespace {

namespace fs = std::filesystem;

class CorpusTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  static std::string Text(const std::string& word, int number) {
    std::string text = absl::StrCat("number ", number, "\n");
    for (int i = 0; i < 40; ++i) absl::StrAppend(&text, word, " ");
    return text;
  }

  fs::path root_;
};

TEST_F(CorpusTest, ReadsAFolderPlainOrGzipped) {
  for (int i = 0; i < 50; ++i) {
    Write(absl::StrCat("birds/", i), Text("sparrow", i));
    fs::create_directories(root_ / "fish");
    gzFile out = gzopen((root_ / "fish" / absl::StrCat(i, ".gz")).c_str(), "wb");
    const std::string text = Text("herring", i);
    gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
    gzclose(out);
  }
  const auto corpus = LoadCorpus(root_.string(), 400);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_EQ(corpus->classes, (std::vector<std::string>{"birds", "fish"}));
  EXPECT_EQ(corpus->train.size() + corpus->held_out.size(), 100u);
  EXPECT_GT(corpus->held_out.size(), 5u);
  EXPECT_LT(corpus->held_out.size(), 40u);
  for (const auto* part : {&corpus->train, &corpus->held_out}) {
    for (const Document& document : *part) {
      const char* const word = document.label == 0 ? "sparrow" : "herring";
      EXPECT_NE(document.text.find(word), std::string::npos);
    }
  }
}

TEST_F(CorpusTest, LeavesOutCopiesStubsAndSmallClasses) {
  for (int i = 0; i < 30; ++i) {
    Write(absl::StrCat("birds/", i), Text("sparrow", i));
    Write(absl::StrCat("birds/copy", i), Text("sparrow", i));
    Write(absl::StrCat("birds/stub", i), "see elsewhere");
    Write(absl::StrCat("fish/", i), Text("herring", i));
    if (i < 9) Write(absl::StrCat("rare/", i), Text("unicorn", i));
  }
  const auto corpus = LoadCorpus(root_.string(), 400);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_EQ(corpus->classes.size(), 2u);
  std::set<std::string> texts;
  for (const auto* part : {&corpus->train, &corpus->held_out}) {
    for (const Document& document : *part) EXPECT_TRUE(texts.insert(document.text).second);
  }
  EXPECT_EQ(texts.size(), 60u);
}

TEST_F(CorpusTest, KeepsTheLimitAndIsTheSameEachTime) {
  for (int i = 0; i < 60; ++i) {
    Write(absl::StrCat("a/", i), Text("alpha", i));
    Write(absl::StrCat("b/", i), Text("beta", i));
  }
  const auto first = LoadCorpus(root_.string(), 30), second = LoadCorpus(root_.string(), 30);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->train.size() + first->held_out.size(), 60u);
  ASSERT_EQ(first->train.size(), second->train.size());
  for (size_t i = 0; i < first->train.size(); ++i) {
    EXPECT_EQ(first->train[i].text, second->train[i].text);
  }
}

TEST_F(CorpusTest, RefusesAFolderWithoutClasses) {
  Write("birds/1", Text("sparrow", 1));
  EXPECT_EQ(LoadCorpus(root_.string(), 400).status().message(),
            "no two classes of at least 10 documents in " + root_.string());
  const std::string nowhere = (root_ / "nowhere").string(), file = (root_ / "birds/1").string();
  EXPECT_EQ(LoadCorpus(nowhere, 400).status().message(), nowhere + ": No such file or directory");
  EXPECT_EQ(LoadCorpus(file, 400).status().message(), file + ": Not a directory");
}

TEST(WithoutHeader, DropsWhatNamesTheSection) {
  EXPECT_EQ(WithoutHeader(".TH LS 1 \"today\"\n.SH NAME\nls - list\n.\\\" a comment\n.so man1/x.1\n"
                          ".Dt LS 1\nlast line"),
            ".SH NAME\nls - list\nlast line\n");
}

TEST(Chance, IsTheLargestClasssShare) {
  Corpus corpus;
  corpus.classes = {"a", "b"};
  for (const int label : {0, 1, 1, 1}) corpus.held_out.push_back({.label = label, .text = ""});
  EXPECT_EQ(corpus.Chance(), 0.75);
}

}  // namespace
}  // namespace classifier
