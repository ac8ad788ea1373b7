package pricewatch

import (
	"iter"
	"math"
	"math/rand/v2"
	"time"
)

// catalogue is what the made-up shop sells.
var catalogue = []struct {
	item  string
	price float64
}{
	{"kettle", 39}, {"toaster", 54}, {"desk lamp", 65}, {"headphones", 149}, {"rucksack", 89},
	{"rain jacket", 120}, {"running shoes", 135}, {"bicycle helmet", 72}, {"coffee grinder", 99}, {"pan", 58},
	{"keyboard", 84}, {"monitor", 249}, {"microphone", 118}, {"tent", 210}, {"sleeping bag", 95},
	{"drill", 129}, {"garden hose", 34}, {"tea pot", 28}, {"record player", 189}, {"wall clock", 45},
}

// Walk is a made-up history of prices, the same for the same seed: items with a slow trend of their own,
// sales that come and go, some of them for a single day, and shelves that run empty while a sale lasts.
func Walk(seed uint64) iter.Seq[Tick] {
	return func(yield func(Tick) bool) {
		random := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
		goods := make([]good, len(catalogue))
		for i, c := range catalogue {
			goods[i] = good{list: c.price, base: c.price}
		}
		for date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); date.Year() < 10_000; date = date.AddDate(0, 0, 1) {
			t := Tick{Date: date.Format(time.DateOnly)}
			for i := range goods {
				price, ok := goods[i].next(random)
				t.Quotes = append(t.Quotes, Quote{Item: catalogue[i].item, Price: price, SoldOut: !ok})
			}
			if !yield(t) {
				return
			}
		}
	}
}

// good is one item of the walk.
type good struct {
	list, base float64
	off        float64 // share taken off in a sale
	sale       int     // days the sale goes on
	empty      int     // days the shelf stays empty
}

// next is the price of the next day, false when the shelf is empty.
func (g *good) next(random *rand.Rand) (Price, bool) {
	g.base *= 0.998 + 0.01*(random.Float64()-0.5)
	if g.base < g.list/2 {
		g.base = g.list // a new model
	}
	switch chance := random.Float64(); {
	case g.sale > 0:
		g.off += 0.04 * random.Float64()
		if g.sale--; g.sale == 0 {
			g.off = 0
		} else if chance < 0.15 {
			g.empty = 1 + random.IntN(3)
		}
	case chance < 0.10:
		g.sale, g.off = 1+random.IntN(5), 0.06+0.2*random.Float64()
	}
	if g.empty > 0 {
		g.empty--
		return 0, false
	}
	return Price(math.Round(100*g.base*(1-g.off)) / 100), true
}
