-- compatible: 1
-- Times are microseconds since 1970 in UTC; 0 or NULL: none. Ids are belfry.ID. Names sort by their bytes.

CREATE TABLE project (
	name       text COLLATE "C" PRIMARY KEY,
	created_at bigint NOT NULL
);

CREATE TABLE category (
	project text COLLATE "C" NOT NULL,
	name    text COLLATE "C" NOT NULL,
	policy  text NOT NULL,
	PRIMARY KEY (project, name)
);

CREATE TABLE pause (
	id       bigint PRIMARY KEY,
	project  text NOT NULL,
	category text NOT NULL,
	channel  text NOT NULL,
	app      text NOT NULL,
	reason   text NOT NULL,
	until    bigint NOT NULL,
	at       bigint NOT NULL
);

CREATE TABLE access_key (
	id         text COLLATE "C" PRIMARY KEY,
	project    text NOT NULL,
	name       text NOT NULL,
	scopes     text NOT NULL,
	hash       bytea NOT NULL,
	created_at bigint NOT NULL,
	revoked_at bigint NOT NULL
);

CREATE TABLE secret (
	name  text COLLATE "C" PRIMARY KEY,
	value text NOT NULL
);

CREATE TABLE recipient (
	project     text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	zone        text NOT NULL,
	zone_source text NOT NULL,
	zone_as_of  bigint NOT NULL,
	locale      text NOT NULL,
	attributes  text,
	created_at  bigint NOT NULL,
	updated_at  bigint NOT NULL,
	PRIMARY KEY (project, id)
);

CREATE TABLE preference (
	project   text COLLATE "C" NOT NULL,
	recipient text COLLATE "C" NOT NULL,
	category  text COLLATE "C" NOT NULL,
	channel   text COLLATE "C" NOT NULL,
	is_on     boolean NOT NULL,
	source    text NOT NULL,
	at        bigint NOT NULL,
	PRIMARY KEY (project, recipient, category, channel)
);

-- Every change of a preference, appended; is_on is NULL where it was cleared.
CREATE TABLE consent_log (
	project   text COLLATE "C" NOT NULL,
	recipient text COLLATE "C" NOT NULL,
	category  text NOT NULL,
	channel   text NOT NULL,
	is_on     boolean,
	source    text NOT NULL,
	at        bigint NOT NULL
);
CREATE INDEX consent_log_by_recipient ON consent_log (project, recipient);

CREATE TABLE endpoint (
	id            bigint PRIMARY KEY,
	project       text COLLATE "C" NOT NULL,
	recipient     text COLLATE "C" NOT NULL,
	channel       text COLLATE "C" NOT NULL,
	medium        text COLLATE "C" NOT NULL,
	app           text COLLATE "C" NOT NULL,
	device        text COLLATE "C" NOT NULL,
	address       text COLLATE "C" NOT NULL,
	address_key   bytea NOT NULL, -- SHA-256 of the address, the first half: an address may be longer than an index takes
	keys          text,
	moves         boolean NOT NULL, -- the address belongs to whoever registered it last
	registered_at bigint NOT NULL,
	last_seen     bigint NOT NULL,
	strikes       integer NOT NULL,
	retired_at    bigint NOT NULL,
	reason        text NOT NULL
);
CREATE INDEX endpoint_by_recipient ON endpoint (project, recipient);
CREATE UNIQUE INDEX endpoint_device ON endpoint (project, app, medium, device) WHERE retired_at = 0 AND device <> '';
CREATE UNIQUE INDEX endpoint_token ON endpoint (project, channel, address_key) WHERE retired_at = 0 AND moves;
CREATE UNIQUE INDEX endpoint_address ON endpoint (project, recipient, channel, address_key) WHERE retired_at = 0;

CREATE TABLE suppression (
	project     text COLLATE "C" NOT NULL,
	address_key bytea NOT NULL,
	channel     text COLLATE "C" NOT NULL,
	address     text COLLATE "C" NOT NULL,
	reason      text NOT NULL,
	at          bigint NOT NULL,
	PRIMARY KEY (project, address_key, channel)
);

CREATE TABLE mark (
	project      text COLLATE "C" NOT NULL,
	recipient    text COLLATE "C" NOT NULL,
	category     text COLLATE "C" NOT NULL,
	subject      text COLLATE "C" NOT NULL,
	at           bigint NOT NULL,
	data         text,
	notification bigint NOT NULL,
	PRIMARY KEY (project, recipient, category, subject)
);

-- What was enqueued; never changed, but for the wiping of its content.
CREATE TABLE notification (
	id         bigint PRIMARY KEY,
	project    text COLLATE "C" NOT NULL,
	recipient  text COLLATE "C" NOT NULL,
	category   text NOT NULL,
	subject    text NOT NULL,
	data       text,
	created_at bigint NOT NULL,
	due_at     bigint NOT NULL,
	deadline   bigint NOT NULL,
	lane       smallint NOT NULL, -- index into belfry.Lanes
	sensitive  boolean NOT NULL,
	options    text, -- channels, once
	targets    text, -- frozen destinations
	fact       bytea, -- of its once
	erased     boolean NOT NULL DEFAULT false -- its recipient is gone, and what was said to it with it
);
CREATE INDEX notification_by_recipient ON notification (project, recipient, id);

-- Facts told, and requests answered: lifetimes of their own, whatever becomes of the notification.
CREATE TABLE once (
	fact         bytea PRIMARY KEY, -- SHA-256 of project and fact, the first half
	notification bigint NOT NULL,
	duplicates   bigint NOT NULL,
	expires_at   bigint NOT NULL -- 0: never
);
CREATE INDEX once_expires ON once (expires_at) WHERE expires_at > 0;
CREATE TABLE request (
	key         bytea PRIMARY KEY, -- SHA-256 of project and idempotency key, the first half
	fingerprint bytea NOT NULL,
	answer      text NOT NULL,
	expires_at  bigint NOT NULL
);
CREATE INDEX request_expires ON request (expires_at);

-- The waiting rooms: what is to be planned (n = 0) or tried (n > 0). A state is where a row stands.
CREATE TABLE waiting (
	queue     text COLLATE "C" NOT NULL,
	lane      smallint NOT NULL,
	project   text COLLATE "C" NOT NULL,
	due_at    bigint NOT NULL,
	id        bigint NOT NULL,
	n         integer NOT NULL,
	home      text, -- of what is parked: the queue it goes back to
	recipient text COLLATE "C", -- of deliveries and of what is parked
	reason    text NOT NULL, -- what keeps it waiting
	body      text, -- the delivery, or what a notification has behind it
	PRIMARY KEY (queue, lane, project, due_at, id, n)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 2000);
CREATE INDEX waiting_by_id ON waiting (id);
CREATE INDEX waiting_by_recipient ON waiting (project, recipient) WHERE recipient IS NOT NULL;

-- One row per claimed batch: exactly the items that its worker holds.
CREATE TABLE claim (
	id          bigint PRIMARY KEY,
	owner       bigint NOT NULL,
	lease_until bigint NOT NULL,
	alone       boolean NOT NULL,
	armed       boolean NOT NULL,
	version     integer NOT NULL, -- grows with every change
	counts      text NOT NULL,    -- items by project
	ids         bigint[] NOT NULL, -- of its notifications; may name some that have left
	people      bigint[] NOT NULL, -- hashes of its recipients and projects; the same
	items       text NOT NULL,
	gone        bigint[] NOT NULL -- items that have left: id, n, id, n …
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- Who is in flight, in categories with a cooldown.
CREATE TABLE flight (
	project   text COLLATE "C" NOT NULL,
	recipient text COLLATE "C" NOT NULL,
	category  text COLLATE "C" NOT NULL,
	subject   text COLLATE "C" NOT NULL,
	id        bigint NOT NULL,
	PRIMARY KEY (project, recipient, category, subject)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX flight_by_id ON flight (id);

-- Deliveries of a notification that has, or may get, more than one.
CREATE TABLE fanout (
	id   bigint PRIMARY KEY,
	body text NOT NULL
) WITH (fillfactor = 80);

-- The archive: only added to, by rising id, so that the pages written to are few however much is kept.
CREATE TABLE delivery (
	id       bigint NOT NULL,
	n        integer NOT NULL,
	ended_at bigint NOT NULL,
	body     text NOT NULL, -- the delivery without its payload
	payload  bytea,
	PRIMARY KEY (id, n)
);
CREATE TABLE ended (
	id     bigint PRIMARY KEY,
	state  text NOT NULL,
	reason text NOT NULL,
	at     bigint NOT NULL,
	wiped  boolean NOT NULL -- its content is gone
);
CREATE INDEX ended_at ON ended USING brin (at) WITH (pages_per_range = 32);
CREATE INDEX ended_content ON ended (at) WHERE NOT wiped;
CREATE TABLE event (
	seq    bigint GENERATED ALWAYS AS IDENTITY,
	id     bigint NOT NULL,
	n      integer NOT NULL,
	at     bigint NOT NULL,
	kind   text NOT NULL,
	reason text NOT NULL,
	until  bigint NOT NULL,
	detail text NOT NULL
);
CREATE INDEX event_by_id ON event (id);

-- Counters; every writer has a stripe of its own, so that none waits for another.
CREATE TABLE stat (
	project text COLLATE "C" NOT NULL,
	state   text COLLATE "C" NOT NULL,
	reason  text COLLATE "C" NOT NULL,
	stripe  smallint NOT NULL,
	count   bigint NOT NULL,
	PRIMARY KEY (project, state, reason, stripe)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
