-- What the migrations lead to. Written by: go test ./store/sqlite -run Schema -update

CREATE TABLE access_key (
	id         TEXT PRIMARY KEY,
	project    TEXT NOT NULL,
	name       TEXT NOT NULL,
	scopes     TEXT NOT NULL,
	hash       BLOB NOT NULL,
	created_at INTEGER NOT NULL,
	revoked_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE category (
	project    TEXT NOT NULL,
	name       TEXT NOT NULL,
	policy     TEXT NOT NULL,
	PRIMARY KEY (project, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE claim (
	id          INTEGER PRIMARY KEY,
	owner       INTEGER NOT NULL,
	lease_until INTEGER NOT NULL,
	alone       INTEGER NOT NULL,
	items       TEXT NOT NULL
) STRICT;

CREATE TABLE consent_log (
	project   TEXT NOT NULL,
	recipient TEXT NOT NULL,
	category  TEXT NOT NULL,
	channel   TEXT NOT NULL,
	is_on     INTEGER,
	source    TEXT NOT NULL,
	at        INTEGER NOT NULL
) STRICT;

CREATE INDEX consent_log_by_recipient ON consent_log (project, recipient);

CREATE TABLE delivery (
	id       INTEGER NOT NULL,
	n        INTEGER NOT NULL,
	ended_at INTEGER NOT NULL,
	body     TEXT NOT NULL,
	PRIMARY KEY (id, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE ended (
	id     INTEGER PRIMARY KEY,
	state  TEXT NOT NULL,
	reason TEXT NOT NULL,
	at     INTEGER NOT NULL,
	wiped  INTEGER NOT NULL -- its content is gone
) STRICT;

CREATE INDEX ended_unwiped ON ended (at) WHERE wiped = 0;

CREATE TABLE endpoint (
	id            INTEGER PRIMARY KEY,
	project       TEXT NOT NULL,
	recipient     TEXT NOT NULL,
	channel       TEXT NOT NULL,
	medium        TEXT NOT NULL,
	app           TEXT NOT NULL,
	device        TEXT NOT NULL,
	address       TEXT NOT NULL,
	keys          TEXT,
	moves         INTEGER NOT NULL, -- the address belongs to whoever registered it last
	registered_at INTEGER NOT NULL,
	last_seen     INTEGER NOT NULL,
	strikes       INTEGER NOT NULL,
	retired_at    INTEGER NOT NULL,
	reason        TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX endpoint_address ON endpoint (project, recipient, channel, address) WHERE retired_at = 0;

CREATE INDEX endpoint_by_address ON endpoint (project, address);

CREATE INDEX endpoint_by_recipient ON endpoint (project, recipient);

CREATE UNIQUE INDEX endpoint_device ON endpoint (project, app, medium, device) WHERE retired_at = 0 AND device <> '';

CREATE UNIQUE INDEX endpoint_token ON endpoint (project, channel, address) WHERE retired_at = 0 AND moves = 1;

CREATE TABLE event (
	id     INTEGER NOT NULL,
	n      INTEGER NOT NULL,
	at     INTEGER NOT NULL,
	kind   TEXT NOT NULL,
	reason TEXT NOT NULL,
	until  INTEGER NOT NULL,
	detail TEXT NOT NULL
) STRICT;

CREATE INDEX event_by_id ON event (id);

CREATE TABLE fanout (
	id   INTEGER PRIMARY KEY,
	body TEXT NOT NULL
) STRICT;

CREATE TABLE flight (
	project   TEXT NOT NULL,
	recipient TEXT NOT NULL,
	category  TEXT NOT NULL,
	subject   TEXT NOT NULL,
	id        INTEGER NOT NULL,
	PRIMARY KEY (project, recipient, category, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE mark (
	project      TEXT NOT NULL,
	recipient    TEXT NOT NULL,
	category     TEXT NOT NULL,
	subject      TEXT NOT NULL,
	at           INTEGER NOT NULL,
	data         TEXT,
	notification INTEGER NOT NULL,
	PRIMARY KEY (project, recipient, category, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE migration (
	number     INTEGER PRIMARY KEY,
	name       TEXT NOT NULL,
	checksum   TEXT NOT NULL,
	applied_at INTEGER NOT NULL
) STRICT;

CREATE TABLE notification (
	id         INTEGER PRIMARY KEY,
	project    TEXT NOT NULL,
	recipient  TEXT NOT NULL,
	category   TEXT NOT NULL,
	subject    TEXT NOT NULL,
	data       TEXT,
	created_at INTEGER NOT NULL,
	due_at     INTEGER NOT NULL,
	deadline   INTEGER NOT NULL,
	lane       INTEGER NOT NULL, -- index into belfry.Lanes
	sensitive  INTEGER NOT NULL,
	options    TEXT, -- channels, targets, once
	fact       BLOB, -- of its once
	erased     INTEGER NOT NULL DEFAULT 0 -- its recipient was deleted: nothing more is remembered of it
) STRICT;

CREATE INDEX notification_by_recipient ON notification (project, recipient, id);

CREATE TABLE once (
	fact         BLOB PRIMARY KEY, -- SHA-256 of project and fact, the first half
	notification INTEGER NOT NULL,
	duplicates   INTEGER NOT NULL,
	expires_at   INTEGER NOT NULL  -- 0: never
) STRICT, WITHOUT ROWID;

CREATE INDEX once_by_expiry ON once (expires_at) WHERE expires_at > 0;

CREATE TABLE pause (
	id       INTEGER PRIMARY KEY,
	project  TEXT NOT NULL,
	category TEXT NOT NULL,
	channel  TEXT NOT NULL,
	app      TEXT NOT NULL,
	reason   TEXT NOT NULL,
	until    INTEGER NOT NULL,
	at       INTEGER NOT NULL
) STRICT;

CREATE TABLE preference (
	project   TEXT NOT NULL,
	recipient TEXT NOT NULL,
	category  TEXT NOT NULL,
	channel   TEXT NOT NULL,
	is_on     INTEGER NOT NULL,
	source    TEXT NOT NULL,
	at        INTEGER NOT NULL,
	PRIMARY KEY (project, recipient, category, channel)
) STRICT, WITHOUT ROWID;

CREATE TABLE project (
	name       TEXT PRIMARY KEY,
	created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE recipient (
	project     TEXT NOT NULL,
	id          TEXT NOT NULL,
	zone        TEXT NOT NULL,
	zone_source TEXT NOT NULL,
	zone_as_of  INTEGER NOT NULL,
	locale      TEXT NOT NULL,
	attributes  TEXT,
	created_at  INTEGER NOT NULL,
	updated_at  INTEGER NOT NULL,
	PRIMARY KEY (project, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE request (
	key         BLOB PRIMARY KEY, -- SHA-256 of project and idempotency key, the first half
	fingerprint BLOB NOT NULL,
	answer      TEXT NOT NULL,
	expires_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX request_by_expiry ON request (expires_at);

CREATE TABLE secret (
	name  TEXT PRIMARY KEY,
	value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE stat (
	project TEXT NOT NULL,
	state   TEXT NOT NULL,
	reason  TEXT NOT NULL,
	count   INTEGER NOT NULL,
	PRIMARY KEY (project, state, reason)
) STRICT, WITHOUT ROWID;

CREATE TABLE suppression (
	project TEXT NOT NULL,
	address TEXT NOT NULL,
	channel TEXT NOT NULL,
	reason  TEXT NOT NULL,
	at      INTEGER NOT NULL,
	PRIMARY KEY (project, address, channel)
) STRICT, WITHOUT ROWID;

CREATE TABLE waiting (
	queue     TEXT NOT NULL,
	lane      INTEGER NOT NULL,
	project   TEXT NOT NULL,
	due_at    INTEGER NOT NULL,
	id        INTEGER NOT NULL,
	n         INTEGER NOT NULL,
	home      TEXT, -- of what is parked: the queue it goes back to
	recipient TEXT, -- of deliveries and of what is parked
	body      TEXT, -- the delivery, or what a notification has behind it
	PRIMARY KEY (queue, lane, project, due_at, id, n)
) STRICT, WITHOUT ROWID;

CREATE INDEX waiting_by_id ON waiting (id);

CREATE INDEX waiting_by_recipient ON waiting (project, recipient) WHERE recipient IS NOT NULL;
