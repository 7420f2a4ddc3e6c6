#include "trainer/parallel/balanced_packing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

using Indices = std::vector<int64_t>;

struct Bin {
  Indices items;
  int64_t tokens = 0;
  double cost = 0;
};

class Packer {
 public:
  Packer(absl::Span<const int64_t> lengths, const PackingOptions& options) : lengths_(lengths), options_(options) {}

  // Longest first, to the bin with the least cost that takes it. False when one fits nowhere.
  bool Spread(const Indices& longest_first, bool is_limited, std::vector<Bin>* bins) const {
    for (const int64_t item : longest_first) {
      Bin* best = nullptr;
      for (Bin& bin : *bins) {
        if (is_limited && !Fits(bin, item)) continue;
        if (best == nullptr || bin.cost < best->cost) best = &bin;
      }
      if (best == nullptr) return false;
      Put(item, best);
    }
    return true;
  }

  // Longest first, to the first bin that takes it, a new one if none does.
  std::vector<Bin> FirstFit(const Indices& longest_first) const {
    std::vector<Bin> bins;
    for (const int64_t item : longest_first) {
      auto bin = std::find_if(bins.begin(), bins.end(), [&](const Bin& b) { return Fits(b, item); });
      if (bin == bins.end()) bin = bins.insert(bins.end(), Bin());
      Put(item, &*bin);
    }
    return bins;
  }

 private:
  bool Fits(const Bin& bin, int64_t item) const {
    return bin.items.empty() || bin.tokens + lengths_[static_cast<size_t>(item)] <= options_.micro_batch_tokens;
  }
  void Put(int64_t item, Bin* bin) const {
    bin->items.push_back(item);
    bin->tokens += lengths_[static_cast<size_t>(item)];
    bin->cost += options_.cost.Of(lengths_[static_cast<size_t>(item)]);
  }

  const absl::Span<const int64_t> lengths_;
  const PackingOptions& options_;
};

}  // namespace

absl::StatusOr<Packing> PackBalanced(absl::Span<const int64_t> lengths, const PackingOptions& options) {
  if (options.ranks < 1) return absl::InvalidArgumentError(absl::StrCat("packing over ", options.ranks, " ranks"));
  if (options.micro_batch_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrCat("micro-batches of at most ", options.micro_batch_tokens, " tokens"));
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) return absl::InvalidArgumentError(absl::StrCat("sequence ", i, " has length ", lengths[i]));
  }
  Indices longest_first(lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), 0);
  std::stable_sort(longest_first.begin(), longest_first.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });

  const Packer packer(lengths, options);
  std::vector<Bin> ranks(static_cast<size_t>(options.ranks));
  packer.Spread(longest_first, /*is_limited=*/false, &ranks);

  Packing packing;
  std::vector<std::vector<Bin>> first_fit;
  size_t count = 1;
  for (const Bin& rank : ranks) {
    // A rank's items are in the order in which they came, so longest first.
    first_fit.push_back(packer.FirstFit(rank.items));
    count = std::max(count, first_fit.back().size());
    packing.mean += rank.cost / static_cast<double>(options.ranks);
    packing.largest_rank = std::max(packing.largest_rank, rank.cost);
  }
  packing.micro_batch_count = static_cast<int64_t>(count);
  std::vector<double> slowest(count, 0.0);
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::vector<Bin> bins(count);
    if (!packer.Spread(ranks[r].items, /*is_limited=*/true, &bins)) {
      // Even loads left no room for the last ones; the tighter packing has it.
      bins = std::move(first_fit[r]);
      bins.resize(count);
    }
    std::stable_sort(bins.begin(), bins.end(), [](const Bin& a, const Bin& b) { return a.cost > b.cost; });
    packing.micro_batches.emplace_back();
    for (size_t m = 0; m < count; ++m) {
      slowest[m] = std::max(slowest[m], bins[m].cost);
      std::sort(bins[m].items.begin(), bins[m].items.end());
      packing.micro_batches.back().push_back(std::move(bins[m].items));
    }
  }
  packing.in_step = std::accumulate(slowest.begin(), slowest.end(), 0.0);
  return packing;
}

}  // namespace leeway
