package tzdb

import (
	"strings"
	"testing"
	"time"

	"belfry"
)

func TestEveryListedZoneLoads(t *testing.T) {
	n := 0
	for _, name := range names() {
		loc, err := Load(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if again, _ := Load(name); again != loc {
			t.Errorf("%s was read twice", name)
		}
		n++
	}
	if n < 570 {
		t.Errorf("only %d zones", n)
	}
}

func TestNamesMeanWhatTheDatabaseSays(t *testing.T) {
	for name, want := range map[string]string{
		"UTC": "2026-07-01T12:00:00Z", "Europe/Berlin": "2026-07-01T14:00:00+02:00", "Asia/Calcutta": "2026-07-01T17:30:00+05:30",
		"Etc/GMT+5": "2026-07-01T07:00:00-05:00", "Europe/Kyiv": "2026-07-01T15:00:00+03:00", "US/Pacific": "2026-07-01T05:00:00-07:00",
	} {
		loc, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).In(loc).Format(time.RFC3339); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestOtherNamesAreRefused(t *testing.T) {
	for name, part := range map[string]string{
		"": "not a time zone", "Local": "not a time zone", "posixrules": "not a", "right/UTC": "not a", "posix/Europe/Berlin": "not a",
		"Factory": "not a", "localtime": "not a", "tzdata.zi": "not a", "EST": "not a", "CET": "not a", "PST": "not a", "EST5EDT": "not a",
		"GMT+5": "not a", "UTC+3": "not a", "+05:30": "not a", "Z": "not a", "Mars/Phobos": "not a", "Europe/Berlinn": "not a",
		" Europe/Berlin": "not a", "Europe/Berlin\x00": "not a", "Europe/Berlin\n": "not a", "../../etc/passwd": "not a",
		"/usr/share/zoneinfo/UTC": "not a", "Europe": "not a", "Europe/": "not a", "Pacific Standard Time": "not a",
		"america/new_york": "is written America/New_York", "EUROPE/LONDON": "is written Europe/London", "utc": "is written UTC",
		"\u212Burope/Berlin": "not a", strings.Repeat("a", 65): "not a", "Europe/Berlin" + strings.Repeat("x", 4096): "not a",
	} {
		_, err := Load(name)
		if belfry.CodeOf(err) != belfry.CodeUnknownZone || !strings.Contains(err.Error(), part) {
			t.Errorf("%.40q: %v, want …%s…", name, err, part)
		}
	}
}
