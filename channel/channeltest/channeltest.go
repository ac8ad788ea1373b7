// Package channeltest is the contract of a channel: a channel that passes [Run] may be trusted with somebody's
// notifications.
//
// A driver brings a constructor and its provider's documented answers (testdata/answers.json); the suite brings what
// nobody may forget: one request per Send, an honest word on whether it may have arrived, and no secret in any text.
package channeltest

import (
	"net/http"
	"testing"
	"testing/synctest"

	"belfry"
	"belfry/channel"
)

// Setup is what the suite must know of a channel.
type Setup struct {
	// Open returns a channel that talks to the provider, and an endpoint there. It is called once per fact.
	Open func(t testing.TB, p Provider) (channel.Channel, belfry.Endpoint)
	// Secrets are texts of the channel's own configuration that may not show, besides those of the endpoint.
	Secrets []string
	Good    []Address // what Check lets through
	Bad     []Address // what Check refuses
	// Answers is the file of the provider's answers; default testdata/answers.json. See [Row].
	Answers string
}

// Provider is where a channel under test sends to.
type Provider struct {
	URL string // without a path or final slash
	// HTTP carries the requests if it is not nil; the channel uses its own client otherwise.
	HTTP interface {
		Do(*http.Request) (*http.Response, error)
	}
}

// Address is something for Check to judge.
type Address struct {
	Name    string // of the case
	Address string
	Keys    belfry.Keys
	Field   string // that the refusal names, such as address or keys.auth
}

// Run checks the channel, fact by fact. It is not for parallel tests: it counts goroutines.
//
// Where the environment variable BELFRY_ANSWERS names a file, the rows of it that name the channel take the place of
// the driver's own.
func Run(t *testing.T, s Setup) {
	run(t, s, func(t *testing.T) testing.TB { return t })
}

// run lets the suite's own test put a recorder between.
func run(t *testing.T, s Setup, wrap func(*testing.T) testing.TB) {
	t.Run("Answers", func(t *testing.T) {
		for _, row := range rows(t, s) {
			t.Run(row.Name, func(t *testing.T) { play(wrap(t), s, row) })
		}
	})
	for _, f := range facts {
		t.Run(f.name, func(t *testing.T) { f.check(wrap(t), s) })
	}
	t.Run("BudgetIsKept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { budgetIsKept(wrap(t), s) })
	})
}

var facts = []struct {
	name  string
	check func(testing.TB, Setup)
}{
	{"AddressesAreChecked", addressesAreChecked},
	{"EncodeIsDeterministic", encodeIsDeterministic},
	{"EncodeRefusesWhatIsTooLarge", encodeRefusesWhatIsTooLarge},
	{"DeadProviderIsNotSent", deadProviderIsNotSent},
	{"NoAnswerIsAmbiguous", noAnswerIsAmbiguous},
	{"CancelledBeforeIsNotSent", cancelledBeforeIsNotSent},
	{"CancelledMidwayLeaksNothing", cancelledMidwayLeaksNothing},
	{"RedirectIsNotFollowed", redirectIsNotFollowed},
	{"SendIsOneRequest", sendIsOneRequest},
	{"DyingConnectionIsOneRequest", dyingConnectionIsOneRequest},
	{"LargeAnswerIsCut", largeAnswerIsCut},
	{"GzipBombIsCut", gzipBombIsCut},
	{"BrokenBodyKeepsTheStatus", brokenBodyKeepsTheStatus},
	{"RetryAfterIsRead", retryAfterIsRead},
	{"NoTextHoldsASecret", noTextHoldsASecret},
	{"SendIsConcurrent", sendIsConcurrent},
}
