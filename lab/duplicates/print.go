package duplicates

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Print writes the result as a table and a chart of plain characters.
func (r Result) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s notices, %s a second; %s of them are delivered twice, the second copy after: %s. Seed %d.\n\n",
		thousands(int64(r.Notices)), number(r.Rate), thousands(int64(r.Copies)), r.Delay, r.Seed)
	table(&b, "received with", r.Ways)
	if r.Lucky > 0 {
		fmt.Fprintf(&b, "\n%d of the copies that the last %d ids caught were caught only because the run ended: no traffic pushed them out.\n", r.Lucky, r.Memory)
	}
	fmt.Fprintf(&b, "\nCopies that get through, of %d, if all of them come after\n\n", r.Copies)
	const width = 16
	fmt.Fprintf(&b, "%9s  %-*s  %-*s  %s\n", "", width+5, fmt.Sprintf("last %d, %s/s", r.Memory, number(r.Rate)), width+5,
		fmt.Sprintf("last %d, %s/s", r.Memory, number(10*r.Rate)), "ids for "+window(r.Window))
	for _, bar := range r.Chart {
		fmt.Fprintf(&b, "%9s ", delayName(bar.Delay))
		for _, n := range []int{bar.Last, bar.Busier, bar.Timed} {
			full := 0
			if r.Copies > 0 {
				full = (n*width + r.Copies - 1) / r.Copies
			}
			fmt.Fprintf(&b, " %4d %s", n, strings.Repeat("█", full)+strings.Repeat("·", width-full)+" ")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\nA number of ids is a bet on the traffic, a time is a bet on the sender. Remember every id for longer than\nthe sender goes on sending, in the transaction of the effect.\n")
	if r.Real != nil {
		b.WriteString("\nThe same for real: signed requests over HTTP, the first answer dropped after the effect\n\n")
		table(&b, "received by", r.Real)
	}
	text := b.String()
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}

func table(b *strings.Builder, title string, ways []Way) {
	fmt.Fprintf(b, "%-20s %9s %9s %15s %13s\n", title, "handled", "twice", "total", "off by")
	for _, w := range ways {
		off := money(w.OffBy)
		if w.OffBy > 0 {
			off = "+" + off
		}
		fmt.Fprintf(b, "%-20s %9s %9s %15s %13s\n", w.Name, thousands(int64(w.Handled)), thousands(int64(w.Twice)), money(w.Total), off)
	}
}

func money(cents int64) string {
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	return fmt.Sprintf("%s%s.%02d", sign, thousands(cents/100), cents%100)
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func number(f float64) string {
	if f == float64(int64(f)) {
		return thousands(int64(f))
	}
	return fmt.Sprintf("%g", f)
}

func delayName(d time.Duration) string {
	if d == 0 {
		return "at once"
	}
	return short(d)
}

// short is a duration without its zeroes: 5m, not 5m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func window(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	return short(d)
}
