package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"belfry/signature"
)

// In a process of the test, the program is killed between the effect and whatever follows it, for the notices whose id
// says so, the first time.
func TestMain(m *testing.M) {
	if os.Getenv("PAYMENTS_TEST_SERVE") == "" {
		os.Exit(m.Run())
	}
	if err := run(os.Args[1:], os.Stdout, func(id string) {
		if marker := os.Getenv("PAYMENTS_TEST_SERVE") + "/" + id; strings.HasSuffix(id, "-kill") {
			if _, err := os.Stat(marker); err != nil {
				_ = os.WriteFile(marker, nil, 0o600)
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type program struct {
	t       *testing.T
	version string
	dir     string
	secret  signature.Secret
	cmd     *exec.Cmd
	url     string
}

func (p *program) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0], "-version", p.version, "-db", p.dir+"/book.db", "-listen", "127.0.0.1:0")
	p.cmd.Env = append(os.Environ(), "PAYMENTS_TEST_SERVE="+p.dir, "PAYMENTS_SECRET="+p.secret.Reveal())
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.end)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.t.Fatal("the program does not serve: ", err)
	}
	p.url = "http://" + strings.TrimSpace(line)
}

func (p *program) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

var errNoAnswer = errors.New("no answer")

func (p *program) post(id string, cents int64) error {
	p.t.Helper()
	body := fmt.Appendf(nil, `{"type":"payment","data":{"amount":%d}}`, cents)
	now := time.Now()
	signed, err := signature.Sign(id, now, body, p.secret)
	if err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/hook", bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set(signature.HeaderID, id)
	req.Header.Set(signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(signature.HeaderSignature, signed)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return errNoAnswer
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return nil
}

type total struct {
	Bookings, Cents int64
}

func (p *program) total() (t total) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, p.url+"/total", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&t); err != nil {
		p.t.Fatal(err)
	}
	return t
}

const (
	notices = 200
	kills   = 20 // every tenth notice
	again   = 10 // every twentieth comes once more although it was answered
	right   = 200 * 201 / 2 * 100
)

// TestTotalsAfterKills sends 200 notices, of 1.00 to 200.00. At every tenth the program is killed with -9 between the
// effect and what follows, and started again, and the sender, which got no answer, sends again. Every twentieth is
// sent twice although it was answered.
func TestTotalsAfterKills(t *testing.T) {
	var killed, repeated int64 // amounts
	for i := int64(1); i <= notices; i++ {
		if i%10 == 0 {
			killed += i * 100
		}
		if i%20 == 5 {
			repeated += i * 100
		}
	}
	rows := []string{}
	for _, c := range []struct {
		version string
		want    total
	}{
		{"naive", total{notices + kills + again, right + killed + repeated}},
		{"separate", total{notices + kills, right + killed}},
		{"receiver", total{notices, right}},
	} {
		t.Run(c.version, func(t *testing.T) {
			secret, err := signature.NewSecret(nil)
			if err != nil {
				t.Fatal(err)
			}
			p := &program{t: t, version: c.version, dir: t.TempDir(), secret: secret}
			p.start()
			deaths := 0
			for i := int64(1); i <= notices; i++ {
				id := fmt.Sprintf("notice-%d", i)
				if i%10 == 0 {
					id += "-kill"
				}
				copies := 1
				if i%20 == 5 {
					copies = 2
				}
				for copies > 0 {
					switch err := p.post(id, i*100); err {
					case nil:
						copies--
					case errNoAnswer:
						deaths++
						p.end()
						p.start()
					default:
						t.Fatal(err)
					}
				}
			}
			got := p.total()
			if got != c.want || deaths != kills {
				t.Errorf("%+v after %d kills, want %+v after %d", got, deaths, c.want, kills)
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %d | %s | %s |", c.version, got.Bookings, money(got.Cents), money(got.Cents-right)))
		})
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if !strings.Contains(string(readme), row) {
			t.Errorf("README.md does not hold the row\n%s", row)
		}
	}
}

func money(cents int64) string {
	euros := strconv.FormatInt(cents/100, 10)
	if n := len(euros); n > 3 {
		euros = euros[:n-3] + "," + euros[n-3:]
	}
	return fmt.Sprintf("%s.%02d", euros, cents%100)
}

func TestRequestsThatAreNotGenuineBookNothing(t *testing.T) {
	for _, version := range []string{"naive", "separate", "receiver"} {
		secret, err := signature.NewSecret(nil)
		if err != nil {
			t.Fatal(err)
		}
		p := &program{t: t, version: version, dir: t.TempDir(), secret: secret}
		p.start()
		if p.secret, err = signature.NewSecret(nil); err != nil {
			t.Fatal(err)
		}
		if err := p.post("a", 100); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("%s: %v", version, err)
		}
		if got := p.total(); got != (total{}) {
			t.Errorf("%s: %+v", version, got)
		}
	}
}
