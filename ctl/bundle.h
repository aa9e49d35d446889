// An archive of what a maintainer asks for first: named parts with an index. A part that cannot be
// had is noted in the index, and stops nothing. No part holds a private key: PEM blocks that say
// they are one are left out, wherever they came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ctl/machine.h"
#include "nlohmann/json_fwd.hpp"

namespace spccl::ctl {

// The text without its private keys, whole or cut at either end.
std::string WithoutPrivateKeys(const std::string& text);

class Bundle {
 public:
  static constexpr size_t kMostPartBytes = size_t{4} << 20;
  static constexpr size_t kMostBytes = size_t{64}
                                       << 20;  // of all parts; what comes later is left out

  struct Item {
    std::string name;  // with slashes, below the archive's one folder
    std::string content;
    uint64_t total_bytes = 0;  // of what it was taken from; more than the content has: it was cut
    std::string error;         // why it is not there; then there is no content
  };

  // `folder`: the one folder of the archive.
  explicit Bundle(std::string folder) : folder_(std::move(folder)) {}

  void Add(const std::string& name, const absl::StatusOr<std::string>& content,
           uint64_t total_bytes = 0);
  void AddFile(const std::string& name, const std::string& path, Part part = Part::kHead,
               Links links = Links::kFollow);

  const std::vector<Item>& items() const { return items_; }
  // What is in it, what is not and why.
  nlohmann::ordered_json Index() const;
  // A tar.gz with all parts and index.json, readable by its owner only. InvalidArgument: it is
  // there, and nothing is overwritten. Returns its size.
  absl::StatusOr<uint64_t> Write(const std::string& path) const;

 private:
  const std::string folder_;
  std::vector<Item> items_;
  size_t bytes_ = 0;
};

}  // namespace spccl::ctl
