package engine

import (
	"cmp"
	"sync"

	"belfry"
)

// slots bounds what is under way: sends by channel, and notifications being planned onto several channels
// (queue "", store.Parked and the queues of channels that this engine lacks share one bound). An eighth is kept for urgent, another eighth from bulk.
type slots struct {
	mu   sync.Mutex
	size map[string]int
	used map[string]int
}

// planning is the bound on notifications that are being planned before their channel is known.
const planning = ""

func newSlots(channels []string, o Options) *slots {
	s := &slots{size: map[string]int{planning: 4 * o.ClaimBatch}, used: map[string]int{}}
	for _, c := range channels {
		s.size[c] = cmp.Or(o.Workers[c], o.DefaultWorkers)
	}
	return s
}

// room is the part of a size that a lane may fill.
func room(size int, lane belfry.Lane) int {
	switch lane {
	case belfry.Urgent:
		return size
	case belfry.Normal:
		return max(size-size/8, 1)
	}
	return max(size-size/4, 1)
}

// pool is the bound that a queue falls under: its channel's, or that of planning when it has none here.
func (s *slots) pool(queue string) string {
	if _, ours := s.size[queue]; ours {
		return queue
	}
	return planning
}

// free is how much more a lane may take from a queue's bound now.
func (s *slots) free(queue string, lane belfry.Lane) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freeLocked(s.pool(queue), lane)
}

func (s *slots) freeLocked(pool string, lane belfry.Lane) int {
	return max(room(s.size[pool], lane)-s.used[pool], 0)
}

// take takes up to n and says how many it got.
func (s *slots) take(queue string, lane belfry.Lane, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pool(queue)
	n = min(n, s.freeLocked(p, lane))
	s.used[p] += n
	return n
}

func (s *slots) give(queue string, n int) {
	s.mu.Lock()
	s.used[s.pool(queue)] -= n
	s.mu.Unlock()
}

// busy is how many are under way, by queue.
func (s *slots) busy() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for c := range s.size {
		if c != planning {
			out[c] = s.used[c]
		}
	}
	return out
}
