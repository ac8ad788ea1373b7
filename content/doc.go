// Package content turns a category's templates and a notification's data into what a person reads, in bounded time and
// space whatever the template and the data are.
//
// The language is a part of text/template: text, {{.a.b}}, {{if}}, {{else}}, {{with}}, pipes, parentheses, and the few
// functions of this package. It has no loops, no variables, no nested templates, no methods and no printf; what it
// lacks is refused by [Compile], not when something is to be sent.
//
//   - {{.item}} is a member of the data; a member that is missing, or null, prints nothing.
//   - {{recipient.id}}, recipient.locale, recipient.zone and recipient.attributes.x are about who is told.
//   - Numbers print as they were written: 1980, 19.80. Objects and lists do not print: name a member, or join.
//   - The functions are and, or, not, eq, ne, lt, le, gt, ge, default, len, index, join, upper, lower, trim, truncate,
//     urlquery.
//
// A field without a template is taken from the data's string member of the same name. The package is pure: it knows no
// clock, file or network.
package content
