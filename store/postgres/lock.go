package postgres

import (
	"hash/fnv"
	"slices"

	"belfry"
)

// A change of intent (a preference, a suppression, a pause, a cancel, an endpoint that leaves) and the arms
// that it bears on exclude each other by advisory locks: an arm holds them shared, the change exclusively,
// and each reads only in a statement after it holds them, since a statement that waited for a lock still
// sees what was there before. The same locks keep everything but [Store.Claim] from moving what a change
// looks at. They are taken before any row, in the order of their numbers.
//
// There is one lock for everything, and a fixed number for projects and for recipients: what matters is that
// the same name always has the same number.
type locks map[int32]bool // number → exclusive

const (
	everything int32 = 0
	shards           = 64
)

func shard(parts ...string) int32 {
	h := fnv.New32a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return int32(h.Sum32() % shards)
}

func projectLock(project string) int32 { return 1 + shard(project) }
func recipientLock(project, recipient string) int32 {
	return 1 + shards + shard(project, recipient)
}

func (l locks) add(number int32, exclusive bool) { l[number] = l[number] || exclusive }

// touch is for who moves deliveries of a recipient.
func (l locks) touch(project, recipient string) {
	l.add(everything, false)
	l.add(projectLock(project), false)
	l.add(recipientLock(project, recipient), false)
}

// change is for who changes what one recipient wants, or looks at all that is under way to it.
func (l locks) change(project, recipient string) {
	l.touch(project, recipient)
	l.add(recipientLock(project, recipient), true)
}

// changeProject is change for all recipients of a project; of every project for "".
func (l locks) changeProject(project string) {
	if project == "" {
		l.add(everything, true)
		return
	}
	l.add(everything, false)
	l.add(projectLock(project), true)
}

func (l locks) covers(project, recipient string) bool {
	return l[everything] || l[projectLock(project)] || l[recipientLock(project, recipient)]
}

// take waits for the locks. They are let go by the end of the transaction.
func (tx *txn) take(l locks) error {
	numbers := make([]int32, 0, len(l))
	for n := range l {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	exclusive := make([]bool, len(numbers))
	for i, n := range numbers {
		exclusive[i] = l[n]
	}
	tx.locks = l
	return tx.run(`SELECT CASE WHEN l.exclusive THEN pg_advisory_xact_lock($1, l.number) ELSE pg_advisory_xact_lock_shared($1, l.number) END
FROM unnest($2::int[], $3::bool[]) AS l (number, exclusive)`, tx.space, numbers, exclusive)
}

// hash is how claims name whom they bear on.
func hash(parts ...string) int64 {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return int64(h.Sum64())
}

func recipientHash(n belfry.Notification) int64 { return hash(n.Project, n.Recipient) }
