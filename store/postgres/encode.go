package postgres

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"belfry"
	"belfry/store"
)

// appendDelivery writes what json.Marshal would, several times as fast: a delivery is encoded at every
// step of its life. A test holds the two against each other.
func appendDelivery(b []byte, d *belfry.Delivery) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, d.ID.String()...)
	b = append(b, '"')
	b = appendText(b, "state", string(d.State))
	b = appendText(b, "reason", string(d.Reason))
	b = appendText(b, "mode", string(d.Mode))
	b = appendText(b, "channel", d.Channel)
	b = appendID(b, "endpoint", d.Endpoint)
	b = appendInt(b, "target", d.Target)
	b = appendText(b, "device", d.Device)
	b = appendBool(b, "sole", d.Sole)
	b = appendTime(b, "next", d.Next)
	b = appendTime(b, "deadline", d.Deadline)
	b = appendID(b, "claim", d.Claim)
	b = appendBool(b, "armed", d.Armed)
	b = appendBool(b, "cancel", d.Cancel)
	b = appendInt(b, "losses", d.Losses)
	b = appendBool(b, "alone", d.Alone)
	b = appendInt(b, "deferrals", d.Deferrals)
	if len(d.Attempts) > 0 {
		b = append(b, `,"attempts":[`...)
		for i := range d.Attempts {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendAttempt(b, &d.Attempts[i])
		}
		b = append(b, ']')
	}
	if len(d.Payload) > 0 {
		b = append(b, `,"payload":"`...)
		b = base64.StdEncoding.AppendEncode(b, d.Payload)
		b = append(b, '"')
	}
	b = appendBool(b, "frozen", d.Frozen)
	return append(b, '}')
}

func appendAttempt(b []byte, a *belfry.Attempt) []byte {
	b = append(b, `{"claim":"`...)
	b = append(b, a.Claim.String()...)
	b = append(b, '"')
	b = appendTime(b, "armed_at", a.ArmedAt)
	b = appendTime(b, "answered", a.Answered)
	b = appendBool(b, "lost", a.Lost)
	b = appendText(b, "outcome", string(a.Outcome))
	b = appendInt(b, "after", int(a.After))
	b = appendInt(b, "status", a.Status)
	b = appendText(b, "ref", a.Ref)
	b = appendText(b, "detail", a.Detail)
	b = appendBool(b, "frozen", a.Frozen)
	return append(b, '}')
}

func appendItem(b []byte, item *store.Item, home string, erased bool) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, item.Notification.ID.String()...)
	b = append(b, '"')
	b = appendText(b, "project", item.Notification.Project)
	b = appendText(b, "recipient", item.Notification.Recipient)
	b = appendText(b, "home", home)
	b = append(b, `,"due":`...)
	b = strconv.AppendInt(b, micros(item.Due), 10)
	b = appendBool(b, "erased", erased)
	if d := item.Delivery; d != nil {
		b = append(b, `,"delivery":`...)
		b = appendDelivery(b, d)
	} else if item.Wait != (store.Wait{}) {
		w, _ := json.Marshal(item.Wait) // of numbers and flags: cannot fail
		b = append(append(b, `,"wait":`...), w...)
	}
	return append(b, '}')
}

func appendName(b []byte, name string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func appendText(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	b = appendName(b, name)
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			q, _ := json.Marshal(s) // of a string: cannot fail
			return append(b, q...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendID(b []byte, name string, id belfry.ID) []byte {
	if id == 0 {
		return b
	}
	b = append(appendName(b, name), '"')
	b = append(b, id.String()...)
	return append(b, '"')
}

func appendInt(b []byte, name string, n int) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(appendName(b, name), int64(n), 10)
}

func appendBool(b []byte, name string, v bool) []byte {
	if !v {
		return b
	}
	return append(appendName(b, name), "true"...)
}

func appendTime(b []byte, name string, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	b = append(appendName(b, name), '"')
	b = t.AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}
