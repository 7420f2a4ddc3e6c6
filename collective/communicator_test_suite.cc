#include "collective/communicator_test_suite.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collective/communication_thread.h"

namespace leeway {
namespace {

#define EXPECT_THAT_OR_RETURN(condition, text)                                                        \
  do {                                                                                                \
    if (!(condition)) return absl::InternalError(absl::StrCat(#condition, " does not hold: ", text)); \
  } while (false)

// bf16 as its bits.
struct Half {
  uint16_t bits = 0;
  friend bool operator==(Half a, Half b) { return a.bits == b.bits; }
};

float Widen(Half value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

// Nearest by distance, ties to the even one; finite values only.
Half Nearest(float value) {
  const uint16_t below = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  const Half low{below}, high{static_cast<uint16_t>(below + 1)};
  const double to_low = std::abs(double{value} - Widen(low)), to_high = std::abs(double{value} - Widen(high));
  if (to_low != to_high) return to_low < to_high ? low : high;
  return below % 2 == 0 ? low : high;
}

// A buffer at an odd address, as memory of elements that are never touched as such.
template <typename T>
class OddBuffer {
 public:
  explicit OddBuffer(size_t count) : count_(count), bytes_(count * sizeof(T) + 1, std::byte{0xa5}) {}
  void* data() { return bytes_.data() + 1; }
  void* at(size_t i) { return bytes_.data() + 1 + i * sizeof(T); }
  size_t count() const { return count_; }
  T Get(size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + 1 + i * sizeof(T), sizeof(T));
    return value;
  }
  void Set(size_t i, T value) { std::memcpy(at(i), &value, sizeof(T)); }

 private:
  const size_t count_;
  std::vector<std::byte> bytes_;
};

// Element i of rank r: different everywhere, of both signs and several magnitudes, so that sums round.
double Sample(int rank, size_t i) {
  const uint64_t mixed = (static_cast<uint64_t>(rank) * 1000003 + i + 1) * 0x9e3779b97f4a7c15;
  const double unit = static_cast<double>(mixed >> 11) * 0x1p-53 - 0.5;
  return std::ldexp(unit, static_cast<int>(mixed % 17) - 8);
}

template <typename T>
T Value(int rank, size_t i) {
  if constexpr (std::is_same_v<T, Half>) {
    return Nearest(static_cast<float>(Sample(rank, i)));
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return static_cast<int64_t>(Sample(rank, i) * 1e6);
  } else {
    return static_cast<T>(Sample(rank, i));
  }
}

// The order of the contract, written out.
template <typename T>
T TreeSum(int size, T a, T b, T c, T d) {
  return size == 1 ? a : size == 2 ? a + b : size == 3 ? (a + b) + c : (a + b) + (c + d);
}

template <typename T>
T ExpectedSum(int size, size_t i) {
  if constexpr (std::is_same_v<T, Half>) {
    return Nearest(
        TreeSum(size, Widen(Value<T>(0, i)), Widen(Value<T>(1, i)), Widen(Value<T>(2, i)), Widen(Value<T>(3, i))));
  } else {
    return TreeSum(size, Value<T>(0, i), Value<T>(1, i), Value<T>(2, i), Value<T>(3, i));
  }
}

template <typename T>
T ExpectedMax(int size, size_t i) {
  T largest = Value<T>(0, i);
  for (int rank = 1; rank < size; ++rank) {
    const T value = Value<T>(rank, i);
    if constexpr (std::is_same_v<T, Half>) {
      if (Widen(value) > Widen(largest)) largest = value;
    } else {
      if (value > largest) largest = value;
    }
  }
  return largest;
}

template <typename T>
absl::Status CheckAllReduce(Communicator* communicator, DType dtype) {
  const int size = communicator->size();
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    for (const size_t count : {0, 1, 2, 3, 5, 17, 511, 513, 100'003}) {
      OddBuffer<T> data(count);
      for (size_t i = 0; i < count; ++i) data.Set(i, Value<T>(communicator->rank(), i));
      LEEWAY_RETURN_IF_ERROR(communicator->AllReduce(op, dtype, data.data(), static_cast<int64_t>(count)));
      for (size_t i = 0; i < count; ++i) {
        const T expected = op == ReduceOp::kSum ? ExpectedSum<T>(size, i) : ExpectedMax<T>(size, i);
        const T got = data.Get(i);
        EXPECT_THAT_OR_RETURN(std::memcmp(&got, &expected, sizeof(T)) == 0,
                              absl::StrCat(DTypeName(dtype), " element ", i, " of ", count));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AllReduceIsTheTreeOfRanksToTheBit(Communicator* communicator) {
  LEEWAY_RETURN_IF_ERROR(CheckAllReduce<float>(communicator, DType::kF32));
  LEEWAY_RETURN_IF_ERROR(CheckAllReduce<double>(communicator, DType::kF64));
  LEEWAY_RETURN_IF_ERROR(CheckAllReduce<Half>(communicator, DType::kBF16));
  return CheckAllReduce<int64_t>(communicator, DType::kI64);
}

// More than one step of an implementation that works in steps.
absl::Status AllReduceOfALargeArray(Communicator* communicator) {
  const size_t count = 2'400'011;
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = Value<float>(communicator->rank(), i);
  LEEWAY_RETURN_IF_ERROR(communicator->AllReduce(ReduceOp::kSum, DType::kF32, data.data(), count));
  for (size_t i = 0; i < count; ++i) {
    EXPECT_THAT_OR_RETURN(data[i] == ExpectedSum<float>(communicator->size(), i), absl::StrCat("element ", i));
  }
  return absl::OkStatus();
}

absl::Status MaxShowsNotANumber(Communicator* communicator) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int with_nan = 0; with_nan < communicator->size(); ++with_nan) {
    float values[2] = {communicator->rank() == with_nan ? nan : 1.0f, -1.0f};
    LEEWAY_RETURN_IF_ERROR(communicator->AllReduce(ReduceOp::kMax, DType::kF32, values, 2));
    EXPECT_THAT_OR_RETURN(std::isnan(values[0]) && values[1] == -1.0f, absl::StrCat("NaN of rank ", with_nan));
  }
  return absl::OkStatus();
}

// 0, 5, 7, 1 elements: none, prime numbers, unequal.
std::vector<int64_t> UnevenCounts(int size) {
  const std::vector<int64_t> counts = {0, 5, 7, 1};
  return {counts.begin() + (size == 1 ? 1 : 0), counts.begin() + (size == 1 ? 2 : size)};
}

size_t Begin(const std::vector<int64_t>& counts, int rank) {
  int64_t begin = 0;
  for (int r = 0; r < rank; ++r) begin += counts[static_cast<size_t>(r)];
  return static_cast<size_t>(begin);
}

absl::Status ReduceScatterOfUnevenParts(Communicator* communicator) {
  const int size = communicator->size(), rank = communicator->rank();
  const std::vector<int64_t> counts = UnevenCounts(size);
  const size_t whole = Begin(counts, size), begin = Begin(counts, rank);
  for (const bool in_place : {false, true}) {
    OddBuffer<double> input(whole), other(static_cast<size_t>(counts[static_cast<size_t>(rank)]));
    for (size_t i = 0; i < whole; ++i) input.Set(i, Value<double>(rank, i));
    void* output = in_place ? input.at(begin) : other.data();
    LEEWAY_RETURN_IF_ERROR(communicator->ReduceScatter(ReduceOp::kSum, DType::kF64, input.data(), counts, output));
    for (size_t i = 0; i < other.count(); ++i) {
      const double got = in_place ? input.Get(begin + i) : other.Get(i);
      EXPECT_THAT_OR_RETURN(got == ExpectedSum<double>(size, begin + i), absl::StrCat("element ", i));
    }
    for (size_t i = 0; i < whole; ++i) {
      const bool is_own = in_place && i >= begin && i < begin + other.count();
      EXPECT_THAT_OR_RETURN(is_own || input.Get(i) == Value<double>(rank, i), absl::StrCat("input was changed at ", i));
    }
  }
  return absl::OkStatus();
}

absl::Status AllGatherOfUnevenParts(Communicator* communicator) {
  const int size = communicator->size(), rank = communicator->rank();
  const std::vector<int64_t> counts = UnevenCounts(size);
  const size_t own = static_cast<size_t>(counts[static_cast<size_t>(rank)]);
  for (const bool in_place : {false, true}) {
    OddBuffer<Half> output(Begin(counts, size)), input(own);
    for (size_t i = 0; i < own; ++i) {
      input.Set(i, Value<Half>(rank, i));
      if (in_place) output.Set(Begin(counts, rank) + i, Value<Half>(rank, i));
    }
    const void* from = in_place ? output.at(Begin(counts, rank)) : input.data();
    LEEWAY_RETURN_IF_ERROR(communicator->AllGather(DType::kBF16, from, counts, output.data()));
    for (int r = 0; r < size; ++r) {
      for (size_t i = 0; i < static_cast<size_t>(counts[static_cast<size_t>(r)]); ++i) {
        EXPECT_THAT_OR_RETURN(output.Get(Begin(counts, r) + i) == Value<Half>(r, i),
                              absl::StrCat("element ", i, " of rank ", r));
      }
    }
  }
  return absl::OkStatus();
}

// Rank a sends 3a + r elements to rank r.
absl::Status AllToAllOfUnevenParts(Communicator* communicator) {
  const int size = communicator->size(), rank = communicator->rank();
  std::vector<int64_t> sent, received;
  for (int r = 0; r < size; ++r) {
    sent.push_back(3 * rank + r);
    received.push_back(3 * r + rank);
  }
  OddBuffer<int64_t> input(Begin(sent, size)), output(Begin(received, size));
  for (size_t i = 0; i < input.count(); ++i) input.Set(i, Value<int64_t>(rank, i));
  LEEWAY_RETURN_IF_ERROR(communicator->AllToAll(DType::kI64, input.data(), sent, output.data(), received));
  for (int r = 0; r < size; ++r) {
    std::vector<int64_t> of_peer;
    for (int to = 0; to < size; ++to) of_peer.push_back(3 * r + to);
    for (size_t i = 0; i < static_cast<size_t>(received[static_cast<size_t>(r)]); ++i) {
      EXPECT_THAT_OR_RETURN(output.Get(Begin(received, r) + i) == Value<int64_t>(r, Begin(of_peer, rank) + i),
                            absl::StrCat("element ", i, " of rank ", r));
    }
  }
  return absl::OkStatus();
}

absl::Status BroadcastFromEveryRoot(Communicator* communicator) {
  for (int root = 0; root < communicator->size(); ++root) {
    for (const size_t count : {0, 1, 333'333}) {
      OddBuffer<uint8_t> data(count);
      for (size_t i = 0; i < count && communicator->rank() == root; ++i) {
        data.Set(i, static_cast<uint8_t>(i * 7 + static_cast<size_t>(root)));
      }
      LEEWAY_RETURN_IF_ERROR(communicator->Broadcast(DType::kU8, data.data(), static_cast<int64_t>(count), root));
      for (size_t i = 0; i < count; ++i) {
        EXPECT_THAT_OR_RETURN(data.Get(i) == static_cast<uint8_t>(i * 7 + static_cast<size_t>(root)),
                              absl::StrCat("element ", i, " from root ", root));
      }
    }
  }
  return absl::OkStatus();
}

// Three messages from each rank to the next one, in order.
absl::Status MessagesArriveInOrder(Communicator* communicator) {
  const int size = communicator->size(), rank = communicator->rank();
  if (size == 1) return absl::OkStatus();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  std::vector<float> received(3 * 1001);
  const auto send = [&]() -> absl::Status {
    for (int message = 0; message < 3; ++message) {
      std::vector<float> sent(1001 * static_cast<size_t>(message) / 2, static_cast<float>(10 * rank + message));
      LEEWAY_RETURN_IF_ERROR(communicator->Send(DType::kF32, sent.data(), static_cast<int64_t>(sent.size()), next));
    }
    return absl::OkStatus();
  };
  const auto receive = [&]() -> absl::Status {
    for (int message = 0; message < 3; ++message) {
      const size_t count = 1001 * static_cast<size_t>(message) / 2;
      LEEWAY_RETURN_IF_ERROR(
          communicator->Receive(DType::kF32, received.data(), static_cast<int64_t>(count), previous));
      for (size_t i = 0; i < count; ++i) {
        EXPECT_THAT_OR_RETURN(received[i] == static_cast<float>(10 * previous + message),
                              absl::StrCat("message ", message));
      }
    }
    return absl::OkStatus();
  };
  // Somebody has to listen first.
  LEEWAY_RETURN_IF_ERROR(rank == 0 ? receive() : send());
  return rank == 0 ? send() : receive();
}

absl::Status SplitsWorkAtTheSameTime(Communicator* communicator) {
  const int size = communicator->size(), rank = communicator->rank();
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> half, communicator->Split(rank % 2, "half"));
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> whole, communicator->Split(7, "whole"));
  EXPECT_THAT_OR_RETURN(half->name() == "half" && whole->name() == "whole", half->name());
  EXPECT_THAT_OR_RETURN(half->rank() == rank / 2 && half->size() == (size + 1 - rank % 2) / 2, half->size());
  EXPECT_THAT_OR_RETURN(whole->rank() == rank && whole->size() == size, whole->size());
  CommunicationThread halves(half.get()), wholes(whole.get());
  std::vector<std::vector<int64_t>> in_half(20, std::vector<int64_t>(10'000, rank + 1)), in_whole = in_half;
  std::vector<PendingOperation> pending;
  const auto sum_of = [](std::vector<int64_t>* data) {
    return [data](Communicator* c) {
      return c->AllReduce(ReduceOp::kSum, DType::kI64, data->data(), static_cast<int64_t>(data->size()));
    };
  };
  // The two threads of a rank run ahead of each other as they like.
  for (size_t round = 0; round < in_half.size(); ++round) {
    if (rank == 0) pending.push_back(wholes.Issue(sum_of(&in_whole[round])));
    pending.push_back(halves.Issue(sum_of(&in_half[round])));
    if (rank != 0) pending.push_back(wholes.Issue(sum_of(&in_whole[round])));
    LEEWAY_RETURN_IF_ERROR(communicator->Barrier());
  }
  for (const PendingOperation& operation : pending) LEEWAY_RETURN_IF_ERROR(operation.Wait());
  int64_t half_sum = 0;
  for (int r = rank % 2; r < size; r += 2) half_sum += r + 1;
  for (size_t round = 0; round < in_half.size(); ++round) {
    EXPECT_THAT_OR_RETURN(in_half[round] == std::vector<int64_t>(10'000, half_sum), round);
    EXPECT_THAT_OR_RETURN(in_whole[round] == std::vector<int64_t>(10'000, size * (size + 1) / 2), round);
  }
  // Splits of splits, down to single ranks.
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> single, half->Split(half->rank(), "single"));
  EXPECT_THAT_OR_RETURN(single->size() == 1 && single->rank() == 0, single->size());
  return single->Barrier();
}

absl::Status CountersEqualTheClosedForms(Communicator* communicator) {
  const int64_t size = communicator->size();
  const int rank = communicator->rank();
  std::vector<float> data(1200 * 4), other(1200 * 4);
  const std::vector<int64_t> parts(static_cast<size_t>(size), 1200 / size);
  LEEWAY_RETURN_IF_ERROR(communicator->AllReduce(ReduceOp::kSum, DType::kF32, data.data(), 1200));
  LEEWAY_RETURN_IF_ERROR(communicator->AllReduce(ReduceOp::kMax, DType::kBF16, data.data(), 1200));
  LEEWAY_RETURN_IF_ERROR(communicator->ReduceScatter(ReduceOp::kSum, DType::kF32, data.data(), parts, other.data()));
  LEEWAY_RETURN_IF_ERROR(communicator->AllGather(DType::kF32, data.data(), parts, other.data()));
  LEEWAY_RETURN_IF_ERROR(communicator->AllToAll(DType::kF32, data.data(), parts, other.data(), parts));
  LEEWAY_RETURN_IF_ERROR(communicator->Broadcast(DType::kF32, data.data(), 1200, 0));
  LEEWAY_RETURN_IF_ERROR(communicator->Barrier());
  if (size > 1 && rank == 0) LEEWAY_RETURN_IF_ERROR(communicator->Send(DType::kF32, data.data(), 1200, 1));
  if (size > 1 && rank == 1) LEEWAY_RETURN_IF_ERROR(communicator->Receive(DType::kF32, data.data(), 1200, 0));
  LEEWAY_RETURN_IF_ERROR(communicator->Split(0, "copy").status());
  const CollectiveCounters counters = communicator->counters();
  const auto is = [&](Collective collective, int64_t calls, int64_t elements, int64_t bytes) -> absl::Status {
    const CollectiveCounters::PerOperation& of = counters.of(collective);
    EXPECT_THAT_OR_RETURN(of.calls == calls && of.elements == elements && of.bytes_sent == bytes,
                          absl::StrCat(CollectiveName(collective), ": ", of.calls, " calls, ", of.elements,
                                       " elements, ", of.bytes_sent, " bytes"));
    return absl::OkStatus();
  };
  // 1200 elements are 4800 bytes; a quarter, third and half of them are whole numbers.
  const int64_t ring = 4800 / size * (size - 1);
  LEEWAY_RETURN_IF_ERROR(is(Collective::kAllReduce, 2, 2400, 2 * ring + ring));
  LEEWAY_RETURN_IF_ERROR(is(Collective::kReduceScatter, 1, 1200, ring));
  LEEWAY_RETURN_IF_ERROR(is(Collective::kAllGather, 1, 1200, ring));
  LEEWAY_RETURN_IF_ERROR(is(Collective::kAllToAll, 1, 1200, ring));
  LEEWAY_RETURN_IF_ERROR(is(Collective::kBroadcast, 1, 1200, ring));
  LEEWAY_RETURN_IF_ERROR(is(Collective::kBarrier, 1, 0, 0));
  const bool sends = size > 1 && rank == 0, receives = size > 1 && rank == 1;
  LEEWAY_RETURN_IF_ERROR(is(Collective::kSend, sends, sends ? 1200 : 0, sends ? 4800 : 0));
  return is(Collective::kReceive, receives, receives ? 1200 : 0, 0);
}

// The last rank calls Abort, the others an operation.
absl::Status AbortReachesEveryRankAndStays(Communicator* communicator) {
  const int last = communicator->size() - 1;
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> part, communicator->Split(0, "part"));
  const absl::Status expected = absl::AbortedError(absl::StrCat("ranks: aborted by rank ", last, ": the disk is full"));
  // All have both communicators now; the last rank may go on before the others have seen that the barrier is over.
  const absl::Status barrier = communicator->Barrier();
  EXPECT_THAT_OR_RETURN(barrier.ok() || barrier == expected, barrier.ToString());
  if (communicator->rank() == last) communicator->Abort("the disk is full");
  float value = 0;
  for (Communicator* failed : {communicator, part.get(), communicator}) {
    const absl::Status status = failed->AllReduce(ReduceOp::kSum, DType::kF32, &value, 1);
    EXPECT_THAT_OR_RETURN(status == expected, status.ToString());
  }
  // A later reason does not replace the first.
  part->Abort("something else");
  const absl::Status status = communicator->Barrier();
  EXPECT_THAT_OR_RETURN(status == expected, status.ToString());
  EXPECT_THAT_OR_RETURN(communicator->Split(0, "new").status() == expected, "split");
  EXPECT_THAT_OR_RETURN(communicator->counters().of(Collective::kAllReduce).calls == 0, "a failed call was counted");
  return absl::OkStatus();
}

absl::Status AnAbortedPartEndsTheWhole(Communicator* communicator) {
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> part,
                          communicator->Split(communicator->rank() % 2, "part"));
  // Its number is the one that it has in the whole.
  const absl::Status expected =
      absl::AbortedError(absl::StrCat("part: aborted by rank ", communicator->size() - 1, ": why not"));
  const absl::Status barrier = communicator->Barrier();
  EXPECT_THAT_OR_RETURN(barrier.ok() || barrier == expected, barrier.ToString());
  if (communicator->rank() == communicator->size() - 1) part->Abort("why not");
  const absl::Status status = communicator->Barrier();
  EXPECT_THAT_OR_RETURN(status == expected, status.ToString());
  return absl::OkStatus();
}

// Which rank is named first depends on who came first; all ranks see the same text.
absl::Status DifferentOperationsAreBothNamed(Communicator* communicator) {
  if (communicator->size() == 1) return absl::OkStatus();
  std::vector<float> data(10);
  const bool differs = communicator->rank() == 1;
  const absl::Status status = differs ? communicator->Broadcast(DType::kF32, data.data(), 10, 0)
                                      : communicator->AllReduce(ReduceOp::kSum, DType::kF32, data.data(), 10);
  EXPECT_THAT_OR_RETURN(status.code() == absl::StatusCode::kInternal, status.ToString());
  for (const char* part : {"ranks: rank ", " calls ", "rank 1 calls broadcast #1 (F32, 10 elements, root 0)",
                           "all_reduce #1 (sum, F32, 10 elements)"}) {
    EXPECT_THAT_OR_RETURN(status.message().find(part) != absl::string_view::npos, status.ToString());
  }
  const absl::Status next = communicator->Barrier();
  EXPECT_THAT_OR_RETURN(next == status, next.ToString());
  return absl::OkStatus();
}

absl::Status DifferentSizesAreBothNamed(Communicator* communicator) {
  const int size = communicator->size(), rank = communicator->rank();
  if (size == 1) return absl::OkStatus();
  std::vector<float> data(100);
  std::vector<int64_t> counts(static_cast<size_t>(size), 3);
  if (rank == size - 1) counts[0] = 4;
  absl::Status status = communicator->AllGather(DType::kF32, data.data(), counts, data.data() + 50);
  EXPECT_THAT_OR_RETURN(status.code() == absl::StatusCode::kInternal, status.ToString());
  EXPECT_THAT_OR_RETURN(status.message().find(absl::StrCat(3 * size, " elements")) != absl::string_view::npos &&
                            status.message().find(absl::StrCat(3 * size + 1, " elements")) != absl::string_view::npos,
                        status.ToString());
  return absl::OkStatus();
}

// Rank 0 sends one element more than rank 1 expects.
absl::Status UnequalEndsOfAnAllToAllAreNamed(Communicator* communicator) {
  const size_t size = static_cast<size_t>(communicator->size());
  if (size == 1) return absl::OkStatus();
  std::vector<int64_t> sent(size, 2), received(size, 2);
  if (communicator->rank() == 0) sent[1] = 3;
  std::vector<double> input(20), output(20);
  absl::Status status = communicator->AllToAll(DType::kF64, input.data(), sent, output.data(), received);
  // The ends that agree may be over before the others are seen to disagree.
  if (status.ok()) status = communicator->Barrier();
  EXPECT_THAT_OR_RETURN(
      status == absl::InternalError("ranks: all_to_all #1 (F64): rank 0 sends 24 bytes to rank 1, which expects 16"),
      status.ToString());
  return absl::OkStatus();
}

absl::Status UnequalEndsOfAMessageAreNamed(Communicator* communicator) {
  if (communicator->size() == 1) return absl::OkStatus();
  std::vector<double> data(20);
  absl::Status status;
  if (communicator->rank() == 0) status = communicator->Send(DType::kF64, data.data(), 3, 1);
  if (communicator->rank() == 1) status = communicator->Receive(DType::kF64, data.data(), 2, 0);
  // A message may be sent before the receiver looks at it.
  if (status.ok()) status = communicator->Barrier();
  EXPECT_THAT_OR_RETURN(status == absl::InternalError("ranks: rank 0 calls send #1 (F64, 3 elements), but "
                                                      "rank 1 calls receive #1 (F64, 2 elements)"),
                        status.ToString());
  return absl::OkStatus();
}

// What one rank alone can see is told to all.
absl::Status BadArgumentsAreRefusedOnAllRanks(Communicator* communicator) {
  const bool is_wrong = communicator->rank() == communicator->size() - 1;
  std::vector<uint8_t> data(8);
  const absl::Status status = is_wrong ? communicator->AllReduce(ReduceOp::kSum, DType::kU8, data.data(), 8)
                                       : communicator->AllReduce(ReduceOp::kSum, DType::kF32, data.data(), 2);
  const absl::Status expected = absl::InvalidArgumentError(
      absl::StrCat("ranks: rank ", communicator->size() - 1,
                   ": all_reduce #1 (sum, U8, 8 elements): only F32, F64, BF16 and I64 are summed"));
  EXPECT_THAT_OR_RETURN(status == expected, status.ToString());
  return absl::OkStatus();
}

}  // namespace

const std::vector<CommunicatorCheck>& CommunicatorChecks() {
  static const auto* const checks = new std::vector<CommunicatorCheck>{
      {"AllReduceIsTheTreeOfRanksToTheBit", AllReduceIsTheTreeOfRanksToTheBit},
      {"AllReduceOfALargeArray", AllReduceOfALargeArray},
      {"MaxShowsNotANumber", MaxShowsNotANumber},
      {"ReduceScatterOfUnevenParts", ReduceScatterOfUnevenParts},
      {"AllGatherOfUnevenParts", AllGatherOfUnevenParts},
      {"AllToAllOfUnevenParts", AllToAllOfUnevenParts},
      {"BroadcastFromEveryRoot", BroadcastFromEveryRoot},
      {"MessagesArriveInOrder", MessagesArriveInOrder},
      {"SplitsWorkAtTheSameTime", SplitsWorkAtTheSameTime},
      {"CountersEqualTheClosedForms", CountersEqualTheClosedForms},
      {"AbortReachesEveryRankAndStays", AbortReachesEveryRankAndStays},
      {"AnAbortedPartEndsTheWhole", AnAbortedPartEndsTheWhole},
      {"DifferentOperationsAreBothNamed", DifferentOperationsAreBothNamed},
      {"DifferentSizesAreBothNamed", DifferentSizesAreBothNamed},
      {"UnequalEndsOfAnAllToAllAreNamed", UnequalEndsOfAnAllToAllAreNamed},
      {"UnequalEndsOfAMessageAreNamed", UnequalEndsOfAMessageAreNamed},
      {"BadArgumentsAreRefusedOnAllRanks", BadArgumentsAreRefusedOnAllRanks},
  };
  return *checks;
}

}  // namespace leeway
