package belfry

import "encoding/json"

// Content is what a person is told, before a channel gives it its own form.
type Content struct {
	Title string          `json:"title,omitempty"`
	Body  string          `json:"body,omitempty"`
	Link  string          `json:"link,omitempty"`
	Image string          `json:"image,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"` // the data it was made from
}
