// Package storetest is the contract of the seam store.Store: a driver that passes Run keeps the promises
// of that package. The cases are named as the facts that they show.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { … a new, empty store … })
//	}
package storetest

import (
	"flag"
	"testing"

	"belfry/store"
)

// Run shows that the stores which open makes keep the promises of the seam. Each call of open must give a
// new, empty store; Run closes it.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Run("Enqueue", each(open, enqueueing))
	t.Run("Once", each(open, facts))
	t.Run("Claim", each(open, claiming))
	t.Run("Arm", each(open, arming))
	t.Run("Settle", each(open, settling))
	t.Run("Repair", each(open, repairing))
	t.Run("Cancel", each(open, cancelling))
	t.Run("Intent", each(open, intentions))
	t.Run("Endpoints", each(open, endpoints))
	t.Run("Route", each(open, routes))
	t.Run("Hold", each(open, holds))
	t.Run("Records", each(open, records))
	t.Run("Archive", each(open, archives))
	t.Run("Guards", func(t *testing.T) { guards(t, open) })
	t.Run("Races", each(open, races))
	t.Run("Histories", func(t *testing.T) { histories(t, open) })
}

var everything = flag.Bool("storetest.all", false, "RunSample shows all that Run does")

// brief says that only a part of the long cases is to be shown.
var brief = false

// RunSample is Run with the part of the guards, races and histories that -short shows, for a store that takes
// minutes for all of them. With the flag -storetest.all it is Run.
func RunSample(t *testing.T, open func(t *testing.T) store.Store) {
	brief = !*everything
	defer func() { brief = false }()
	Run(t, open)
}

// much picks how much of a long case is shown.
func much(short, long int) int {
	if brief || testing.Short() {
		return short
	}
	return long
}

// cases are facts about a store, in the order in which they are shown.
type cases []struct {
	name string
	show func(*worker)
}

func each(open func(t *testing.T) store.Store, list cases) func(*testing.T) {
	return func(t *testing.T) {
		for _, c := range list {
			t.Run(c.name, func(t *testing.T) { c.show(newWorker(t, open(t))) })
		}
	}
}
