package pricewatch

import (
	"context"
	"fmt"
	"math/rand/v2"

	"belfry"
	"belfry/engine"
)

// project is the belfry project of the application. An engine can serve several.
const project = "default"

// Person is someone who watches prices.
type Person struct {
	ID   string
	Zone string
}

// Watch says that a person wants to know when an item gets cheaper by so much.
type Watch struct {
	Person  string
	Item    string
	Percent float64
}

// cheaper is the price up to which a watch takes a drop for one.
func (w Watch) cheaper(was Price) Price { return was - Price(w.Percent/100)*max(was, -was) }

var people = []Person{
	{"ana", "Europe/Berlin"}, {"ben", "America/New_York"}, {"cleo", "Asia/Tokyo"}, {"dan", "Europe/London"},
	{"eli", "America/Sao_Paulo"}, {"fay", "Africa/Nairobi"}, {"gus", "Australia/Lord_Howe"}, {"hana", "Asia/Tokyo"},
	{"ian", "Pacific/Auckland"}, {"jo", "America/Los_Angeles"}, {"kim", "Asia/Seoul"}, {"lea", "Europe/Paris"},
	{"max", "Asia/Kathmandu"}, {"nia", "Africa/Lagos"}, {"otto", "Europe/Vienna"}, {"pia", "America/St_Johns"},
	{"quinn", "America/Denver"}, {"rosa", "America/Mexico_City"}, {"sam", "Europe/Istanbul"}, {"tara", "Asia/Kolkata"},
	{"uma", "Asia/Colombo"}, {"vic", "Europe/Madrid"}, {"wu", "Asia/Shanghai"}, {"yara", "Africa/Cairo"},
}

// choose lets everybody watch a handful of the items.
func choose(items []string, random *rand.Rand) (out []Watch) {
	const handful = 6
	for _, p := range people {
		for _, i := range random.Perm(len(items))[:min(handful, len(items))] {
			out = append(out, Watch{p.ID, items[i], []float64{1, 2, 3, 5}[random.IntN(4)]})
		}
	}
	return out
}

// join makes a person known with the places where they can be reached. Doing it again changes nothing.
func join(ctx context.Context, e *engine.Engine, p Person, places ...belfry.Registration) error {
	if _, err := e.PutRecipient(ctx, belfry.Recipient{Project: project, ID: p.ID, Zone: p.Zone, ZoneSource: "sign-up"}); err != nil {
		return fmt.Errorf("make %s known: %w", p.ID, err)
	}
	for _, r := range places {
		r.Recipient = p.ID
		if _, err := e.Register(ctx, project, r); err != nil {
			return fmt.Errorf("register a %s of %s: %w", r.Channel, p.ID, err)
		}
	}
	return nil
}
