// Package belfry holds the words and the rules of the notification engine: who may be told what, when,
// where, and what each answer of the world means for the next step.
//
// It is pure. Every function takes values and returns values; clocks, ids, jitter and stored facts are
// arguments. The rooms that run things (engine, store, channel) call these functions and add nothing to
// what they decide, so the model checker in internal/model explores the very code that ships.
//
// Start with [Notification] (what a caller enqueues), [Plan] (to whom and how it goes when due),
// [Delivery] (its way to one endpoint, the state machine) and [Reason] (why it ended).
package belfry
