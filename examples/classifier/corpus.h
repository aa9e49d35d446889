// The text to learn from: documents in classes, some of them held out.
//
// Three sources, all of which need nothing but a Debian machine:
//   man     the manual pages below /usr/share/man, classed by section (most containers have none);
//   dpkg    the descriptions of the installed packages, classed by archive section (always there);
//   FOLDER  files of your own, plain or gzipped, classed by the sub-folder they lie in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace classifier {

struct Document {
  int label;  // index into Corpus::classes
  std::string text;
};

struct Corpus {
  std::string source;                // "man", "dpkg" or the folder
  std::vector<std::string> classes;  // their names
  std::vector<Document> train;
  std::vector<Document> held_out;  // about a fifth: a fixed hash of the document's name decides

  // What always answering the most frequent class would score on the held-out documents.
  double Chance() const;
};

// `source` as above, or "auto": man where there are enough pages, else dpkg. At most `per_class`
// documents a class, chosen by a hash of their names; classes of fewer than 10 are left out, as are
// documents that are copies of one another. Always the same on an unchanged machine.
absl::StatusOr<Corpus> LoadCorpus(const std::string& source, int per_class);

// A manual page without the lines that name its section outright (.TH, .Dt, comments).
std::string WithoutHeader(const std::string& page);

// FNV-1a: a hash that stays the same from run to run.
uint64_t StableHash(const std::string& text);

}  // namespace classifier
