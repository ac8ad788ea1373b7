package duplicates

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"
)

// Delay is how long after the first copy of a notice the second one comes. The zero value is "mix".
type Delay struct {
	Name string
	draw func(*rand.Rand) time.Duration
}

// mix is when a sender that follows Standard Webhooks makes its first five retries.
var mix = Delay{"mix", anyOf([]time.Duration{
	5 * time.Second, 5*time.Minute + 5*time.Second, 35*time.Minute + 5*time.Second, 2*time.Hour + 35*time.Minute + 5*time.Second,
	7*time.Hour + 35*time.Minute + 5*time.Second,
})}

// ParseDelay reads "immediate", a duration such as "5s", "mix" (one of the first five retries of Standard Webhooks),
// "exp:10m" (exponential, with this mean), a list such as "5s,5m,2h" (one of them), or "csv:" and the name of a file
// whose first column holds delays, as durations or in seconds.
func ParseDelay(text string) (Delay, error) {
	kind, arg, _ := strings.Cut(text, ":")
	switch kind {
	case "mix":
		return mix, nil
	case "immediate":
		return Delay{text, anyOf([]time.Duration{0})}, nil
	case "exp":
		mean, err := time.ParseDuration(arg)
		if err != nil || mean <= 0 {
			return Delay{}, fmt.Errorf("delay %q: want a mean, such as exp:10m", text)
		}
		return Delay{text, func(rng *rand.Rand) time.Duration {
			return time.Duration(min(rng.ExpFloat64(), 1000) * float64(mean))
		}}, nil
	case "csv":
		all, err := readDelays(arg)
		return Delay{text, anyOf(all)}, err
	}
	var all []time.Duration
	for one := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(one))
		if err != nil || d < 0 || d > longest {
			return Delay{}, fmt.Errorf("delay %q: want immediate, 5s, 5m, mix, exp:10m, a list, or csv:FILE", text)
		}
		all = append(all, d)
	}
	return Delay{text, anyOf(all)}, nil
}

const longest = 366 * 24 * time.Hour

func anyOf(all []time.Duration) func(*rand.Rand) time.Duration {
	return func(rng *rand.Rand) time.Duration { return all[rng.IntN(len(all))] }
}

func readDelays(name string) ([]time.Duration, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("delays: %w", err)
	}
	defer f.Close()
	var all []time.Duration
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		cell, _, _ := strings.Cut(lines.Text(), ",")
		cell = strings.Trim(strings.TrimSpace(cell), `"`)
		d, err := time.ParseDuration(cell)
		if err != nil {
			var s float64
			if s, err = strconv.ParseFloat(cell, 64); err == nil && s >= 0 && s <= longest.Seconds() {
				d = time.Duration(s * float64(time.Second))
			} else if err == nil {
				err = errors.New("out of range")
			}
		}
		switch {
		case err == nil && d >= 0 && d <= longest:
			all = append(all, d)
		case n > 1 && cell != "": // the first line may be a heading
			return nil, fmt.Errorf("delays: %s:%d: %q is neither a duration nor seconds", name, n, cell)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("delays: %w", err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("delays: %s holds none", name)
	}
	return all, nil
}
