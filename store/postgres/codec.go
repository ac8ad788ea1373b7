package postgres

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"belfry"
	"belfry/store"
)

// micros and instant are how times are stored; 0 is none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func laneRank(l belfry.Lane) int16 { return int16(slices.Index(belfry.Lanes, l)) }

// half is the first half of a SHA-256 over parts that cannot run into each other.
func half(parts ...string) []byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return h.Sum(nil)[:16]
}

// text is nil for empty JSON, so that the column is NULL.
func text(b []byte) *string {
	if len(b) == 0 {
		return nil
	}
	s := string(b)
	return &s
}

func raw(s *string) json.RawMessage {
	if s == nil {
		return nil
	}
	return json.RawMessage(*s)
}

// clean is text from outside as a column can hold it.
func clean(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}

// plainKeys is belfry.Keys with the secrets' text: only the store may write it.
type plainKeys map[string]string

func plain(k belfry.Keys) plainKeys {
	if len(k) == 0 {
		return nil
	}
	p := plainKeys{}
	for name, v := range k {
		p[name] = v.Reveal()
	}
	return p
}

func (p plainKeys) keys() belfry.Keys {
	if len(p) == 0 {
		return nil
	}
	k := belfry.Keys{}
	for name, v := range p {
		k[name] = belfry.Secret(v)
	}
	return k
}

// optionsRow is belfry.Options as a column, but for the targets, which are personal and have one of their own.
type optionsRow struct {
	Channels []string     `json:"channels,omitempty"`
	Once     *belfry.Once `json:"once,omitempty"`
}

type targetRow struct {
	Channel string    `json:"channel"`
	Address string    `json:"address"`
	Keys    plainKeys `json:"keys,omitempty"`
}

func encodeOptions(o belfry.Options) (options, targets *string, err error) {
	if len(o.Channels) > 0 || o.Once != nil {
		b, err := json.Marshal(optionsRow{o.Channels, o.Once})
		if err != nil {
			return nil, nil, err
		}
		options = text(b)
	}
	if len(o.To) == 0 {
		return options, nil, nil
	}
	rows := make([]targetRow, len(o.To))
	for i, t := range o.To {
		rows[i] = targetRow{t.Channel, t.Address.Reveal(), plain(t.Keys)}
	}
	b, err := json.Marshal(rows)
	return options, text(b), err
}

func decodeOptions(options, targets *string) (o belfry.Options, err error) {
	if options != nil {
		var row optionsRow
		if err := json.Unmarshal([]byte(*options), &row); err != nil {
			return o, err
		}
		o.Channels, o.Once = row.Channels, row.Once
	}
	if targets == nil {
		return o, nil
	}
	var rows []targetRow
	if err := json.Unmarshal([]byte(*targets), &rows); err != nil {
		return o, err
	}
	for _, t := range rows {
		o.To = append(o.To, belfry.Target{Channel: t.Channel, Address: belfry.Secret(t.Address), Keys: t.Keys.keys()})
	}
	return o, nil
}

// notificationColumns are read by [scanNotification], in this order.
const notificationColumns = `n.id, n.project, n.recipient, n.category, n.subject, n.data, n.created_at, n.due_at, n.deadline, n.lane, n.sensitive, n.options, n.targets`

// scanNotification reads notificationColumns, after those into before.
func scanNotification(scan func(...any) error, n *belfry.Notification, before ...any) error {
	var data, options, targets *string
	var created, due, deadline int64
	var lane int
	err := scan(append(before, &n.ID, &n.Project, &n.Recipient, &n.Category, &n.Subject, &data, &created, &due, &deadline, &lane, &n.Sensitive, &options, &targets)...)
	if err != nil {
		return err
	}
	n.Data, n.Lane = raw(data), belfry.Lanes[lane]
	n.CreatedAt, n.Due, n.Deadline = instant(created), instant(due), instant(deadline)
	n.Options, err = decodeOptions(options, targets)
	return err
}

const endpointColumns = `e.id, e.project, e.recipient, e.channel, e.app, e.device, e.address, e.keys, e.registered_at, e.last_seen, e.strikes, e.retired_at, e.reason`

func scanEndpoint(scan func(...any) error, e *belfry.Endpoint) error {
	var address string
	var keys *string
	var registered, seen, retired int64
	err := scan(&e.ID, &e.Project, &e.Recipient, &e.Channel, &e.App, &e.Device, &address, &keys, &registered, &seen, &e.Strikes, &retired, &e.Reason)
	if err != nil {
		return err
	}
	e.Address, e.RegisteredAt, e.LastSeen, e.RetiredAt = belfry.Secret(address), instant(registered), instant(seen), instant(retired)
	if keys != nil {
		var p plainKeys
		if err := json.Unmarshal([]byte(*keys), &p); err != nil {
			return err
		}
		e.Keys = p.keys()
	}
	return nil
}

// body encodes what is kept in a JSON column of the store's own.
func body(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// list is a JSON array of strings.
func list(v []string) string {
	b, _ := json.Marshal(v) // cannot fail
	return string(b)
}

// numbers are ids as the tables have them.
func numbers(ids []belfry.ID) []int64 {
	n := make([]int64, len(ids))
	for i, id := range ids {
		n[i] = int64(id)
	}
	return n
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// waitBody is nil for a notification with nothing behind it.
func waitBody(w store.Wait) (*string, error) {
	if w == (store.Wait{}) {
		return nil, nil
	}
	b, err := body(w)
	return &b, err
}
