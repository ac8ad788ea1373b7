package postgres

import (
	"context"
	"encoding/json"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) PutKey(ctx context.Context, k store.AccessKey) error {
	return s.do(ctx, durable, func(tx *txn) error {
		return tx.exec(`INSERT INTO access_key (id, project, name, scopes, hash, created_at, revoked_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			k.ID, k.Project, k.Name, list(k.Scopes), k.Hash[:], micros(k.CreatedAt), micros(k.RevokedAt))
	})
}

func (s *Store) Key(ctx context.Context, id string) (store.AccessKey, error) {
	keys, err := s.keys(ctx, `id = $1`, id)
	if err == nil && len(keys) == 0 {
		return store.AccessKey{}, orNotFound(nil, "key")
	}
	if err != nil {
		return store.AccessKey{}, err
	}
	return keys[0], nil
}

func (s *Store) Keys(ctx context.Context, project string) ([]store.AccessKey, error) {
	return s.keys(ctx, `project = $1`, project)
}

func (s *Store) keys(ctx context.Context, where string, args ...any) (out []store.AccessKey, err error) {
	err = s.view(ctx, func(tx *txn) error {
		out = nil
		return tx.each(`SELECT id, project, name, scopes, hash, created_at, revoked_at FROM access_key WHERE `+where+` ORDER BY created_at, id`, func(scan func(...any) error) error {
			var k store.AccessKey
			var scopes string
			var hash []byte
			var created, revoked int64
			if err := scan(&k.ID, &k.Project, &k.Name, &scopes, &hash, &created, &revoked); err != nil {
				return err
			}
			copy(k.Hash[:], hash)
			k.CreatedAt, k.RevokedAt = instant(created), instant(revoked)
			out = append(out, k)
			return json.Unmarshal([]byte(scopes), &out[len(out)-1].Scopes)
		}, args...)
	})
	return out, err
}

func (s *Store) RevokeKey(ctx context.Context, now time.Time, project, id string) error {
	return s.do(ctx, durable, func(tx *txn) error {
		revoked, err := tx.change(`UPDATE access_key SET revoked_at = CASE WHEN revoked_at = 0 THEN $1 ELSE revoked_at END WHERE project = $2 AND id = $3`, micros(now), project, id)
		if err == nil && revoked == 0 {
			return orNotFound(nil, "key")
		}
		return err
	})
}

func (s *Store) Secret(ctx context.Context, name string, fresh belfry.Secret) (belfry.Secret, error) {
	var value string
	err := s.do(ctx, durable, func(tx *txn) error {
		_, err := tx.one(`INSERT INTO secret (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = secret.value RETURNING value`, []any{name, fresh.Reveal()}, &value)
		return err
	})
	return belfry.Secret(value), err
}
