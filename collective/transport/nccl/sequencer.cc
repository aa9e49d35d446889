#include "collective/transport/nccl/sequencer.h"

#include "absl/strings/str_cat.h"

namespace spccl::transport::nccl {
namespace {

struct Load {
  size_t transfers = 0;
  uint64_t bytes = 0;
};

}  // namespace

std::optional<Sequencer::Group> Sequencer::Next() {
  if (waiting_.empty() || open_.size() >= options_.most_open_groups) return std::nullopt;
  Group group{.number = ++last_, .transfers = {}};
  std::map<uint32_t, Load> sends, receives;
  const auto fits = [this](const Load& load, uint64_t bytes) {
    return load.transfers == 0 ||
           (load.transfers < options_.most_transfers && load.bytes + bytes <= options_.most_bytes);
  };
  // Up to the first that does not fit: what is behind that may be of the same two ranks.
  while (!waiting_.empty() && group.transfers.size() < kMostItems) {
    const Transfer& next = waiting_.front();
    Load& send = sends[next.from];
    Load& receive = receives[next.to];
    if (!fits(send, next.bytes) || !fits(receive, next.bytes)) break;
    for (Load* load : {&send, &receive}) {
      ++load->transfers;
      load->bytes += next.bytes;
    }
    open_[group.number].insert({node_of_rank_[next.from], node_of_rank_[next.to]});
    group.transfers.push_back(next);
    waiting_.pop_front();
  }
  return group;
}

absl::Status Sequencer::Done(uint64_t number, uint32_t node) {
  const auto group = open_.find(number);
  if (group == open_.end() || group->second.erase(node) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is done with group ", number, ", in which it has no part"));
  }
  if (group->second.empty()) open_.erase(group);
  return absl::OkStatus();
}

}  // namespace spccl::transport::nccl
