package lab

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

var built = sync.OnceValues(func() (string, error) {
	name := filepath.Join(scratch, "belfry")
	out, err := exec.Command("go", "build", "-o", name, "belfry/cmd/belfry").CombinedOutput()
	if err != nil {
		return string(out), err
	}
	return name, nil
})

func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds the program and runs it in other processes, which takes seconds")
	}
	name, err := built()
	if err != nil {
		t.Fatal(err, name)
	}
	return name
}

func TestAKilledServerKeepsItsWord(t *testing.T) {
	var out bytes.Buffer
	v, err := Kill(t.Context(), KillOptions{For: 4 * time.Second, Binary: program(t), Out: &out, Err: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", out.String())
	if !v.Kept() {
		t.Errorf("seed %d: promises were broken", v.Seed)
	}
	if v.Kills < 3 || v.Acknowledged < 50 || v.Accepted < 20 {
		t.Errorf("too little happened to say anything: %+v", v)
	}
}
