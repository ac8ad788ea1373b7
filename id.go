package belfry

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ID names a notification, an endpoint or a claim: 41 bits of milliseconds since [idEpoch], 10 bits of
// node, 12 bits of sequence. IDs of one node grow with time. The zero ID names nothing.
type ID int64

// DeliveryID names one delivery: the notification and the ordinal (from 1) of the delivery in it.
// Its text is the stable id that a provider or webhook receiver sees on every attempt.
type DeliveryID struct {
	Notification ID
	N            int
}

var idEpoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// Bounds of the parts of an [ID].
const (
	MaxNode = 1<<10 - 1
	MaxSeq  = 1<<12 - 1
)

// MakeID composes an ID. Times before 2024 count as its first millisecond.
func MakeID(at time.Time, node, seq uint16) ID {
	ms := max(at.Sub(idEpoch).Milliseconds(), 0)
	return ID(ms<<22 | int64(node&MaxNode)<<12 | int64(seq&MaxSeq))
}

// Time is the instant in which the ID was made, to the millisecond.
func (id ID) Time() time.Time { return idEpoch.Add(time.Duration(id>>22) * time.Millisecond) }

const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz" // Crockford's base32, lower case
const idLength = 13

// String is 13 characters of Crockford's base32; it sorts as the ID does.
func (id ID) String() string {
	var b [idLength]byte
	v := uint64(id)
	for i := idLength - 1; i >= 0; i-- {
		b[i] = idAlphabet[v&31]
		v >>= 5
	}
	return string(b[:])
}

var errID = errors.New("not an id: want 13 characters of 0-9 a-z without i, l, o, u")

// ParseID reads what [ID.String] writes.
func ParseID(s string) (ID, error) {
	if len(s) != idLength {
		return 0, errID
	}
	var v uint64
	for i := range len(s) {
		d := strings.IndexByte(idAlphabet, s[i])
		if d < 0 || (i == 0 && d > 7) {
			return 0, errID
		}
		v = v<<5 | uint64(d)
	}
	if v == 0 {
		return 0, errID
	}
	return ID(v), nil
}

func (id ID) MarshalText() ([]byte, error) {
	if id == 0 {
		return nil, nil
	}
	return []byte(id.String()), nil
}

func (id *ID) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*id = 0
		return nil
	}
	*id, err = ParseID(string(b))
	return err
}

// String is the notification's id and the ordinal, joined by a dash: no dot, as Standard Webhooks 1.0
// asks of a webhook-id.
func (d DeliveryID) String() string { return d.Notification.String() + "-" + strconv.Itoa(d.N) }

// ParseDeliveryID reads what [DeliveryID.String] writes.
func ParseDeliveryID(s string) (DeliveryID, error) {
	head, tail, ok := strings.Cut(s, "-")
	n, err := strconv.Atoi(tail)
	if !ok || err != nil || n < 1 || n > MaxDeliveries || strconv.Itoa(n) != tail {
		return DeliveryID{}, fmt.Errorf("not a delivery id: want a notification id, a dash and 1 to %d", MaxDeliveries)
	}
	id, err := ParseID(head)
	return DeliveryID{id, n}, err
}

func (d DeliveryID) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *DeliveryID) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDeliveryID(string(b))
	return err
}
