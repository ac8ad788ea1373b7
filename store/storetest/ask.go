package storetest

import (
	"fmt"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"belfry"
	"belfry/store"
)

// ok fails the test when an act failed.
func (w *worker) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("unexpected error: %v", err)
	}
}

// refused wants an error with a code.
func (w *worker) refused(err error, code belfry.Code) {
	w.Helper()
	if belfry.CodeOf(err) != code {
		w.Errorf("error %v, want one with code %q", err, code)
	}
}

func (w *worker) is(fact bool, format string, args ...any) {
	w.Helper()
	if !fact {
		w.Errorf(format, args...)
	}
}

// same wants two values to be equal; nil and empty are.
func (w *worker) same(got, want any, about string) {
	w.Helper()
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(belfry.Secret("")), cmpopts.EquateErrors()); diff != "" {
		w.Errorf("%s: -want +got\n%s", about, diff)
	}
}

func (w *worker) story(id belfry.ID) store.Story {
	w.Helper()
	s, err := w.Notification(w.ctx, shop, id)
	w.ok(err)
	return s
}

// stands wants a notification to stand in a state, for a reason.
func (w *worker) stands(id belfry.ID, state belfry.State, reason belfry.Reason) {
	w.Helper()
	s := w.story(id)
	if s.State != state || s.Reason != reason {
		w.Errorf("notification is %s(%s), want %s(%s)\n%s", s.State, s.Reason, state, reason, tale(s))
	}
	if s.EndedAt.IsZero() == s.State.Ended() && s.State != belfry.Sent {
		w.Errorf("notification is %s and ended at %v", s.State, s.EndedAt)
	}
}

// delivery wants the n-th delivery of a notification to stand in a state, for a reason.
func (w *worker) delivery(id belfry.ID, n int, state belfry.State, reason belfry.Reason) belfry.Delivery {
	w.Helper()
	s := w.story(id)
	if len(s.Deliveries) < n {
		w.Fatalf("notification has %d deliveries, want at least %d\n%s", len(s.Deliveries), n, tale(s))
	}
	d := s.Deliveries[n-1]
	if d.State != state || d.Reason != reason {
		w.Errorf("delivery %d is %s(%s), want %s(%s)\n%s", n, d.State, d.Reason, state, reason, tale(s))
	}
	return d.Delivery
}

// happened counts the events of a kind.
func (w *worker) happened(id belfry.ID, kind store.EventKind) int {
	w.Helper()
	n := 0
	for _, e := range w.story(id).Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func (w *worker) marks(recipient string) []store.Mark {
	w.Helper()
	list, err := w.Marks(w.ctx, shop, recipient, "", "")
	w.ok(err)
	return list
}

// tale is a story for people who read a failed test.
func tale(s store.Story) string {
	out := fmt.Sprintf("  %v %s(%s) waits %v\n", s.ID, s.State, s.Reason, s.Waits)
	for _, d := range s.Deliveries {
		out += fmt.Sprintf("    %d on %s: %s(%s) next %v, %d tries\n", d.ID.N, d.Channel, d.State, d.Reason, d.Next, len(d.Attempts))
	}
	for _, e := range s.Events {
		out += fmt.Sprintf("    %v %s(%s) of %d\n", e.At, e.Kind, e.Reason, e.N)
	}
	return out
}

// count wants so many notifications in the shop.
func (w *worker) count(want int) {
	w.Helper()
	list, _, err := w.Notifications(w.ctx, store.Filter{Project: shop}, 0, 1000)
	w.ok(err)
	w.is(len(list) == want, "there are %d notifications, want %d", len(list), want)
}

// refusedEntry wants an entry to be refused.
func (w *worker) refusedEntry(e store.Entry, code belfry.Code) {
	w.Helper()
	out, err := w.Enqueue(w.ctx, []store.Entry{e}, false)
	w.ok(err)
	w.refused(out[0].Err, code)
}
