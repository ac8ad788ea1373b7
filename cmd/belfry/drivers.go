package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"belfry"
	"belfry/channel"
	"belfry/channel/webhook"
	"belfry/channel/webpush"
	"belfry/config"
	"belfry/signature"
	"belfry/store"
	"belfry/store/postgres"
	"belfry/store/sqlite"
)

// A storeDriver opens the store of a data folder.
type storeDriver struct {
	open func(context.Context, string, config.Section) (store.Store, error)
	file string // of the state inside the data folder; "" when it is elsewhere
}

// stores and channels are the drivers there are. The section of a driver's name in the settings is decoded
// into its own Options.
var stores = map[string]storeDriver{
	"sqlite": {
		file: sqlite.FileName,
		open: func(ctx context.Context, dir string, s config.Section) (store.Store, error) {
			var o sqlite.Options
			if err := s.Decode(&o); err != nil {
				return nil, err
			}
			st, err := sqlite.Open(ctx, dir, o)
			if err != nil {
				return nil, err // and not a nil of another type
			}
			return st, nil
		},
	},
	"postgres": {
		open: func(ctx context.Context, dir string, s config.Section) (store.Store, error) {
			var o postgres.Options
			var at struct{ URL belfry.Secret }
			if err := s.Decode(&o, &at); err != nil {
				return nil, err
			}
			if at.URL == "" {
				return nil, errors.New("config: store.postgres.url is empty: want postgres://user@host:5432/database")
			}
			if err := os.MkdirAll(dir, 0o700); err != nil { // for the socket of the other commands
				return nil, fmt.Errorf("make data folder: %w", err)
			}
			st, err := postgres.Open(ctx, at.URL.Reveal(), o)
			if err != nil {
				return nil, err
			}
			return st, nil
		},
	},
}

var channels = map[string]func(config.Section, surroundings) (channel.Channel, error){
	"webhook": func(s config.Section, in surroundings) (channel.Channel, error) {
		o := webhook.Options{AllowPrivate: in.allowPrivate, AllowAll: in.allowAll, UserAgent: in.userAgent}
		if err := s.Decode(&o); err != nil {
			return nil, err
		}
		var err error
		if o.Secret, err = in.secret(webhookSecretName, o.Secret, newSigningSecret); err != nil {
			return nil, err
		}
		return webhook.New(o)
	},
	"webpush": func(s config.Section, in surroundings) (channel.Channel, error) {
		o := webpush.Options{AllowPrivate: in.allowPrivate, AllowAll: in.allowAll, UserAgent: in.userAgent}
		if err := s.Decode(&o); err != nil {
			return nil, err
		}
		o.Subject = cmp.Or(o.Subject, "mailto:nobody@belfry.invalid")
		var err error
		if o.Key, err = in.secret("channel.webpush.key", o.Key, webpush.GenerateKey); err != nil {
			return nil, err
		}
		return webpush.New(o)
	},
}

// surroundings are what channels get besides their own options.
type surroundings struct {
	allowPrivate []netip.Prefix
	allowAll     bool
	userAgent    string
	// secret is given, else what the store keeps under the name, made on first use.
	secret func(name string, given belfry.Secret, fresh func() (belfry.Secret, error)) (belfry.Secret, error)
}

// webhookSecretName is where the store keeps what signs for webhook endpoints without a secret of their own.
const webhookSecretName = "channel.webhook.secret"

func newSigningSecret() (belfry.Secret, error) {
	s, err := signature.NewSecret(nil)
	return belfry.Secret(s.Reveal()), err
}

// openStore opens the store that the settings pick.
func openStore(ctx context.Context, c *config.Config) (store.Store, error) {
	d, ok := stores[c.Store.Driver]
	if !ok {
		return nil, fmt.Errorf("config: store.driver is %q: there is %s", c.Store.Driver, strings.Join(names(stores), ", "))
	}
	return d.open(ctx, c.Data, c.Store.Sections[c.Store.Driver])
}

// openChannels makes the channels that the settings enable.
func openChannels(c *config.Config, in surroundings) ([]channel.Channel, error) {
	var out []channel.Channel
	for _, name := range c.Channels.Names() {
		section := c.Channels[name]
		if !section.Enabled() {
			continue
		}
		ch, err := channels[name](section, in)
		if err != nil {
			return nil, fmt.Errorf("channel %s: %w", name, err)
		}
		out = append(out, ch)
	}
	return out, nil
}

// examineDrivers looks at settings whose meaning only the drivers know. It makes the channels as a server would,
// but with secrets that nobody keeps.
func examineDrivers(c *config.Config) (out []finding) {
	if _, there := stores[c.Store.Driver]; !there {
		out = append(out, failed("store", "there is no store.driver "+c.Store.Driver, "want "+strings.Join(names(stores), ", ")))
	}
	_, err := openChannels(c, surroundings{secret: func(_ string, given belfry.Secret, fresh func() (belfry.Secret, error)) (belfry.Secret, error) {
		if given != "" {
			return given, nil
		}
		return fresh()
	}})
	if err != nil {
		out = append(out, failed("channels", err.Error(), "mend the settings; the server does not start with these"))
	}
	if how, _ := c.Store.Sections["sqlite"].Lookup("synchronous"); c.Store.Driver == "sqlite" && how == "NORMAL" {
		out = append(out, warned("synchronous", "a power cut may lose what was acknowledged last", "set store.sqlite.synchronous to FULL"))
	}
	if how, _ := c.Store.Sections["postgres"].Lookup("synchronous"); c.Store.Driver == "postgres" && how == "off" {
		out = append(out, warned("synchronous", "a crash of the database may undo what was acknowledged last", "set store.postgres.synchronous to on"))
	}
	if subject, _ := c.Channels["webpush"].Lookup("subject"); c.Channels["webpush"].Enabled() && subject == "" {
		out = append(out, warned("webpush", "channels.webpush.subject is empty, and some push services refuse that", "set it to a mailto: or https: of yours"))
	}
	return out
}

func names[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
