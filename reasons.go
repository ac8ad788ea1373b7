package belfry

// Reason says why something ended, waits or was put aside. The list is closed, but for the reasons that a
// recheck gives with its drop: those are the caller's own words, see [CustomReason].
type Reason string

// Why a notification or delivery was dropped: it was no longer wanted, or no longer true.
const (
	ReasonOptedOut         Reason = "opted_out"         // the recipient switched this off
	ReasonSuppressed       Reason = "suppressed"        // the address must not be used
	ReasonNoEndpoint       Reason = "no_endpoint"       // nowhere to send it to
	ReasonEndpointRetired  Reason = "endpoint_retired"  // the endpoint was retired, or changed hands, before the send
	ReasonEndpointReplaced Reason = "endpoint_replaced" // the device has a new token; its successor was planned
	ReasonCategoryGone     Reason = "category_gone"     // the category was deleted while it waited
	ReasonRecipientGone    Reason = "recipient_gone"    // the recipient was deleted while it waited
	ReasonConditionLost    Reason = "condition_lost"    // the recheck said no, without a reason of its own
	ReasonCooldown         Reason = "cooldown"          // the last one sent is younger than the category's cooldown
	ReasonCheckUnreachable Reason = "check_unreachable" // the recheck failed for good and the category says drop
	ReasonCheckRefused     Reason = "check_refused"     // the recheck answered nonsense and the category says drop
	ReasonShadow           Reason = "shadow"            // the category only pretends: planned, rechecked, rendered, not sent
	ReasonChannelGone      Reason = "channel_gone"      // no such channel is configured any more
)

// Why a delivery failed: the provider said so, and nobody was told.
const (
	ReasonRefused           Reason = "refused"            // the provider refused the message itself
	ReasonGone              Reason = "gone"               // the provider says the endpoint does not exist
	ReasonAttemptsExhausted Reason = "attempts_exhausted" // every allowed attempt was definitely not accepted
	ReasonPoison            Reason = "poison"             // its worker died three times before sending, alone
	ReasonBadContent        Reason = "bad_content"        // no payload could be made from its data
)

// Why a notification was missed: its deadline passed first.
const (
	ReasonDeadline       Reason = "deadline"      // it was due and waited for a turn, an answer or a retry
	ReasonPaused         Reason = "paused"        // a pause outlived it
	ReasonCheck          Reason = "check"         // the recheck kept answering later, or could not be reached
	ReasonHeldByCooldown Reason = "cooldown_held" // the one before it did not end in time
)

// Why a delivery is unknown, besides the reason it would have ended with.
const (
	ReasonNoAnswer   Reason = "no_answer"   // the request may have arrived; no answer came
	ReasonWorkerLost Reason = "worker_lost" // the worker died or was cut off after the attempt was armed
)

// Why something was cancelled.
const (
	ReasonByCaller Reason = "by_caller" // a cancel of the notification or by filter
)

// Reasons lists every reason of the engine's own with the one-line explanation shown to people.
var Reasons = map[Reason]string{
	ReasonOptedOut:          "the recipient has switched this off",
	ReasonSuppressed:        "the address is suppressed and must not be used",
	ReasonNoEndpoint:        "the recipient had no active endpoint on an allowed channel when it fell due",
	ReasonEndpointRetired:   "the endpoint was retired or changed hands before the send",
	ReasonEndpointReplaced:  "the device registered a new token; the notification went on to that one",
	ReasonCategoryGone:      "the category was deleted before the send",
	ReasonRecipientGone:     "the recipient was deleted before the send",
	ReasonConditionLost:     "the recheck said that it is no longer true",
	ReasonCooldown:          "the last one sent about this subject is younger than the category's cooldown",
	ReasonCheckUnreachable:  "the recheck could not be reached and the category drops then",
	ReasonCheckRefused:      "the recheck gave no usable answer and the category drops then",
	ReasonShadow:            "the category runs in shadow: everything was done except the send",
	ReasonChannelGone:       "the channel is not configured any more",
	ReasonRefused:           "the provider refused the message",
	ReasonGone:              "the provider says the endpoint does not exist any more",
	ReasonAttemptsExhausted: "every allowed attempt was definitely not accepted",
	ReasonPoison:            "the worker died three times while preparing it",
	ReasonBadContent:        "no payload could be made from its data",
	ReasonDeadline:          "the deadline passed before it could be sent",
	ReasonPaused:            "the deadline passed while a pause held it",
	ReasonCheck:             "the deadline passed before the recheck said send",
	ReasonHeldByCooldown:    "the deadline passed while the one before it was still on its way",
	ReasonNoAnswer:          "the provider may have accepted it, but no answer came",
	ReasonWorkerLost:        "the worker was lost after the attempt may have reached the wire",
	ReasonByCaller:          "it was cancelled",
}

const maxReason = 64

// CustomReason accepts the reason a recheck gives with its drop: 1 to 64 of a-z, 0-9 and _.
// Anything else becomes [ReasonConditionLost].
func CustomReason(s string) Reason {
	if len(s) == 0 || len(s) > maxReason {
		return ReasonConditionLost
	}
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return ReasonConditionLost
		}
	}
	return Reason(s)
}
