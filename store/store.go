// Package store is the seam to durable state: what the engine needs to remember, and the promises a
// driver makes about it. storetest.Run is the contract; a driver is a folder that passes it.
//
// The promises, in short: every method is one transaction; what a method acknowledged survives a kill of
// the process and, with the driver's default settings, a power cut; rules are decided by package belfry
// on what the transaction read, never by SQL of the driver's own; all methods are safe for concurrent use;
// time is an argument. Concurrent calls of Enqueue, Claim, Arm and Settle may share a commit.
//
// Where a row stands is its state: a notification or delivery that waits is in the waiting room, one that
// a worker holds is in that worker's claim, one that ended is in the archive; in one of them only.
//
// What names something that is not there, or is another project's, gets a *belfry.Error with
// belfry.CodeNotFound; lists are empty then, but for those of a recipient's endpoints.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"belfry"
)

// Store is everything a driver provides.
type Store interface {
	Intake
	Work
	People
	Policy
	Archive

	// Ping says whether the store can be written to now; the error says what is wrong and what to do.
	Ping(ctx context.Context) error
	// Close waits for what was acknowledged and lets go of the data.
	Close() error
}

// ErrGone is returned by Arm when the claim is not held any more: somebody took it over. The worker must
// not send.
var ErrGone = errors.New("store: the claim is not held any more")

// Intake takes notifications in and calls them back.
type Intake interface {
	// Enqueue writes the entries, as if one by one in their order. With atomic, one refused entry refuses
	// all: nothing is written, and the answers of the others mean nothing. The results are in the order of
	// the entries; an entry that was refused has its error in Err and leaves nothing behind, so that its
	// key can be used again. Refused are: a key that was used for another request (belfry.CodeKeyReused), a
	// key that the batch has used before (CodeKeyDuplicate), a recipient that does not exist, where no
	// targets are named (CodeUnknownRecipient), and a Fact that fails.
	Enqueue(ctx context.Context, entries []Entry, atomic bool) ([]Enqueued, error)
	// Cancel ends the notifications that match and are not on the wire, as far as limit goes; with dryRun
	// it only counts. More says that there may be others: call again. What was in flight in an earlier
	// call by a filter counts no more, so that calling again comes to an end. A filter with an ID finds that
	// one or says belfry.CodeNotFound.
	Cancel(ctx context.Context, now time.Time, f Filter, dryRun bool, limit int) (Cancelled, error)
}

// Entry is a notification to be enqueued.
type Entry struct {
	Notification belfry.Notification
	Queue        string  // where it waits to be planned: see belfry.Notification.Queue
	Key          Key     // zero: none was given
	Inline       *Inline // the recipient to make or update in the same transaction
	// Fact names the fact of a once, from the recipient's zone. Nil without a once.
	Fact func(zone string) (string, error)
}

// Request is what a caller asks to enqueue, as the engine takes it; the engine makes an [Entry] of it. A
// request whose Key was used before is answered from that use, or refused with
// belfry.CodeKeyReused, even where it would be refused for another reason today.
type Request struct {
	belfry.Request          // with its idempotency key in Key
	LocalTime      string   // instead of At: wall time in the recipient's zone, as 2026-12-01T09:00 or with :05
	Inline         *Inline  // the recipient to make or update with it; the engine fills in the IDs
	Fingerprint    [32]byte // of the canonical request; a repeated key must come with the same one
}

// Forecast is what would happen to a request if it were enqueued and due now. Nothing was written for it.
type Forecast struct {
	State      belfry.State  // scheduled: it would be held; sending: see Deliveries; or the end it would come to
	Reason     belfry.Reason // why it would end or be held
	Due        time.Time
	Deadline   time.Time
	Deliveries []belfry.Delivery
	Verdict    belfry.VerdictKind // of its recheck; "" when the category has none
	Detail     string             // for people
	Duplicate  belfry.ID          // the notification that has told the fact already, or has the key
}

// Inline is a recipient given with a notification. A repeated key does not touch it.
type Inline struct {
	Recipient     belfry.Recipient
	Registrations []belfry.Registration
	IDs           []belfry.ID // for the endpoints, as many as there are registrations
}

// Key is an idempotency key and what it was used for.
type Key struct {
	Text        string
	Fingerprint [32]byte // of the canonical request
	Expires     time.Time
}

// Enqueued is the answer to an entry. A repeated key gets the first answer again, field by field. A
// duplicate gets the state and times of the first one as they are now; none once that was purged.
type Enqueued struct {
	ID        belfry.ID     `json:"id"`
	Duplicate bool          `json:"duplicate,omitempty"` // of a fact told already: ID is the first one's
	State     belfry.State  `json:"state"`
	Reason    belfry.Reason `json:"reason,omitempty"`
	Due       time.Time     `json:"due"`
	Deadline  time.Time     `json:"deadline"`
	Zone      string        `json:"zone,omitempty"` // the recipient's, when it was enqueued
	Expires   time.Time     `json:"expires,omitzero"`

	Replayed bool  `json:"-"` // answered from the idempotency key
	Err      error `json:"-"` // why the entry was refused: a *belfry.Error
}

// Filter picks notifications. Zero fields match everything.
type Filter struct {
	Project   string
	ID        belfry.ID
	Recipient string
	Category  string
	Subject   string
	State     belfry.State // summary state
	Reason    belfry.Reason
	Since     time.Time // created at or after
	Until     time.Time // created before
}

// Cancelled counts what a cancel did.
type Cancelled struct {
	Cancelled []belfry.ID // stopped: nothing more of it is sent, though it may end unknown or sent
	InFlight  []belfry.ID // armed: asked to stop, no promise; what of it was not armed is stopped
	Ended     []belfry.ID // had ended before: told of the one that a filter names by its ID
	More      bool
}

// Work is the engine's side: what is due, who holds it, what came of it.
type Work interface {
	// Heads tells for every queue, lane and project with something waiting when its first is due.
	Heads(ctx context.Context) ([]Head, error)
	// Claim takes what is due out of the waiting rooms, the first due first, one claim per take that found
	// something. An item marked to be claimed alone makes a claim of its own: a take stops before it, or
	// takes only it. What is Parked is claimed there when its due time comes, past its deadline too.
	Claim(ctx context.Context, now time.Time, owner Owner, takes []Take) ([]Claim, error)
	// Facts reads what bears on each item, in one snapshot, in the order of the items.
	Facts(ctx context.Context, items []Item) ([]belfry.Facts, error)
	// Arm carries out what was prepared for a claim. Every delivery it is to send is judged once more, by
	// belfry.Delivery.Arm on facts read in this transaction; one that passes is armed and stays in the
	// claim, all others leave it. ErrGone when the claim was taken over; it may be said too when nothing of
	// the claim is left. What was cancelled or withdrawn in the meantime is passed over. Armed a second
	// time, a claim stays as it is.
	//
	// In a category with a cooldown one notification about a (recipient, category, subject) is in flight,
	// from its plan to its end. The tries of another one are not looked at: it is parked until its deadline
	// (event held, reason cooldown_held), and woken when the one in flight has ended.
	Arm(ctx context.Context, a Arm) ([]Armed, error)
	// Settle records what armed tries came to. A settlement whose claim was taken over is a late word,
	// and moves what evidence may move. The results are in the order of the settlements.
	//
	// A delivery that becomes sent moves the mark of its subject, forward only; not of a recipient that was
	// erased. An answer gone retires the endpoint, unless it was registered after the try was armed, and
	// withdraws what else waits for it. A notification ends when none of its deliveries is open, by
	// belfry.NotificationState; a route first goes on to its next stage instead, when it would be failed or
	// dropped, no cancel was asked for, and it names no targets of its own.
	Settle(ctx context.Context, s []Settlement) ([]Settled, error)
	// Repair takes over up to limit claims whose lease ended before now or whose owner is gone. What was
	// not armed waits again, due now; what was armed is tried again after the policy's delay for as many
	// tries as it has had. policy must not call the store.
	Repair(ctx context.Context, now time.Time, policy func(project, category string) belfry.RetryPolicy, limit int) (Repaired, error)
}

// Owner is who claims, and until when it is believed to hold the claim. Arm extends the lease of its claim.
type Owner struct {
	ID    belfry.ID // of this run of the process
	Lease time.Time
}

// Head is the first of those that wait together.
type Head struct {
	Queue   string // a channel; "": to be planned onto several; Parked: held by a pause or a cooldown
	Lane    belfry.Lane
	Project string
	Due     time.Time
}

// Parked is the queue of what waits for a pause or a cooldown to end; it is due when the pause ends, or with
// its deadline. A delivery that waits for the reason paused stands here.
const Parked = "~parked"

// Take asks for up to Limit items of one head's queue, lane and project, under the claim's id.
type Take struct {
	Claim   belfry.ID
	Queue   string
	Lane    belfry.Lane
	Project string
	Limit   int
}

// Item is a unit of work: a notification to be planned, or a delivery to be tried.
type Item struct {
	Notification belfry.Notification
	Delivery     *belfry.Delivery // nil: the notification is to be planned
	Wait         Wait             // of a notification to be planned
	Due          time.Time
}

// Wait is what a notification that is to be planned has behind it.
type Wait struct {
	Stage     int  `json:"stage,omitempty"`     // channels of a route first that were tried
	From      int  `json:"from,omitempty"`      // deliveries it has had
	Losses    int  `json:"losses,omitempty"`    // claims lost while it was claimed alone
	Alone     bool `json:"alone,omitempty"`     // to be claimed alone
	Deferrals int  `json:"deferrals,omitempty"` // how often its recheck put it off
	// Reason is what keeps it waiting past its due time, if anything: what it is missed for.
	Reason belfry.Reason `json:"reason,omitempty"`
}

// Claim is a worker's hold on some items.
type Claim struct {
	ID    belfry.ID
	Owner belfry.ID
	Alone bool
	Items []Item
}

// Arm is what was prepared for the items of a claim: one step each, in their order.
type Arm struct {
	Claim  Claim
	Owner  Owner // with the lease extended over the send
	Now    time.Time
	Jitter float64
	Known  []string // the configured channels
	Steps  []Step
}

// Step is what is to be done with one item: exactly one of End, Wait and Tries.
type Step struct {
	End     *End // missed for the deadline becomes missed for what kept it waiting, if anything did
	Wait    *Until
	Tries   []Try     // of a notification: its planned deliveries, not taken yet; of a delivery: itself
	Stage   int       // with Tries of a notification: see belfry.Planned
	Checked time.Time // when its recheck said send; zero without one
}

// End is an end and its reason.
type End struct {
	State  belfry.State
	Reason belfry.Reason
	Detail string // for people
}

// Until puts an item back into a waiting room. Past its deadline the item is missed, for the reason.
type Until struct {
	At time.Time
	// Reason is paused: parked, for as long as a pause holds it by then (given back when none does); check:
	// put off by its recheck; "": given back; another: kept waiting for it.
	Reason belfry.Reason
	Detail string
}

// Try is one delivery of an item, with the payload it would send.
type Try struct {
	Delivery belfry.Delivery
	Payload  []byte
	Send     bool   // there is room to send it now; else it waits in its channel's queue
	Detail   string // with a delivery that ended in preparation: for people
}

// Armed is what became of a try: look at Delivery.Armed before sending.
type Armed struct {
	Step, Try int
	Delivery  belfry.Delivery
	Endpoint  belfry.Endpoint // as it stands now
}

// Settlement is what one armed try came to.
type Settlement struct {
	Claim        belfry.ID
	Notification belfry.Notification
	Delivery     belfry.Delivery // as Arm returned it
	Endpoint     belfry.Endpoint
	Answer       belfry.Answer
	Policy       belfry.RetryPolicy
	Now          time.Time
	Jitter       float64
	MarkData     json.RawMessage // what the mark keeps when this try made it sent
}

// Settled is where the delivery stands now.
type Settled struct {
	Delivery belfry.Delivery // after all that the settlement brought with it
	Late     bool            // the claim did not hold it any more, or the try was settled before
	Summary  belfry.State    // the notification's end; "" while it is open
}

// Repaired counts what Repair did.
type Repaired struct {
	Claims    int
	Returned  int // given back unarmed
	Ambiguous int // had been armed
	Poison    int // ended instead of given back
}

// People is who can be told, where, and what they want.
type People interface {
	// PutRecipient makes or updates a recipient; what is empty keeps its old value.
	PutRecipient(ctx context.Context, now time.Time, r belfry.Recipient) (belfry.Recipient, error)
	Recipient(ctx context.Context, project, id string) (belfry.Recipient, error)
	// DeleteRecipient erases the recipient, its endpoints, preferences, marks and the personal data of its
	// notifications: data, targets and payloads. What waits is dropped, planned or not, and counts as
	// withdrawn; what is on the wire may still be settled.
	DeleteRecipient(ctx context.Context, now time.Time, project, id string) (Withdrawn, error)

	Preferences(ctx context.Context, project, recipient string) (belfry.Preferences, error)
	// ChangePreferences applies the changes, after clearing all with replace, and withdraws what they
	// forbid. Like every change of intent it withdraws whatever the recipient's intent forbids by then:
	// deliveries that wait, are parked, or are claimed and not armed. A notification that is not planned
	// yet is for its plan to judge.
	ChangePreferences(ctx context.Context, now time.Time, project, recipient string, changes []belfry.PreferenceChange, replace bool) (Withdrawn, error)

	// Register makes an endpoint known: the same one again is idempotent (it is registered now, and keeps
	// the device and keys that are not given again), a new address of a device retires the old one, a token
	// moves to its new owner, as a new endpoint. A retired one never comes back.
	//
	// What waits for an endpoint that is replaced for the same recipient is handed on: it is withdrawn
	// (endpoint_replaced), and a successor is planned to the new endpoint, due now, as the next delivery of
	// its notification, unless it may have arrived or the notification goes to that endpoint anyway. What
	// waits for an endpoint whose device or token has another owner now is withdrawn (endpoint_retired).
	Register(ctx context.Context, now time.Time, project string, id belfry.ID, r belfry.Registration) (Registered, error)
	Endpoints(ctx context.Context, project, recipient string) ([]belfry.Endpoint, error)
	// Retire ends an endpoint and withdraws what waits for it. Retired again it stays as it was.
	Retire(ctx context.Context, now time.Time, project, recipient string, id belfry.ID, why belfry.Reason) (Withdrawn, error)

	Suppress(ctx context.Context, s belfry.Suppression) (Withdrawn, error)
	Unsuppress(ctx context.Context, project, channel string, address belfry.Secret) error
	// Suppressions lists by address, then channel; after is the last address seen.
	Suppressions(ctx context.Context, project string, after string, limit int) ([]belfry.Suppression, error)

	// Marks lists by category, then subject; an empty one matches all.
	Marks(ctx context.Context, project, recipient, category, subject string) ([]Mark, error)
}

// Withdrawn is what a change of intent stopped, and what it came too late for.
type Withdrawn struct {
	Withdrawn int
	InFlight  []belfry.DeliveryID
}

// Registered is what a registration came to.
type Registered struct {
	Endpoint belfry.Endpoint
	Created  bool
	Replaced belfry.ID // the endpoint that this one took the place of; one of them, when there were two
	Withdrawn
}

// Mark is a mark with its key.
type Mark struct {
	Category string `json:"category"`
	Subject  string `json:"subject"`
	belfry.Mark
}

// Policy is what operators set: projects, categories, pauses, keys.
type Policy interface {
	// Projects lists the names of the projects; "default" is always there.
	Projects(ctx context.Context) ([]string, error)
	PutProject(ctx context.Context, now time.Time, name string) error

	PutCategory(ctx context.Context, c belfry.Category) error
	// Category is as it was put: call Resolved on it. A project's "default" exists from the start.
	Category(ctx context.Context, project, name string) (belfry.Category, error)
	Categories(ctx context.Context, project string) ([]belfry.Category, error)
	// DeleteCategory of "default" brings back the one from the start.
	DeleteCategory(ctx context.Context, project, name string) error

	// PutPause sets a pause; it excludes arms while it commits.
	PutPause(ctx context.Context, p belfry.Pause) error
	// LiftPause ends a pause and wakes what pauses of its project held (all, for a pause of everything): it
	// goes back to its own queue, due now, to be judged again.
	LiftPause(ctx context.Context, now time.Time, project string, id belfry.ID) error
	// Pauses lists a project's pauses and, with "", those of everything.
	Pauses(ctx context.Context, project string) ([]belfry.Pause, error)

	PutKey(ctx context.Context, k AccessKey) error
	Key(ctx context.Context, id string) (AccessKey, error)
	Keys(ctx context.Context, project string) ([]AccessKey, error)
	// RevokeKey of one that was revoked keeps the first time.
	RevokeKey(ctx context.Context, now time.Time, project, id string) error

	// Secret is the text kept under a name; fresh is kept and returned when there is none yet.
	Secret(ctx context.Context, name string, fresh belfry.Secret) (belfry.Secret, error)
}

// AccessKey is an API key as it is stored: the secret's hash only.
type AccessKey struct {
	ID        string    `json:"id"`
	Project   string    `json:"project"`
	Name      string    `json:"name,omitempty"`
	Scopes    []string  `json:"scopes"`
	Hash      [32]byte  `json:"-"` // SHA-256 of the secret
	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// Archive is what is read back.
type Archive interface {
	// Notification tells the whole story of one notification.
	Notification(ctx context.Context, project string, id belfry.ID) (Story, error)
	// Notifications lists those that match, the newest first, older than before (0: from the newest).
	// It may return fewer than limit, even none, with a next to go on from; 0 when there are no more.
	Notifications(ctx context.Context, f Filter, before belfry.ID, limit int) (list []Summary, next belfry.ID, err error)
	// Newest is the highest id of a notification in any project, 0 when there is none: ids go on after it,
	// though the clock went back between two runs.
	Newest(ctx context.Context) (belfry.ID, error)
	// Stats counts by state and reason, without counting rows.
	Stats(ctx context.Context, project string) (Stats, error)
	// Purge deletes up to limit notifications that ended before rows, wipes the content (data and
	// payloads) of those that ended before content, and forgets expired keys. It says how many it touched;
	// keys and facts that have not expired stay, though their notification goes.
	Purge(ctx context.Context, now time.Time, content, rows time.Time, limit int) (int, error)
}

// Story is a notification with everything that happened to it.
type Story struct {
	Summary
	Recipient  *belfry.Recipient // nil when it is gone
	Duplicates int               // later detections of the same fact
	Deliveries []DeliveryStory   // in the order of their numbers
	Events     []Event           // what is not told by the deliveries: holds, deferrals, lost claims
}

// Summary is a notification and where it stands. An open one is scheduled until it is first planned; then
// sent when one of its deliveries is, else sending, as while a worker plans it.
type Summary struct {
	belfry.Notification
	State   belfry.State
	Reason  belfry.Reason // of an end: that of the first delivery that ended in this state, or of its plan
	EndedAt time.Time     // when it ended first; evidence that moves an unknown does not change it
	Waits   time.Time     // until when it waits, the first of its deliveries; zero when none does
}

// DeliveryStory is a delivery and where it stands.
type DeliveryStory struct {
	belfry.Delivery
	EndedAt  time.Time
	Endpoint belfry.Endpoint // as it stands now; zero when it is gone
}

// Event is something that happened to a notification on its way.
type Event struct {
	At     time.Time     `json:"at"`
	N      int           `json:"delivery,omitempty"` // 0: the notification as a whole
	Kind   EventKind     `json:"kind"`
	Reason belfry.Reason `json:"reason,omitempty"`
	Until  time.Time     `json:"until,omitzero"`
	Detail string        `json:"detail,omitempty"`
}

// EventKind names an event.
type EventKind string

const (
	EventHeld       EventKind = "held"        // by a pause or a cooldown
	EventDeferred   EventKind = "deferred"    // by its recheck
	EventLost       EventKind = "worker_lost" // its claim was taken over
	EventCancelWant EventKind = "cancel_requested"
	EventWithdrawn  EventKind = "withdrawn"
	EventLateWord   EventKind = "late_word" // evidence that came after the claim was taken over
	EventNextStage  EventKind = "next_channel"
	EventEnded      EventKind = "ended" // with a detail worth keeping
)

// Stats are counters, kept as rows move.
type Stats struct {
	Waiting int          `json:"waiting"` // notifications and deliveries in the waiting rooms
	Sending int          `json:"sending"` // those that are claimed
	Ended   []EndedCount `json:"ended"`
	Oldest  time.Time    `json:"oldest_due,omitzero"` // the first due of what waits and is not parked
}

// EndedCount counts notifications that ended alike.
type EndedCount struct {
	Project string        `json:"project"`
	State   belfry.State  `json:"state"`
	Reason  belfry.Reason `json:"reason,omitempty"`
	Count   int           `json:"count"`
}
