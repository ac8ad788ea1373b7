// Package safehttp is the one way out: an HTTP client that does not reach inside the network it runs in, writes each
// request at most once, and says of every failure whether the request may have arrived.
//
// It refuses addresses when it dials, not when a name is looked up, so a name that changes its answer gains nothing.
// It uses no proxy, follows no redirect and never sends again by itself; whether to try again is its caller's business.
// Error texts hold the host of a request and never its path, query, headers or body.
package safehttp
