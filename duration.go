package belfry

import (
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that is written "90s", "6h" or "3d" in JSON and YAML.
type Duration time.Duration

// Std is d as the standard library has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }

func (d Duration) String() string {
	if day := 24 * time.Hour; d != 0 && d.Std()%day == 0 {
		return strconv.FormatInt(int64(d.Std()/day), 10) + "d"
	}
	s := d.Std().String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Duration) UnmarshalText(b []byte) error {
	s := string(b)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return Invalid("", "not a duration: want for example 90s, 15m, 6h or 3d")
		}
		*d = Duration(n) * Duration(24*time.Hour)
		return nil
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return Invalid("", "not a duration: want for example 90s, 15m, 6h or 3d")
	}
	*d = Duration(v)
	return nil
}
