package calendar

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"belfry/tzdb"
)

func TestWallTimesHappenWhenTheVectorsSay(t *testing.T) {
	b, err := os.ReadFile("testdata/wall.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		ID, Zone, Local, Type string
		Instant               string
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 40 {
		t.Fatalf("%d vectors", len(vectors))
	}
	for _, v := range vectors {
		loc, err := tzdb.Load(v.Zone)
		if err != nil {
			t.Fatal(err)
		}
		wall, err := ParseWall(v.Local)
		if err != nil {
			t.Fatal(err)
		}
		got, kind := Instant(wall, loc)
		if v.Instant == "" {
			if kind != NoDate {
				t.Errorf("%s: %v %s, want no date", v.ID, got, kind)
			}
			continue
		}
		want, err := time.Parse(time.RFC3339, v.Instant)
		if err != nil {
			t.Fatal(err)
		}
		skipped := kind == NoDate && v.Type == "gap" // the vectors read a left-out date as a wide gap
		if !skipped && (!got.Equal(want) || string(kind) != v.Type) {
			t.Errorf("%s: %v %s, want %v %s", v.ID, got.UTC(), kind, want, v.Type)
		}
	}
}

// Every minute of two years reads back as it was said, or lies in a gap; time never runs backwards.
func TestWallTimesReadBack(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia", "Asia/Kathmandu"} {
		loc, err := tzdb.Load(zone)
		if err != nil {
			t.Fatal(err)
		}
		for wall := time.Date(2011, 6, 1, 0, 0, 0, 0, time.UTC); wall.Year() < 2013; wall = wall.Add(7 * time.Minute) {
			at, kind := Instant(wall, loc)
			switch kind {
			case Unique, Overlap:
				if got := at.In(loc).Format(time.DateTime); got != wall.Format(time.DateTime) {
					t.Fatalf("%s %v reads back as %s", zone, wall, got)
				}
				if kind == Overlap {
					if earlier := at.Add(-time.Hour).In(loc).Format(time.DateTime); earlier == wall.Format(time.DateTime) {
						t.Fatalf("%s %v is not the first pass", zone, wall)
					}
				}
			case Gap:
				if got := at.In(loc).Format(time.DateTime); got <= wall.Format(time.DateTime) {
					t.Fatalf("%s %v in a gap went back to %s", zone, wall, got)
				}
			}
		}
	}
}

func BenchmarkInstant(b *testing.B) {
	loc, err := tzdb.Load("Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	wall := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		Instant(wall, loc)
	}
}
