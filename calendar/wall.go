// Package calendar turns what people say about time into instants: wall times in a zone, through gaps and
// overlaps. It is pure: zones are arguments, and there is no clock.
package calendar

import (
	"time"

	"belfry"
)

// Kind says how a wall time reads in its zone.
type Kind string

const (
	Unique  Kind = "unique"  // it happens once
	Gap     Kind = "gap"     // the clock jumps over it: shifted forward by the jump
	Overlap Kind = "overlap" // it happens twice: the first pass
	NoDate  Kind = "no_date" // its whole date does not exist in the zone
)

const day = 24 * time.Hour

// Instant is when a wall time, given as if it were UTC, happens in a zone. In an overlap it is the first
// pass; in a gap the wall time is read with the offset before the gap, which shifts it forward by the gap
// (RFC 5545 §3.3.5). A date that the zone left out altogether has no instant: NoDate, and the zero time.
//
// time.Date is not asked: it reads half of all gaps backwards and half of all overlaps late.
func Instant(wall time.Time, loc *time.Location) (time.Time, Kind) {
	wall = time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), time.UTC)
	// No offset is further than a day from UTC: look at every stretch of one offset around.
	last := wall.Add(2 * day)
	found, passes := time.Time{}, 0
	gap := time.Time{}
	wide := false
	for at := wall.Add(-2 * day).In(loc); at.Before(last); {
		_, offset := at.Zone()
		start, end := at.ZoneBounds()
		reading := wall.Add(-time.Duration(offset) * time.Second)
		if (start.IsZero() || !reading.Before(start)) && (end.IsZero() || reading.Before(end)) {
			if passes++; passes == 1 {
				found = reading
			}
		}
		if end.IsZero() {
			break
		}
		_, after := end.In(loc).Zone()
		jump := time.Duration(after-offset) * time.Second
		if !reading.Before(end) && wall.Add(-time.Duration(after)*time.Second).Before(end) {
			gap, wide = reading, jump >= day
		}
		at = end.In(loc)
	}
	switch {
	case passes == 1:
		return found, Unique
	case passes > 1:
		return found, Overlap
	case wide:
		return time.Time{}, NoDate
	}
	return gap, Gap
}

// ParseWall reads a wall time, as 2026-12-01T09:00 or 2026-12-01T09:00:30, as if it were UTC.
func ParseWall(s string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, belfry.Invalid("local_time", "is not a wall time: want for example 2026-12-01T09:00")
}
