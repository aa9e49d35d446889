// Whose turn it is, among owners of different weights that share something: start-time fair
// queueing (Goyal, Vin and Cheng, SIGCOMM 1996), where each owner's next turn starts at a virtual
// time, turns are given in that order, and a turn moves the owner's next one by its cost over the
// owner's weight. Owners who always have work thus get costs in proportion to their weights, within
// a turn each, whatever single turns cost. One that comes after a time without work starts at the
// time of the turn given last: it is next, but has saved nothing up.
//
// Costs may be known only after the turn: charge what is expected, and the difference at its end.
// That keeps the order right also while several turns run at once (SFQ(D): Jin, Chase and Kaur,
// SIGMETRICS 2004). Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace spccl {

class FairClock {
 public:
  // One owner's. The lowest `next` has its turn first.
  struct Account {
    double next = 0;
  };

  // The owner has work again, after it had none.
  void Wake(Account* account) const { account->next = std::max(account->next, now_); }
  // The owner gets a turn, which is expected to cost as much.
  void Begin(Account* account, double cost, uint32_t weight) {
    now_ = std::max(now_, account->next);
    Charge(account, cost, weight);
  }
  // Negative: it was cheaper than expected.
  static void Charge(Account* account, double cost, uint32_t weight) {
    account->next += cost / weight;
  }
  // Whether an owner without work may be forgotten: Wake() would make it as new.
  bool IsSettled(const Account& account) const { return account.next <= now_; }

 private:
  double now_ = 0;  // when the turn given last started
};

}  // namespace spccl
