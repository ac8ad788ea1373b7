package receivertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"belfry/receiver"
)

const (
	envProcess = "RECEIVERTEST_PROCESS"
	envAddress = "RECEIVERTEST_ADDRESS"
)

// Process is a [Setup] of whatever transaction.
type Process interface {
	name() string
	process(ctx context.Context, address string) error
}

// Main runs the tests, or, in a process of the kill tests, handles messages until it is killed. It returns the exit
// status.
func Main(m interface{ Run() int }, setups ...Process) int {
	want := os.Getenv(envProcess)
	if want == "" {
		return m.Run()
	}
	for _, p := range setups {
		if p.name() == want {
			if err := p.process(context.Background(), os.Getenv(envAddress)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, "no such setup: "+want)
	return 1
}

func (s Setup[T]) name() string { return s.Name }

// Where a process kills itself.
const (
	nowhere      = "-"
	beforeEffect = "before"
	beforeCommit = "effect"
	afterCommit  = "commit"
)

// process handles the messages that its input names, a line "id point" each, four at a time, and prints the id of each
// that is done.
func (s Setup[T]) process(ctx context.Context, address string) error {
	f, err := s.Open(ctx, address)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := receiver.New(f.Store, receiver.Options{})
	if err != nil {
		return err
	}
	lines := make(chan string)
	var workers sync.WaitGroup
	var print sync.Mutex
	for range 4 {
		workers.Go(func() {
			for line := range lines {
				id, point, _ := strings.Cut(line, " ")
				die := func(at string) {
					if at == point {
						_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
						select {}
					}
				}
				_, err := r.Handle(ctx, message(id), func(ctx context.Context, tx T) error {
					die(beforeEffect)
					if err := f.Book(ctx, tx, id); err != nil {
						return err
					}
					die(beforeCommit)
					return nil
				})
				die(afterCommit)
				print.Lock()
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
				} else {
					fmt.Println(id)
				}
				print.Unlock()
			}
		})
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		lines <- in.Text()
	}
	close(lines)
	workers.Wait()
	return in.Err()
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (b *bench[T]) start() *process {
	b.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), envProcess+"="+b.setup.Name, envAddress+"="+b.address)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// killedAtPoints kills the process at each point of the life of a message, again and again, and sends the message
// anew until it is acknowledged, and once more.
func killedAtPoints[T any](b *bench[T]) {
	ids := 60
	if testing.Short() {
		ids = 15
	}
	points := []string{beforeCommit, beforeEffect, afterCommit}
	want := map[string]int{}
	p, kills := b.start(), 0
	for i := range ids {
		id := fmt.Sprint("id-", i)
		want[id] = 1
		point := points[i%len(points)]
		for acks := 0; acks < 2; {
			_, _ = io.WriteString(p.in, id+" "+point+"\n")
			if p.out.Scan() {
				acks++
				continue
			}
			if point == nowhere {
				b.Fatal("the process ended by itself")
			}
			p.kill()
			p, point = b.start(), nowhere
			kills++
		}
	}
	b.booked(want)
	b.Logf("%d kills", kills)
	if kills != ids {
		b.Errorf("%d kills, want %d", kills, ids)
	}
}

// killedAnywhere kills the process at some moment, with four messages at a time in it, and sends anew whatever was not
// acknowledged.
func killedAnywhere[T any](b *bench[T]) {
	seed := uint64(time.Now().UnixNano())
	b.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ids, kills := 400, 0
	if testing.Short() {
		ids = 80
	}
	var open []string
	want := map[string]int{}
	for i := range ids {
		id := fmt.Sprint("id-", i)
		want[id] = 1
		open = append(open, id)
	}
	for len(open) > 0 {
		p := b.start()
		go func(send []string) { // writing blocks while the process is busy, and fails when it is dead
			for _, id := range send {
				if _, err := io.WriteString(p.in, id+" "+nowhere+"\n"); err != nil {
					return
				}
			}
			_ = p.in.Close()
		}(append([]string(nil), open...))
		done := map[string]bool{}
		acks := 1 + rng.IntN(20)
		for len(done) < acks && p.out.Scan() {
			done[p.out.Text()] = true
		}
		p.kill() // with up to four of them under way
		kills++
		var left []string
		for _, id := range open {
			if !done[id] {
				left = append(left, id)
			}
		}
		if len(done) == 0 {
			b.Fatal("the process ended by itself")
		}
		open = left
	}
	b.booked(want)
	b.Logf("%d kills", kills)
}
