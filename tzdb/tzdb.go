// Package tzdb gives the zones of the IANA time zone database by their exact names, and refuses everything
// else that time.LoadLocation would take for a zone: the server's own zone, paths, variants with leap
// seconds, and abbreviations that nearly always stand for another zone than their sender meant.
//
// The data is the system's where it has some, else that of the Go release (time/tzdata).
package tzdb

import (
	_ "embed"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // so that a system without zone data knows the zones too

	"belfry"
)

//go:embed names.txt
var list string

// MaxName is the longest name that is looked at, in bytes.
const MaxName = 64

var (
	// names has every name of the database by its lower case.
	names = sync.OnceValue(func() map[string]string {
		m := make(map[string]string, 600)
		for name := range strings.Lines(list) {
			name = strings.TrimSuffix(name, "\n")
			m[strings.ToLower(name)] = name
		}
		for _, name := range refused {
			delete(m, strings.ToLower(name))
		}
		return m
	})
	loaded sync.Map // name → *time.Location
)

// In the database, but not a place: who sends EST or CET mostly wants a zone that has summer time.
var refused = strings.Fields("Factory EST MST HST EST5EDT CST6CDT MST7MDT PST8PDT CET MET EET WET UCT GMT0 GMT+0 GMT-0 PRC ROC ROK W-SU")

// Load returns the zone of that exact name. The error is a *belfry.Error with belfry.CodeUnknownZone. Safe
// for concurrent use; a zone is read once.
func Load(name string) (*time.Location, error) {
	if loc, ok := loaded.Load(name); ok {
		return loc.(*time.Location), nil
	}
	if err := check(name); err != nil {
		return nil, err
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, unknown("is not in the time zone data of this system")
	}
	loaded.Store(name, loc)
	return loc, nil
}

func unknown(detail string) error { return belfry.Errorf(belfry.CodeUnknownZone, "%s", detail) }

func check(name string) error {
	const want = "is not a time zone name: want for example Europe/Berlin or UTC"
	if name == "" || len(name) > MaxName {
		return unknown(want)
	}
	switch known := names()[strings.ToLower(name)]; known {
	case name:
		return nil
	case "":
		return unknown(want)
	default:
		return unknown("is written " + known)
	}
}
