// Package archtest holds the tree to its own rules: who may import whom, what stays pure, what is documented
// and what it depends on. It has only tests; a rule that is worth breaking is changed here first, with its
// reason.
package archtest
