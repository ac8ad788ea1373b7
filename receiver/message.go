package receiver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"time"
)

// MaxID is how many bytes an id may have.
const MaxID = 255

// Message is one message as it arrived. Only ID is needed.
type Message struct {
	// ID is what the sender repeats when it sends the same message again: 1 to [MaxID] bytes of visible ASCII.
	// For ids in another form, or made of personal data, see [Key].
	ID string
	// Body is compared by SHA-256 with that of the first message with this ID, byte by byte as received. Nil is not
	// compared.
	Body []byte
	// Epoch grows each time the sender hands the message to another of its workers; 0: the sender has none.
	Epoch int64
	// NotAfter is when the message stops to matter; a message is still taken in that very second. Zero: never.
	NotAfter time.Time
}

// Result is what became of a message. Its text is also the value of the header [HeaderResult].
type Result string

const (
	Applied   Result = "applied"   // new: the effect ran
	Duplicate Result = "duplicate" // the id is known: nothing ran
	Conflict  Result = "conflict"  // the id is known with another body, a fault of the sender: nothing ran
	// Stale is a copy from before one that was applied: a lower epoch. Nothing ran.
	Stale Result = "stale_epoch"
	// Expired came after NotAfter: nothing ran, nothing is remembered.
	Expired Result = "expired"
	// SetAside has failed too often: it is kept for somebody to look at, see [Receiver.Asides], and counts as known.
	SetAside Result = "set_aside"
)

// Errors of [Receiver.Once] and [Receiver.Handle]; compare with [errors.Is].
var (
	ErrBadID = errors.New("receiver: an id must be 1 to 255 bytes of visible ASCII; make one with Key")
	// ErrOutcomeUnknown means that the connection broke during the commit: the effect happened, or it did not. Let
	// the sender send again; then it shows.
	ErrOutcomeUnknown = errors.New("receiver: the commit was not confirmed, so the effect may have happened; let the message come again")
)

// Later marks the error of an effect as no fault of the message, such as a service that is down: it is not counted
// towards setting the message aside, and the sender is asked to wait for after (0: as it likes).
func Later(after time.Duration, err error) error { return &later{after, err} }

type later struct {
	after time.Duration
	err   error
}

func (l *later) Error() string { return l.err.Error() }
func (l *later) Unwrap() error { return l.err }

func (m Message) check() error {
	if m.ID == "" || len(m.ID) > MaxID {
		return ErrBadID
	}
	for i := range len(m.ID) {
		if m.ID[i] <= ' ' || m.ID[i] > '~' {
			return ErrBadID
		}
	}
	if m.Epoch < 0 {
		return fmt.Errorf("receiver: an epoch is not negative, this one is %d", m.Epoch)
	}
	return nil
}

func (m Message) expired(now time.Time) bool {
	return !m.NotAfter.IsZero() && now.Unix() > m.NotAfter.Unix()
}

func (m Message) fingerprint() []byte {
	if m.Body == nil {
		return nil
	}
	sum := sha256.Sum256(m.Body)
	return sum[:]
}

// Key makes an id of parts, such as a queue's name and a record's number: 43 characters, whatever the parts are. Parts
// keep their borders, so ("ab", "c") and ("a", "bc") differ.
//
// The parts cannot be read from the key. But whoever can guess a part can check the guess, and an e-mail address or a
// phone number is quickly guessed: with such parts give a secret of at least 16 random bytes and keep it for as long
// as ids are remembered. Nil is no secret.
func Key(secret []byte, parts ...string) string {
	var h hash.Hash
	if secret == nil {
		h = sha256.New()
	} else {
		h = hmac.New(sha256.New, secret)
	}
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
