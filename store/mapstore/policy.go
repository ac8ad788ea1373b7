package mapstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

const firstProject, firstCategory = "default", "default" // they are there from the start

func (s *Store) Projects(ctx context.Context) (names []string, err error) {
	err = s.tx(ctx, func() error {
		names = []string{firstProject}
		for name := range s.projects.rows {
			names = append(names, name)
		}
		slices.Sort(names)
		names = slices.Compact(names)
		return nil
	})
	return names, err
}

func (s *Store) PutProject(ctx context.Context, now time.Time, name string) error {
	return s.tx(ctx, func() error {
		s.projects.put(name, now)
		return nil
	})
}

func (s *Store) PutCategory(ctx context.Context, c belfry.Category) error {
	return s.tx(ctx, func() error {
		s.categories.put(named{c.Project, c.Name}, c)
		return nil
	})
}

func (s *Store) category(project, name string) (belfry.Category, bool) {
	c, ok := s.categories.get(named{project, name})
	if !ok && name == firstCategory {
		return belfry.DefaultCategory(project), true
	}
	return c, ok
}

func (s *Store) Category(ctx context.Context, project, name string) (c belfry.Category, err error) {
	err = s.tx(ctx, func() error {
		var ok bool
		if c, ok = s.category(project, name); !ok {
			return notFound("category")
		}
		return nil
	})
	return c, err
}

func (s *Store) Categories(ctx context.Context, project string) (list []belfry.Category, err error) {
	err = s.tx(ctx, func() error {
		list = s.categories.where(func(c belfry.Category) bool { return c.Project == project && c.Name != firstCategory },
			func(a, b belfry.Category) int { return 0 })
		first, _ := s.category(project, firstCategory)
		list = append(list, first)
		slices.SortFunc(list, func(a, b belfry.Category) int { return cmp.Compare(a.Name, b.Name) })
		return nil
	})
	return list, err
}

func (s *Store) DeleteCategory(ctx context.Context, project, name string) error {
	return s.tx(ctx, func() error {
		if _, ok := s.categories.get(named{project, name}); !ok {
			return notFound("category")
		}
		s.categories.drop(named{project, name})
		return nil
	})
}

func (s *Store) PutPause(ctx context.Context, p belfry.Pause) error {
	return s.tx(ctx, func() error {
		s.pauses.put(p.ID, p)
		return nil
	})
}

func (s *Store) LiftPause(ctx context.Context, now time.Time, project string, id belfry.ID) error {
	return s.tx(ctx, func() error {
		p, ok := s.pauses.get(id)
		if !ok || p.Project != project {
			return notFound("pause")
		}
		s.pauses.drop(id)
		if s.is(LiftWakesNothing) {
			return nil
		}
		for _, q := range s.standing(func(it item, at place) bool {
			r, _ := s.rows.get(it.Notification)
			return at.claim == 0 && at.parked == belfry.ReasonPaused && (p.Project == "" || p.Project == r.Project)
		}) {
			s.wake(q, now)
		}
		return nil
	})
}

func (s *Store) Pauses(ctx context.Context, project string) (list []belfry.Pause, err error) {
	err = s.tx(ctx, func() error {
		list = s.pauses.where(func(p belfry.Pause) bool { return p.Project == "" || p.Project == project }, pauseOrder)
		return nil
	})
	return list, err
}

func (s *Store) PutKey(ctx context.Context, k store.AccessKey) error {
	return s.tx(ctx, func() error {
		s.keys.put(k.ID, k)
		return nil
	})
}

func (s *Store) Key(ctx context.Context, id string) (k store.AccessKey, err error) {
	err = s.tx(ctx, func() error {
		var ok bool
		if k, ok = s.keys.get(id); !ok {
			return notFound("key")
		}
		return nil
	})
	return k, err
}

func (s *Store) Keys(ctx context.Context, project string) (list []store.AccessKey, err error) {
	err = s.tx(ctx, func() error {
		list = s.keys.where(func(k store.AccessKey) bool { return k.Project == project },
			func(a, b store.AccessKey) int { return cmp.Compare(a.ID, b.ID) })
		return nil
	})
	return list, err
}

func (s *Store) RevokeKey(ctx context.Context, now time.Time, project, id string) error {
	return s.tx(ctx, func() error {
		k, ok := s.keys.get(id)
		if !ok || k.Project != project {
			return notFound("key")
		}
		if k.RevokedAt.IsZero() {
			k.RevokedAt = now
			s.keys.put(id, k)
		}
		return nil
	})
}

func (s *Store) Secret(ctx context.Context, name string, fresh belfry.Secret) (kept belfry.Secret, err error) {
	err = s.tx(ctx, func() error {
		var ok bool
		if kept, ok = s.secrets.get(name); !ok {
			kept = fresh
			s.secrets.put(name, fresh)
		}
		return nil
	})
	return kept, err
}
