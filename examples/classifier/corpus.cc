#include "examples/classifier/corpus.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace classifier {
namespace {

namespace fs = std::filesystem;

constexpr char kManFolder[] = "/usr/share/man";
constexpr char kDpkgStatus[] = "/var/lib/dpkg/status";
constexpr size_t kMaxTextBytes = 16 << 10;  // of a document; the rest is not read
constexpr size_t kLeastPerClass = 10;
constexpr size_t kMostClasses = 8;
constexpr size_t kEnoughManPages = 500;

// A document that may be taken: its name, and its text or the file that holds it.
struct Candidate {
  std::string name;
  std::string text;
  fs::path file;  // empty: the text is at hand
};
using Classes = std::map<std::string, std::vector<Candidate>>;

// Reads plain files too.
std::string ReadGzip(const fs::path& file) {
  std::string text(kMaxTextBytes, '\0');
  gzFile in = gzopen(file.c_str(), "rb");
  if (in == nullptr) return "";
  const int read = gzread(in, text.data(), static_cast<unsigned>(text.size()));
  gzclose(in);
  text.resize(std::max(read, 0));
  return text;
}

// One class a sub-folder whose name starts with `prefix`.
Classes ScanFolders(const fs::path& root, const std::string& prefix) {
  Classes classes;
  std::error_code error;
  for (const auto& folder : fs::directory_iterator(root, error)) {
    const std::string name = folder.path().filename().string();
    if (!folder.is_directory() || !absl::StartsWith(name, prefix)) continue;
    for (const auto& file : fs::directory_iterator(folder, error)) {
      if (!file.is_regular_file() || file.is_symlink()) continue;  // links are other names only
      classes[name].push_back(
          {.name = file.path().filename().string(), .text = "", .file = file.path()});
    }
  }
  return classes;
}

// The paragraphs of dpkg's status file: "Section: libs", "Description: what it is", and the lines
// after that, each with a space before it.
Classes ScanDpkg(const fs::path& file) {
  Classes classes;
  std::ifstream in(file);
  std::string line, package, section, description;
  bool describing = false;
  const auto finish = [&] {
    if (!section.empty() && !description.empty()) {
      classes[section].push_back({.name = package, .text = description, .file = {}});
    }
    package = section = description = "";
    describing = false;
  };
  while (std::getline(in, line)) {
    if (line.empty()) {
      finish();
    } else if (describing && line[0] == ' ') {
      absl::StrAppend(&description, line, "\n");
    } else if (absl::StartsWith(line, "Package: ")) {
      package = line.substr(9);
    } else if (absl::StartsWith(line, "Section: ")) {
      section = line.substr(line.rfind('/') == std::string::npos ? 9 : line.rfind('/') + 1);
    } else if ((describing = absl::StartsWith(line, "Description: "))) {
      description = line.substr(13) + "\n";
    }
  }
  finish();
  return classes;
}

size_t CountAll(const Classes& classes) {
  size_t count = 0;
  for (const auto& [name, candidates] : classes) count += candidates.size();
  return count;
}

// Up to `per_class` different documents of a class, in an order that names alone decide.
std::vector<Candidate> Choose(std::vector<Candidate> candidates, size_t per_class) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(StableHash(a.name), a.name) < std::pair(StableHash(b.name), b.name);
  });
  std::vector<Candidate> chosen;
  std::set<uint64_t> seen;
  for (Candidate& candidate : candidates) {
    if (chosen.size() == per_class) break;
    if (!candidate.file.empty()) candidate.text = WithoutHeader(ReadGzip(candidate.file));
    if (candidate.text.size() < 100) continue;  // a page that only names another
    if (seen.insert(StableHash(candidate.text)).second) chosen.push_back(std::move(candidate));
  }
  return chosen;
}

// The largest classes, by name.
Classes ChooseClasses(Classes classes, size_t per_class) {
  std::vector<std::pair<size_t, std::string>> by_size;
  for (auto& [name, candidates] : classes) {
    candidates = Choose(std::move(candidates), per_class);
    if (candidates.size() >= kLeastPerClass) by_size.emplace_back(candidates.size(), name);
  }
  std::sort(by_size.rbegin(), by_size.rend());
  if (by_size.size() > kMostClasses) by_size.resize(kMostClasses);
  Classes kept;
  for (const auto& [size, name] : by_size) kept[name] = std::move(classes[name]);
  return kept;
}

// The training documents in an order that mixes the classes.
void Shuffle(std::vector<std::pair<uint64_t, Document>>& keyed, std::vector<Document>* out) {
  std::sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.text) < std::tie(b.first, b.second.text);
  });
  for (auto& [key, document] : keyed) out->push_back(std::move(document));
}

}  // namespace

uint64_t StableHash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
  return hash ^ (hash >> 32);
}

std::string WithoutHeader(const std::string& page) {
  std::string kept;
  for (size_t begin = 0; begin < page.size();) {
    const size_t end = std::min(page.find('\n', begin), page.size());
    const std::string line = page.substr(begin, end - begin);
    begin = end + 1;
    bool names_section = false;
    for (const char* mark : {".TH", ".Dt", ".\\\"", "'\\\"", ".so ", ".IX Title"}) {
      names_section = names_section || absl::StartsWith(line, mark);
    }
    if (!names_section) absl::StrAppend(&kept, line, "\n");
  }
  return kept;
}

double Corpus::Chance() const {
  std::vector<size_t> counts(classes.size());
  for (const Document& document : held_out) ++counts[document.label];
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) / held_out.size();
}

absl::StatusOr<Corpus> LoadCorpus(const std::string& source, int per_class) {
  Corpus corpus;
  Classes classes;
  if (source == "auto" || source == "man") {
    classes = ScanFolders(kManFolder, "man");
    corpus.source = "man";
  }
  if (source == "dpkg" || (source == "auto" && CountAll(classes) < kEnoughManPages)) {
    classes = ScanDpkg(kDpkgStatus);
    corpus.source = "dpkg";
  }
  if (corpus.source.empty()) {
    std::error_code error;
    const fs::directory_iterator opened(source, error);
    if (error) return absl::NotFoundError(absl::StrCat(source, ": ", error.message()));
    classes = ScanFolders(source, "");
    corpus.source = source;
  }
  std::vector<std::pair<uint64_t, Document>> train;
  for (auto& [name, candidates] : ChooseClasses(std::move(classes), per_class)) {
    for (Candidate& candidate : candidates) {
      const uint64_t hash = StableHash(name + "/" + candidate.name);
      Document document{.label = static_cast<int>(corpus.classes.size()),
                        .text = std::move(candidate.text)};
      if (hash % 5 == 0) {
        corpus.held_out.push_back(std::move(document));
      } else {
        train.emplace_back(hash, std::move(document));
      }
    }
    corpus.classes.push_back(name);
  }
  Shuffle(train, &corpus.train);
  if (corpus.classes.size() < 2 || corpus.held_out.empty()) {
    return absl::NotFoundError(absl::StrCat("no two classes of at least ", kLeastPerClass,
                                            " documents in ", corpus.source));
  }
  return corpus;
}

}  // namespace classifier
