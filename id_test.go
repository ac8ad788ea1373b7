package belfry_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"belfry"
)

func anyID(t *rapid.T) belfry.ID {
	at := time.UnixMilli(rapid.Int64Range(1704067200000, 1704067200000+1<<41-1).Draw(t, "ms"))
	return belfry.MakeID(at, rapid.Uint16Range(0, belfry.MaxNode).Draw(t, "node"), rapid.Uint16Range(1, belfry.MaxSeq).Draw(t, "seq"))
}

func TestAnIDSurvivesItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := anyID(t)
		if got, err := belfry.ParseID(id.String()); err != nil || got != id {
			t.Fatalf("%v became %v, %v", id, got, err)
		}
		d := belfry.DeliveryID{Notification: id, N: rapid.IntRange(1, belfry.MaxDeliveries).Draw(t, "n")}
		if got, err := belfry.ParseDeliveryID(d.String()); err != nil || got != d {
			t.Fatalf("%v became %v, %v", d, got, err)
		}
	})
}

func TestTextsOfIDsSortAsTheIDsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyID(t), anyID(t)
		if cmp.Compare(a, b) != strings.Compare(a.String(), b.String()) {
			t.Fatalf("%d %v and %d %v", a, a, b, b)
		}
	})
}

func TestAnIDKnowsItsTime(t *testing.T) {
	at := noon.Add(123 * time.Millisecond)
	id := belfry.MakeID(at.Add(456*time.Microsecond), 5, 6)
	if !id.Time().Equal(at) {
		t.Errorf("%v, want %v", id.Time(), at)
	}
	if next := belfry.MakeID(at, 5, 7); next <= id {
		t.Errorf("%v is not after %v", next, id)
	}
	if later := belfry.MakeID(at.Add(time.Millisecond), 0, 0); later <= id {
		t.Errorf("%v is not after %v", later, id)
	}
	if old := belfry.MakeID(time.Time{}, 0, 1); old != 1 {
		t.Errorf("before 2024: %d, want 1", old)
	}
}

func TestOtherTextIsNoID(t *testing.T) {
	for _, s := range []string{"", "0", "0000000000000", "8000000000000", "000000000000i", "000000000000L", "0000000000001 ", "00000000000001", "000000000000é"} {
		if id, err := belfry.ParseID(s); err == nil {
			t.Errorf("%q is %d", s, id)
		}
	}
	for _, s := range []string{"", "-1", "0000000000001", "0000000000001-", "0000000000001-0", "0000000000001-01", "0000000000001-+1", "0000000000001-1000", "0000000000001--1", "0000000000001-1-1", "1-1"} {
		if id, err := belfry.ParseDeliveryID(s); err == nil {
			t.Errorf("%q is %v", s, id)
		}
	}
}

func TestNoIDIsAnEmptyText(t *testing.T) {
	b, err := json.Marshal(map[string]belfry.ID{"none": 0, "some": 1})
	if want := `{"none":"","some":"0000000000001"}`; string(b) != want || err != nil {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
	var got map[string]belfry.ID
	if err := json.Unmarshal(b, &got); err != nil || got["none"] != 0 || got["some"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("0000000000001")
	f.Add("7zzzzzzzzzzzz")
	f.Add("8000000000000")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := belfry.ParseID(s); err == nil && (id.String() != s || id <= 0) {
			t.Errorf("%q is %d, which is %q", s, id, id)
		}
	})
}

func FuzzParseDeliveryID(f *testing.F) {
	f.Add("0000000000001-1")
	f.Add("7zzzzzzzzzzzz-999")
	f.Add("0000000000001-01")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := belfry.ParseDeliveryID(s); err == nil && (id.String() != s || strings.Contains(s, ".")) {
			t.Errorf("%q is %q", s, id)
		}
	})
}
