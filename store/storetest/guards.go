package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"belfry"
	"belfry/store"
)

// guards shows that a store decides exactly as the rules do: every combination of what they look at is set
// up through the store's methods, and beside it as plain values; both must come to the same.
func guards(t *testing.T, open func(t *testing.T) store.Store) {
	t.Run("ArmAgreesWithTheRules", func(t *testing.T) { everyCombination(t, open, armGuards, armAgrees) })
	t.Run("ConsentIsWhatThePreferencesSay", func(t *testing.T) { everyCombination(t, open, consentGuards, consentAgrees) })
	t.Run("PausesHoldWhatTheyCover", func(t *testing.T) { everyCombination(t, open, pauseGuards, pauseAgrees) })
	t.Run("SettleAgreesWithTheRules", func(t *testing.T) { everyCombination(t, open, settleGuards, settleAgrees) })
	t.Run("RepairAgreesWithTheRules", func(t *testing.T) { everyCombination(t, open, repairGuards, repairAgrees) })
}

// A dimension is one thing that the rules look at, with its values.
type dimension struct {
	name   string
	values []string
}

// A combination has one value of each dimension.
type combination map[string]string

func (c combination) String() string {
	var out []string
	for name, value := range c {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

const (
	perStore = 100 // combinations that share a store, each in a project of its own
	stride   = 37  // -short shows every so many-th; it divides no product of the dimensions
)

// everyCombination shows that a store agrees with the rules for every combination of the dimensions.
func everyCombination(t *testing.T, open func(t *testing.T) store.Store, dimensions []dimension, agrees func(*guarded, combination)) {
	total := 1
	for _, d := range dimensions {
		total *= len(d.values)
	}
	step := 1
	if total > 1000 {
		step = much(stride, 1)
	}
	var w *worker
	for n, shown := 0, 0; n < total; n, shown = n+step, shown+1 {
		if shown%perStore == 0 {
			w = newWorker(t, open(t))
		}
		c, rest := combination{}, n
		for _, d := range dimensions {
			c[d.name] = d.values[rest%len(d.values)]
			rest /= len(d.values)
		}
		agrees(newGuarded(w, n), c)
		if t.Failed() {
			t.Fatalf("the first combination that disagrees is %v", c)
		}
	}
	t.Logf("%d of %d combinations", (total+step-1)/step, total)
}

// armGuards is everything that can speak against a try.
var armGuards = []dimension{
	{"item", []string{"notification", "retry", "exhausted", "tainted"}},
	{"preference", []string{"unsaid", "off"}},
	{"suppression", []string{"none", "address"}},
	{"category", []string{"there", "gone"}},
	{"recipient", []string{"there", "gone"}},
	{"endpoint", []string{"active", "retired", "moved"}},
	{"pause", []string{"none", "holds", "over"}},
	{"now", []string{"early", "due", "deadline", "late"}},
	{"verdict", []string{"none", "fresh", "stale"}},
	{"claim", []string{"held", "lost"}},
	{"cancel", []string{"none", "asked"}},
}

func armAgrees(g *guarded, c combination) {
	g.Helper()
	e := g.registered("")
	g.told()
	claim := g.claimed("")
	if c["item"] != "notification" {
		g.armed(claim)
		outcome := belfry.OutcomeNotSent
		if c["item"] == "tainted" {
			outcome = belfry.OutcomeAmbiguous
		}
		g.answered(claim.ID, outcome, policy)
		g.now = g.d.Next
		claim = g.claimed("webpush")
	}
	lost := c["claim"] == "lost"
	if lost {
		g.now = g.now.Add(leaseTime + time.Second)
		_, err := g.Repair(g.ctx, g.now, func(string, string) belfry.RetryPolicy { return policy }, 1000)
		g.ok(err)
		g.must(g.d.TakeOver(claim.ID, false, policy.Attempts, g.now))
	}
	changed := &changes{guarded: g, planned: c["item"] != "notification"}
	changed.apply(c, e)
	g.now = map[string]time.Time{
		"early": g.d.Next.Add(-time.Second), "due": g.d.Next, "deadline": g.n.Deadline, "late": g.n.Deadline.Add(time.Microsecond),
	}[c["now"]]
	checked := map[string]time.Time{"fresh": g.now.Add(-belfry.VerdictLife), "stale": g.now.Add(-belfry.VerdictLife - time.Microsecond)}[c["verdict"]]

	a := g.prepared(claim, checked)
	_, err := g.Arm(g.ctx, a)
	if err != nil && !errors.Is(err, store.ErrGone) {
		g.Fatalf("Arm: %v", err)
	}
	switch {
	case lost:
		g.is(errors.Is(err, store.ErrGone), "armed under a lost claim: %v", err)
	case !changed.planned && c["now"] == "early": // what is planned before its time waits for it
		g.ok(err)
		g.d = a.Steps[0].Tries[0].Delivery
	case !g.d.State.Ended() && !changed.ended:
		g.ok(err)
		g.judged(claim.ID, c["cancel"] == "asked", checked)
	}
	if changed.planned || !lost && !changed.ended {
		g.agrees()
		return
	}
	s, err := g.Notification(g.ctx, g.project, g.n.ID)
	g.ok(err)
	g.is(len(s.Deliveries) == 0, "a notification that its worker does not hold was planned\n%s", tale(s))
}

// changes are what happens between a claim and its arm.
type changes struct {
	*guarded
	planned bool // there is a delivery that a change of intent can withdraw
	ended   bool // a notification to be planned was ended by a change
}

func (g *changes) apply(c combination, e belfry.Endpoint) {
	g.Helper()
	if c["item"] == "exhausted" {
		g.policyIs(belfry.Category{Retry: belfry.RetryPolicy{Attempts: 1}})
	}
	if c["category"] == "gone" {
		g.ok(g.DeleteCategory(g.ctx, g.project, news))
		g.f.Category = nil
	}
	if c["preference"] == "off" {
		off := false
		_, err := g.ChangePreferences(g.ctx, g.now, g.project, ann, []belfry.PreferenceChange{{Category: "*", Channel: "push", On: &off}}, false)
		g.ok(err)
		g.f.Preferences = belfry.Preferences{"*": {"push": false}}
		g.withdrawn()
	}
	if c["suppression"] == "address" {
		x := belfry.Suppression{Project: g.project, Channel: "webpush", Address: "token", Reason: "manual", At: g.now}
		_, err := g.Suppress(g.ctx, x)
		g.ok(err)
		g.f.Suppressed = []belfry.Suppression{x}
		g.withdrawn()
	}
	switch c["endpoint"] {
	case "retired":
		_, err := g.Retire(g.ctx, g.now, g.project, ann, e.ID, belfry.ReasonEndpointRetired)
		g.ok(err)
		g.f.Endpoints = nil
		g.withdrawn()
	case "moved":
		_, err := g.PutRecipient(g.ctx, g.now, belfry.Recipient{Project: g.project, ID: bob})
		g.ok(err)
		_, err = g.Register(g.ctx, g.now, g.project, g.id(), belfry.Registration{Recipient: bob, Channel: "webpush", Address: "token"})
		g.ok(err)
		g.f.Endpoints = nil
		g.withdrawnFor(belfry.ReasonEndpointRetired)
	}
	if c["pause"] != "none" {
		p := belfry.Pause{ID: g.id(), Project: g.project, Reason: "stop", At: g.now, Until: g.n.Deadline.Add(time.Hour)}
		if c["pause"] == "over" {
			p.Until = g.now.Add(-time.Hour)
		}
		g.ok(g.PutPause(g.ctx, p))
		g.f.Pauses = []belfry.Pause{p}
	}
	if c["recipient"] == "gone" {
		_, err := g.DeleteRecipient(g.ctx, g.now, g.project, ann)
		g.ok(err)
		g.f.Recipient, g.f.Preferences, g.f.Endpoints = nil, nil, nil
		g.withdrawnFor(belfry.ReasonRecipientGone)
		g.ended = !g.planned
		g.d.Payload = nil // erased
	}
	if c["cancel"] == "asked" {
		g.cancelled()
		g.ended = !g.planned
	}
}

// withdrawn is what a change of intent does to the delivery, if there is one.
func (g *changes) withdrawn() {
	switch why := g.f.Forbids(g.n, g.d, g.f.EndpointOf(g.n, g.d), g.now); why {
	case belfry.ReasonOptedOut, belfry.ReasonSuppressed, belfry.ReasonEndpointRetired:
		g.withdrawnFor(why)
	}
}

func (g *changes) withdrawnFor(why belfry.Reason) {
	if g.planned {
		g.d, _ = g.d.Withdraw(why)
	}
}

// consentGuards is every place where a recipient can say on or off.
var consentGuards = []dimension{
	{"consent", []string{string(belfry.OptOut), string(belfry.OptIn), string(belfry.Always)}},
	{news + " webpush", []string{"unsaid", "on", "off"}},
	{news + " push", []string{"unsaid", "on", "off"}},
	{news + " *", []string{"unsaid", "on", "off"}},
	{"* webpush", []string{"unsaid", "on", "off"}},
	{"* push", []string{"unsaid", "on", "off"}},
	{"* *", []string{"unsaid", "on", "off"}},
}

func consentAgrees(g *guarded, c combination) {
	g.Helper()
	g.registered("")
	g.told()
	claim := g.claimed("")
	a := g.prepared(claim, time.Time{})
	g.policyIs(belfry.Category{Consent: belfry.Consent(c["consent"])})
	g.f.Preferences = belfry.Preferences{}
	var said []belfry.PreferenceChange
	for _, category := range []string{news, "*"} {
		for _, channel := range []string{"webpush", "push", "*"} {
			if on := c[category+" "+channel]; on != "unsaid" {
				yes := on == "on"
				said = append(said, belfry.PreferenceChange{Category: category, Channel: channel, On: &yes})
				if g.f.Preferences[category] == nil {
					g.f.Preferences[category] = map[string]bool{}
				}
				g.f.Preferences[category][channel] = yes
			}
		}
	}
	_, err := g.ChangePreferences(g.ctx, g.now, g.project, ann, said, true)
	g.ok(err)
	_, err = g.Arm(g.ctx, a)
	g.ok(err)
	g.judged(claim.ID, false, time.Time{})
	g.agrees()
}

// pauseGuards is everything that a pause can name.
var pauseGuards = []dimension{
	{"project", []string{"this", "every", "another"}},
	{"category", []string{"", news, "sales"}},
	{"channel", []string{"", "webpush", "push", "email"}},
	{"app", []string{"", "ios", "android"}},
	{"until", []string{"lifted", "later", "now", "after the deadline"}},
}

func pauseAgrees(g *guarded, c combination) {
	g.Helper()
	g.registered("ios")
	g.told()
	claim := g.claimed("")
	p := belfry.Pause{ID: g.id(), Category: c["category"], Channel: c["channel"], App: c["app"], Reason: "stop", At: g.now}
	p.Project = map[string]string{"this": g.project, "another": "another"}[c["project"]]
	p.Until = map[string]time.Time{"later": g.now.Add(time.Minute), "now": g.now, "after the deadline": g.n.Deadline.Add(time.Hour)}[c["until"]]
	g.ok(g.PutPause(g.ctx, p))
	if p.Project != "another" {
		g.f.Pauses = []belfry.Pause{p}
	}
	_, err := g.Arm(g.ctx, g.prepared(claim, time.Time{}))
	g.ok(err)
	g.judged(claim.ID, false, time.Time{})
	g.agrees()
	g.ok(g.LiftPause(g.ctx, g.now, p.Project, p.ID)) // it must not hold the next combination
}

// settleGuards is everything that a settlement can meet.
var settleGuards = []dimension{
	{"outcome", []string{"accepted", "refused", "gone", "throttled", "misconfigured", "not_sent", "ambiguous", "nonsense"}},
	{"mode", []string{string(belfry.AtLeastOnce), string(belfry.AtMostOnce)}},
	{"cancel", []string{"none", "asked"}},
	{"attempts", []string{"left", "last"}},
	{"deadline", []string{"far", "near"}},
	{"claim", []string{"held", "lost", "taken again", "armed again"}},
}

func settleAgrees(g *guarded, c combination) {
	g.Helper()
	g.policyIs(belfry.Category{Delivery: belfry.Mode(c["mode"])})
	g.registered("")
	g.told()
	claim := g.claimed("")
	g.armed(claim)
	if c["cancel"] == "asked" {
		g.cancelled()
	}
	p := policy
	if c["attempts"] == "last" {
		p.Attempts = 1
	}
	if c["claim"] != "held" {
		g.now = g.now.Add(leaseTime + time.Second)
		g.lostTo(claim.ID, policy)
	}
	if !g.d.State.Ended() && c["claim"] != "held" && c["claim"] != "lost" {
		g.now = g.d.Next
		again := g.claimed("webpush")
		if c["claim"] == "armed again" {
			g.armed(again)
		}
	}
	if c["deadline"] == "near" {
		g.now = g.n.Deadline
	}
	before := g.d
	got := g.answered(claim.ID, belfry.Outcome(c["outcome"]), p)
	if c["outcome"] == "gone" {
		g.d, _ = g.d.Withdraw(belfry.ReasonEndpointRetired) // a late one: what waits for the endpoint is withdrawn
	}
	g.same(got.Delivery, g.d, "what Settle answered, and the rules")
	g.is(got.Late == (before.Claim != claim.ID), "late is %v", got.Late)
	end := belfry.State("")
	if g.d.State.Ended() {
		end = g.d.State
	}
	g.is(got.Summary == end, "summary is %q, want %q", got.Summary, end)
	g.agrees()
}

// lostTo lets repair take over the claim.
func (g *guarded) lostTo(claim belfry.ID, p belfry.RetryPolicy) {
	g.Helper()
	_, err := g.Repair(g.ctx, g.now, func(string, string) belfry.RetryPolicy { return p }, 1000)
	g.ok(err)
	next := g.now
	if g.d.Armed {
		next = next.Add(p.Delay(len(g.d.Attempts), 0, 0))
	}
	g.must(g.d.TakeOver(claim, false, p.Attempts, next))
}

// repairGuards is everything that a lost claim can leave behind.
var repairGuards = []dimension{
	{"item", []string{"first", "retry", "tainted"}},
	{"step", []string{"claimed", "armed"}},
	{"mode", []string{string(belfry.AtLeastOnce), string(belfry.AtMostOnce)}},
	{"cancel", []string{"none", "asked"}},
	{"attempts", []string{"left", "last"}},
	{"deadline", []string{"far", "near", "past"}},
}

func repairAgrees(g *guarded, c combination) {
	g.Helper()
	if c["item"] == "first" && c["step"] == "claimed" || c["item"] == "tainted" && c["mode"] == string(belfry.AtMostOnce) ||
		c["step"] == "claimed" && c["cancel"] == "asked" {
		return // there is no delivery yet, or none any more
	}
	g.policyIs(belfry.Category{Delivery: belfry.Mode(c["mode"])})
	g.registered("")
	g.told()
	claim := g.claimed("")
	if c["item"] != "first" {
		g.armed(claim)
		g.answered(claim.ID, map[string]belfry.Outcome{"retry": belfry.OutcomeNotSent, "tainted": belfry.OutcomeAmbiguous}[c["item"]], policy)
		g.now = g.d.Next
		claim = g.claimed("webpush")
	}
	if c["step"] == "armed" {
		g.armed(claim)
	}
	if c["cancel"] == "asked" {
		g.cancelled()
	}
	p := policy
	if c["attempts"] == "last" {
		p.Attempts = len(g.d.Attempts)
	}
	g.now = map[string]time.Time{"far": g.now.Add(leaseTime + time.Second), "near": g.n.Deadline, "past": g.n.Deadline.Add(time.Second)}[c["deadline"]]
	g.lostTo(claim.ID, p)
	g.agrees()
}
