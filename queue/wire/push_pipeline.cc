#include "queue/wire/push_pipeline.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace leeway {

void PushPipeline::Add(std::string payload, Done done) {
  unsent_bytes_ += payload.size();
  items_.push_back({std::make_shared<const std::string>(std::move(payload)), std::move(done)});
}

bool PushPipeline::NextMessage(MonotonicTime now, PayloadMessage* message) {
  message->Clear();
  uint64_t room = max_chunk_bytes_;
  // A trajectory that is half out when FULL comes is finished: the queue would take its pieces for those of the next
  // one.
  while (sent_ < items_.size() && (offset_ > 0 || (full_ == 0 && now >= not_before_ && HasCredit()))) {
    const PayloadMessage::Payload& payload = items_[sent_].payload;
    const uint64_t left = payload->size() - offset_;
    // A message that is nearly full is sent rather than topped up with a splinter of a large trajectory.
    if (room == 0 || (room < max_chunk_bytes_ && left > room)) break;
    if (message->empty()) message->AddFields(head_);
    const uint64_t size = std::min(left, room);
    chunk_.set_sequence(first_sequence_ + sent_);
    chunk_.set_total_bytes(payload->size());
    chunk_.set_last(size == left);
    message->AddElement(v1::PushRequest::kChunksFieldNumber, chunk_, v1::PushChunk::kDataFieldNumber, payload, offset_,
                        size);
    room -= size;
    unsent_bytes_ -= size;
    offset_ += size;
    if (offset_ == payload->size()) {
      ++sent_;
      sent_bytes_ += payload->size();
      offset_ = 0;
    }
  }
  return !message->empty();
}

bool PushPipeline::HasCredit() const {
  if (sent_ == 0) return true;
  if (credits_.pushes > 0 && sent_ >= credits_.pushes) return false;
  return credits_.bytes == 0 || sent_bytes_ + items_[sent_].payload->size() <= credits_.bytes;
}

bool PushPipeline::fills_message() const {
  return unsent_bytes_ >= max_chunk_bytes_ || (credits_.pushes > 0 && items_.size() >= credits_.pushes) ||
         (credits_.bytes > 0 && sent_bytes_ + unsent_bytes_ >= credits_.bytes);
}

MonotonicTime PushPipeline::NextSend(MonotonicTime now) const {
  if (sent_ == items_.size()) return MonotonicTime::InfiniteFuture();
  if (offset_ > 0) return now;
  return full_ > 0 || !HasCredit() ? MonotonicTime::InfiniteFuture() : not_before_;
}

absl::Status PushPipeline::OnAnswers(v1::PushResponse* response, MonotonicTime now, Callbacks* callbacks) {
  for (v1::PushAnswer& answer : *response->mutable_answers()) {
    const uint64_t expected = first_sequence_ + full_;
    if (answer.sequence() != expected || full_ >= sent_ || (full_ > 0 && answer.result() != v1::FULL)) {
      return absl::InternalError(absl::StrCat("the queue answered push ", answer.sequence(), " with ",
                                              v1::PushResult_Name(answer.result()), " while push ", expected, " of ",
                                              sent_, " sent was to be answered", full_ > 0 ? " with FULL" : ""));
    }
    if (answer.result() == v1::FULL) {
      ++full_;
      not_before_ = std::max(not_before_, now + absl::Milliseconds(static_cast<int64_t>(answer.retry_after_ms())));
    } else {
      sent_bytes_ -= items_.front().payload->size();
      callbacks->push_back({std::move(items_.front().done), std::move(answer)});
      items_.pop_front();
      ++first_sequence_;
      --sent_;
    }
    if (full_ > 0 && full_ == sent_ && offset_ == 0) SendAgain();
  }
  return absl::OkStatus();
}

void PushPipeline::OnDisconnected() {
  SendAgain();
  not_before_ = MonotonicTime();
}

void PushPipeline::SendAgain() {
  sent_ = 0;
  sent_bytes_ = 0;
  offset_ = 0;
  full_ = 0;
  unsent_bytes_ = 0;
  for (const Item& item : items_) unsent_bytes_ += item.payload->size();
}

void PushPipeline::FailAll(const absl::Status& status, Callbacks* callbacks) {
  for (Item& item : items_) callbacks->push_back({std::move(item.done), status});
  first_sequence_ += items_.size();
  items_.clear();
  SendAgain();
}

}  // namespace leeway
