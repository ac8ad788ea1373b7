package sqlite

import (
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"slices"
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

func laneRank(l belfry.Lane) int { return slices.Index(belfry.Lanes, l) }

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
func text(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return string(b)
}

func raw(s sql.NullString) json.RawMessage {
	if !s.Valid {
		return nil
	}
	return json.RawMessage(s.String)
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

// optionsRow is belfry.Options as a column.
type optionsRow struct {
	Channels []string     `json:"channels,omitempty"`
	To       []targetRow  `json:"to,omitempty"`
	Once     *belfry.Once `json:"once,omitempty"`
}

type targetRow struct {
	Channel string    `json:"channel"`
	Address string    `json:"address"`
	Keys    plainKeys `json:"keys,omitempty"`
}

func encodeOptions(o belfry.Options) (any, error) {
	if len(o.Channels) == 0 && len(o.To) == 0 && o.Once == nil {
		return nil, nil
	}
	row := optionsRow{Channels: o.Channels, Once: o.Once}
	for _, t := range o.To {
		row.To = append(row.To, targetRow{t.Channel, t.Address.Reveal(), plain(t.Keys)})
	}
	b, err := json.Marshal(row)
	return string(b), err
}

func decodeOptions(s sql.NullString) (o belfry.Options, err error) {
	if !s.Valid {
		return o, nil
	}
	var row optionsRow
	if err := json.Unmarshal([]byte(s.String), &row); err != nil {
		return o, err
	}
	o = belfry.Options{Channels: row.Channels, Once: row.Once}
	for _, t := range row.To {
		o.To = append(o.To, belfry.Target{Channel: t.Channel, Address: belfry.Secret(t.Address), Keys: t.Keys.keys()})
	}
	return o, nil
}

// notificationColumns are read by [scanNotification], in this order.
const notificationColumns = `n.id, n.project, n.recipient, n.category, n.subject, n.data, n.created_at, n.due_at, n.deadline, n.lane, n.sensitive, n.options`

// scanNotification reads notificationColumns, after those into before.
func scanNotification(scan func(...any) error, n *belfry.Notification, before ...any) error {
	var data, options sql.NullString
	var created, due, deadline int64
	var lane int
	err := scan(append(before, &n.ID, &n.Project, &n.Recipient, &n.Category, &n.Subject, &data, &created, &due, &deadline, &lane, &n.Sensitive, &options)...)
	if err != nil {
		return err
	}
	n.Data, n.Lane = raw(data), belfry.Lanes[lane]
	n.CreatedAt, n.Due, n.Deadline = instant(created), instant(due), instant(deadline)
	n.Options, err = decodeOptions(options)
	return err
}

const endpointColumns = `e.id, e.project, e.recipient, e.channel, e.app, e.device, e.address, e.keys, e.registered_at, e.last_seen, e.strikes, e.retired_at, e.reason`

func scanEndpoint(scan func(...any) error, e *belfry.Endpoint) error {
	var address string
	var keys sql.NullString
	var registered, seen, retired int64
	err := scan(&e.ID, &e.Project, &e.Recipient, &e.Channel, &e.App, &e.Device, &address, &keys, &registered, &seen, &e.Strikes, &retired, &e.Reason)
	if err != nil {
		return err
	}
	e.Address, e.RegisteredAt, e.LastSeen, e.RetiredAt = belfry.Secret(address), instant(registered), instant(seen), instant(retired)
	if keys.Valid {
		var p plainKeys
		if err := json.Unmarshal([]byte(keys.String), &p); err != nil {
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

// list is a JSON array for json_each.
func list[T any](v []T) string {
	b, _ := json.Marshal(v) // of strings and numbers: cannot fail
	return string(b)
}

// waitBody is nil for a notification with nothing behind it.
func waitBody(w store.Wait) (any, error) {
	if w == (store.Wait{}) {
		return nil, nil
	}
	return body(w)
}
