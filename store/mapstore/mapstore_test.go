package mapstore_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"belfry/store"
	"belfry/store/mapstore"
	"belfry/store/storetest"
)

// planted names, in the environment, the fault that TestStore is run with.
const planted = "BELFRY_PLANTED_FAULT"

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return mapstore.Planted(mapstore.Fault(os.Getenv(planted))) })
}

// TestTheSuiteCatchesEveryFault runs the suite, in a process of its own, on a store with one fault after
// another: a fault that no case catches is a promise that the suite does not keep.
func TestTheSuiteCatchesEveryFault(t *testing.T) {
	if os.Getenv(planted) != "" {
		t.Skip("this is the suite with a fault planted")
	}
	failed := regexp.MustCompile(`(?m)^ +--- FAIL: TestStore/(\S+/\S+)`)
	for _, fault := range mapstore.Faults {
		t.Run(string(fault), func(t *testing.T) {
			args := []string{"-test.run=^TestStore$", "-test.short", "-test.timeout=1m"}
			if testing.Short() {
				args = append(args, "-test.failfast")
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
			cmd.Env = append(os.Environ(), planted+"="+string(fault))
			out, err := cmd.CombinedOutput()
			var caught []string
			for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
				caught = append(caught, m[1])
			}
			if err == nil || len(caught) == 0 {
				t.Fatalf("no case caught it: %v\n%s", err, out)
			}
			t.Logf("caught by %s", strings.Join(caught, " "))
		})
	}
}
