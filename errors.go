package belfry

import (
	"errors"
	"fmt"
)

// Code is the stable name of an error that a caller can act upon. The HTTP API shows it as `code`; the
// mapping to a status is api's.
type Code string

const (
	CodeInvalid          Code = "invalid"           // a field is wrong: Field names it
	CodeUnknownRecipient Code = "unknown_recipient" // no such recipient in the project
	CodeUnknownCategory  Code = "unknown_category"  // no such category in the project
	CodeUnknownChannel   Code = "unknown_channel"   // no such channel or medium is configured
	CodeUnknownZone      Code = "unknown_zone"      // not a zone of the tz database
	CodeNotFound         Code = "not_found"         // no such thing in the project
	CodeInFlight         Code = "in_flight"         // an attempt may be on the wire: too late to cancel
	CodeEnded            Code = "ended"             // it has ended already
	CodeKeyInvalid       Code = "idempotency_key_invalid"
	CodeKeyReused        Code = "idempotency_key_reused" // same key, another request
	CodeKeyDuplicate     Code = "duplicate_key_in_batch"
	CodeBusy             Code = "store_busy"      // the store cannot take it now: try again
	CodeStoreFull        Code = "store_full"      // no room left on the disk
	CodeOutcomeUnknown   Code = "outcome_unknown" // the commit was not answered: repeat with the same key
	CodeConflict         Code = "conflict"        // another change came first: read and try again
)

// Error is an error for the caller: what happened, to which field, and what to do. Its text is safe to
// show: it holds no secret, token or address.
type Error struct {
	Code   Code
	Field  string // dotted path into the request; empty when it is not about one
	Detail string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}

// Invalid is an [Error] about one field.
func Invalid(field, format string, args ...any) *Error {
	return &Error{CodeInvalid, field, fmt.Sprintf(format, args...)}
}

// Errorf is an [Error] with a code and no field.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{code, "", fmt.Sprintf(format, args...)}
}

// CodeOf is the code of the [Error] in err's chain, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// In returns err with prefix put before the field of its [Error], for errors of an element of a list.
func In(prefix string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	field := prefix
	if e.Field != "" {
		field += "." + e.Field
	}
	return &Error{e.Code, field, e.Detail}
}
