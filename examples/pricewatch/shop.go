package pricewatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"
)

// Price is an amount of money. It is written with two decimals where they say it all.
type Price float64

func (p Price) String() string {
	if f := float64(p); math.Round(f*100)/100 == f {
		return strconv.FormatFloat(f, 'f', 2, 64)
	}
	return strconv.FormatFloat(float64(p), 'f', -1, 64)
}

func (p Price) MarshalJSON() ([]byte, error) { return []byte(p.String()), nil }

// Quote is what an item costs.
type Quote struct {
	Item    string
	Price   Price
	SoldOut bool // there is no price then
	Date    string
}

// Tick is one date of prices. An item that is not in it keeps its last quote.
type Tick struct {
	Date   string // as 2026-12-01
	Quotes []Quote
}

// Drop is an item that got cheaper. It is also the data of the notifications about it.
type Drop struct {
	Item  string `json:"item"`
	Was   Price  `json:"was"`
	Price Price  `json:"price"`
	Date  string `json:"date"`
	Limit Price  `json:"limit"` // it is worth telling up to this price

	low  Price     // the lowest price before
	seen time.Time // when it came to light
}

// Shop knows the price of the moment, and what dropped lately: the part of an application that would be a
// table of prices.
type Shop struct {
	mu     sync.Mutex
	quotes map[string]Quote
	last   map[string]Price // the last price that was one
	low    map[string]Price
	recent [][]Drop // by tick, the latest last
	// trouble, if set, is asked before every look-up.
	trouble func() error
}

func newShop() *Shop {
	return &Shop{quotes: map[string]Quote{}, last: map[string]Price{}, low: map[string]Price{}}
}

var errNoItem = errors.New("there is no such item")

// Lookup tells what an item costs now.
func (s *Shop) Lookup(_ context.Context, item string) (Quote, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble != nil {
		if err := s.trouble(); err != nil {
			return Quote{}, fmt.Errorf("look up the price: %w", err)
		}
	}
	q, ok := s.quotes[item]
	if !ok {
		return q, errNoItem
	}
	return q, nil
}

// keep is how many ticks the detectors can look back.
const keep = 2

// Update takes in the prices of a new date.
func (s *Shop) Update(t Tick, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var drops []Drop
	for _, q := range t.Quotes {
		q.Date = t.Date
		s.quotes[q.Item] = q
		if q.SoldOut {
			continue
		}
		was, known := s.last[q.Item]
		low := s.low[q.Item]
		if known && q.Price < was {
			drops = append(drops, Drop{Item: q.Item, Was: was, Price: q.Price, Date: t.Date, low: low, seen: now})
		}
		s.last[q.Item] = q.Price
		if !known || q.Price < low {
			s.low[q.Item] = q.Price
		}
	}
	s.recent = append(s.recent, drops)
	if len(s.recent) > keep {
		s.recent = s.recent[1:]
	}
}

// Drops lists what dropped in the last n ticks, the oldest first.
func (s *Shop) Drops(n int) (out []Drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, drops := range s.recent[max(0, len(s.recent)-n):] {
		out = append(out, drops...)
	}
	return out
}
