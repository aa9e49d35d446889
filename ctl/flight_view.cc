#include "ctl/flight_view.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "ctl/render.h"

namespace spccl::ctl {

std::string FlightView::NodeName() const {
  return record_->node().empty() ? "this node" : Printable(record_->node());
}

const v1::FlightRank* FlightView::Member(uint32_t rank) const {
  for (const v1::FlightRank& member : record_->members()) {
    if (member.rank() == rank) return &member;
  }
  return nullptr;
}

std::string FlightView::NameOf(uint32_t rank) const {
  const v1::FlightRank* const member = Member(rank);
  if (member == nullptr) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " (pid ", member->pid(), member->node().empty() ? "" : " on ",
                      Printable(member->node()), ")");
}

std::string FlightView::NamesOf(const std::vector<uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    const char* const before = i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ";
    absl::StrAppend(&text, before, ranks[i]);
  }
  return text;
}

std::vector<uint32_t> FlightView::LocalRanks() const {
  std::vector<uint32_t> ranks;
  for (const v1::FlightRank& member : record_->members()) {
    if (member.node().empty() && !member.left()) ranks.push_back(member.rank());
  }
  return ranks;
}

const v1::FlightNode* FlightView::NodeOf(uint32_t rank) const {
  for (const v1::FlightNode& node : record_->nodes()) {
    if (std::find(node.ranks().begin(), node.ranks().end(), rank) != node.ranks().end()) {
      return &node;
    }
  }
  return nullptr;
}

uint64_t FlightView::At() const {
  return Runs() ? record_->running().sequence() : record_->next_sequence();
}

const v1::FlightOp* FlightView::Current() const {
  if (Runs()) return &record_->running();
  for (const v1::FlightOp& op : record_->waiting()) {
    if (op.sequence() == record_->next_sequence()) return &op;
  }
  return nullptr;
}

std::vector<uint32_t> FlightView::NotPosted() const {
  std::vector<uint32_t> ranks;
  if (Runs()) return ranks;
  for (const uint32_t rank : LocalRanks()) {
    if (Member(rank)->next_sequence() <= At()) ranks.push_back(rank);
  }
  return ranks;
}

double FlightView::SecondsSince(int64_t then_ns) const {
  return static_cast<double>(std::max<int64_t>(0, record_->now_ns() - then_ns)) * 1e-9;
}

std::string DescribeLink(const v1::FlightNode& node) {
  std::string text = Printable(node.route());
  const char* const comma = text.empty() ? "" : ", ";
  if (node.round_trip_seconds() > 0) {
    absl::StrAppend(&text, comma, HumanSeconds(node.round_trip_seconds()), " round trip");
  }
  if (node.link_bytes_per_second() > 0) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", HumanBitRate(node.link_bytes_per_second()));
  }
  return text;
}

std::vector<Lateness> LatenessOf(const v1::FlightRecord& record) {
  std::map<uint32_t, Lateness> by_rank;
  std::map<uint32_t, std::vector<double>> behind;
  for (const v1::FlightOp& op : record.ended()) {
    if (op.posts_size() < 2) continue;
    const auto earlier = [](const v1::FlightPost& a, const v1::FlightPost& b) {
      return a.posted_ns() < b.posted_ns();
    };
    const auto [first, last] = std::minmax_element(op.posts().begin(), op.posts().end(), earlier);
    for (const v1::FlightPost& post : op.posts()) {
      Lateness& lateness = by_rank[post.rank()];
      lateness.rank = post.rank();
      ++lateness.operations;
      if (post.rank() == last->rank()) ++lateness.times_last;
      behind[post.rank()].push_back(static_cast<double>(post.posted_ns() - first->posted_ns()) *
                                    1e-9);
    }
  }
  std::vector<Lateness> all;
  for (auto& [rank, lateness] : by_rank) {
    std::vector<double>& seconds = behind[rank];
    std::sort(seconds.begin(), seconds.end());
    lateness.median_seconds = seconds[seconds.size() / 2];
    lateness.most_seconds = seconds.back();
    all.push_back(lateness);
  }
  return all;
}

}  // namespace spccl::ctl
