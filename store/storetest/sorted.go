package storetest

import (
	"cmp"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

// Lists whose order the seam leaves open are compared sorted.

func sortedHeads(list []store.Head) []store.Head {
	return slices.SortedFunc(slices.Values(list), func(a, b store.Head) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Lane, b.Lane))
	})
}

func sortedPauses(list []belfry.Pause) []belfry.Pause {
	return slices.SortedFunc(slices.Values(list), func(a, b belfry.Pause) int { return cmp.Compare(a.ID, b.ID) })
}

func sortedCounts(list []store.EndedCount) []store.EndedCount {
	return slices.SortedFunc(slices.Values(list), func(a, b store.EndedCount) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason))
	})
}

// sorted is also less the times of the recipient, which bear on nothing.
func sorted(f belfry.Facts) belfry.Facts {
	if f.Recipient != nil {
		r := *f.Recipient
		r.ZoneSource, r.ZoneAsOf, r.CreatedAt, r.UpdatedAt = "", time.Time{}, time.Time{}, time.Time{}
		f.Recipient = &r
	}
	f.Endpoints = slices.SortedFunc(slices.Values(f.Endpoints), func(a, b belfry.Endpoint) int { return cmp.Compare(a.ID, b.ID) })
	f.Suppressed = slices.SortedFunc(slices.Values(f.Suppressed), func(a, b belfry.Suppression) int {
		return cmp.Or(cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Address, b.Address))
	})
	f.Pauses = sortedPauses(f.Pauses)
	return f
}
