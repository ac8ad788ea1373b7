package postgres

import (
	"context"
	"encoding/json"
	"time"

	"belfry"
)

func (s *Store) Projects(ctx context.Context) (names []string, err error) {
	err = s.view(ctx, func(tx *txn) error {
		names = nil
		return tx.each(`SELECT 'default' UNION SELECT name FROM project ORDER BY 1`, func(scan func(...any) error) error {
			var n string
			err := scan(&n)
			names = append(names, n)
			return err
		})
	})
	return names, err
}

func (s *Store) PutProject(ctx context.Context, now time.Time, name string) error {
	return s.do(ctx, durable, func(tx *txn) error {
		return tx.exec(`INSERT INTO project (name, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING`, name, micros(now))
	})
}

func (s *Store) PutCategory(ctx context.Context, c belfry.Category) error {
	policy, err := body(c)
	if err != nil {
		return err
	}
	return s.do(ctx, durable, func(tx *txn) error {
		if err := tx.takeProject(c.Project); err != nil {
			return err
		}
		return tx.exec(`INSERT INTO category (project, name, policy) VALUES ($1, $2, $3) ON CONFLICT (project, name) DO UPDATE SET policy = excluded.policy`, c.Project, c.Name, policy)
	})
}

func (s *Store) Category(ctx context.Context, project, name string) (c belfry.Category, err error) {
	err = s.view(ctx, func(tx *txn) error {
		var ok bool
		if c, ok, err = tx.category(project, name); err == nil && !ok {
			return orNotFound(nil, "category")
		}
		return err
	})
	return c, err
}

func (s *Store) Categories(ctx context.Context, project string) (out []belfry.Category, err error) {
	err = s.view(ctx, func(tx *txn) error {
		out = nil
		hasDefault := false
		err := tx.each(`SELECT name, policy FROM category WHERE project = $1 ORDER BY name`, func(scan func(...any) error) error {
			var name, policy string
			if err := scan(&name, &policy); err != nil {
				return err
			}
			var c belfry.Category
			err := json.Unmarshal([]byte(policy), &c)
			c.Project, c.Name = project, name
			hasDefault = hasDefault || name == "default"
			out = append(out, c)
			return err
		}, project)
		if !hasDefault {
			out = append([]belfry.Category{belfry.DefaultCategory(project)}, out...)
		}
		return err
	})
	return out, err
}

func (s *Store) DeleteCategory(ctx context.Context, project, name string) error {
	return s.do(ctx, durable, func(tx *txn) error {
		if err := tx.takeProject(project); err != nil {
			return err
		}
		gone, err := tx.change(`DELETE FROM category WHERE project = $1 AND name = $2`, project, name)
		if err == nil && gone == 0 {
			return orNotFound(nil, "category")
		}
		return err
	})
}
