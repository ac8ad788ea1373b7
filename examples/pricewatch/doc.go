// Package pricewatch is a small application with belfry inside: it watches prices and tells people when
// something they watch got cheaper. It promises what its users would expect: nobody is told one drop twice,
// nobody is told of a price that is no longer to be had, and nobody who said stop is told anything.
//
// It embeds the engine as a library. To see how, read in this order:
//
//	people.go    who watches what, and how people and their devices are made known
//	detect.go    two detectors that overlap, one of them with a transaction of its own
//	recheck.go   the question asked right before a notification leaves
//	app.go       the application around them, and its categories
//
// The rest is the world it runs in: prices from a file (csv.go) or a seeded walk (walk.go), the shop that
// knows the price of the moment (shop.go), and [Demo], which puts it all into one process together with
// pretend push services and webhook receivers that misbehave, and at the end judges from their log
// (judge.go) whether the promises held.
package pricewatch
