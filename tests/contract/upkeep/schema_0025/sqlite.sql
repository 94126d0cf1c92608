CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0025');
CREATE TABLE attempts (
	run_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	token_hash TEXT NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	leased_at DOUBLE NOT NULL, 
	started_at DOUBLE, 
	heartbeat_at DOUBLE, 
	ended_at DOUBLE, 
	outcome VARCHAR(24), 
	message TEXT, 
	step BIGINT DEFAULT '0' NOT NULL, 
	device_seconds DOUBLE DEFAULT '0' NOT NULL, 
	last_batch BIGINT DEFAULT '-1' NOT NULL, 
	node TEXT, 
	key_id TEXT, 
	note TEXT, 
	CONSTRAINT pk_attempts PRIMARY KEY (run_id, attempt), 
	CONSTRAINT ck_attempts_ends_with_an_outcome CHECK ((outcome is null) = (ended_at is null)), 
	CONSTRAINT ck_attempts_counts_from_one CHECK (attempt >= 1), 
	CONSTRAINT fk_attempts_run_id FOREIGN KEY(run_id) REFERENCES runs (id), 
	CONSTRAINT ck_attempts_outcome CHECK (outcome IN ('succeeded', 'lost', 'broken', 'interrupted', 'stopped'))
);
CREATE TABLE audit (
	number INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	key_id TEXT, 
	address TEXT NOT NULL, 
	action TEXT NOT NULL, 
	target TEXT NOT NULL, 
	outcome INTEGER NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (number)
);
CREATE TABLE campaign_entries (
	campaign_number INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	idempotency_key TEXT, 
	CONSTRAINT pk_campaign_entries PRIMARY KEY (campaign_number, number), 
	CONSTRAINT uq_campaign_entries_idempotency_key UNIQUE (idempotency_key), 
	CONSTRAINT fk_campaign_entries_campaign_number FOREIGN KEY(campaign_number) REFERENCES campaigns (number)
);
CREATE TABLE campaign_experiments (
	campaign_number INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	workload INTEGER NOT NULL, 
	spec TEXT NOT NULL, 
	experiment_number BIGINT, 
	CONSTRAINT pk_campaign_experiments PRIMARY KEY (campaign_number, place, workload), 
	CONSTRAINT uq_campaign_experiments_experiment_number UNIQUE (experiment_number), 
	CONSTRAINT fk_campaign_experiments_campaign_number FOREIGN KEY(campaign_number) REFERENCES campaigns (number)
);
CREATE TABLE campaigns (
	number INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	key_id TEXT, 
	CONSTRAINT pk_campaigns PRIMARY KEY (number), 
	CONSTRAINT uq_campaigns_id UNIQUE (id)
);
CREATE TABLE change_counters (
	shard INTEGER NOT NULL, 
	value BIGINT NOT NULL, 
	CONSTRAINT pk_change_counters PRIMARY KEY (shard)
);
INSERT INTO "change_counters" VALUES(0,0);
INSERT INTO "change_counters" VALUES(1,0);
INSERT INTO "change_counters" VALUES(2,0);
INSERT INTO "change_counters" VALUES(3,0);
INSERT INTO "change_counters" VALUES(4,0);
INSERT INTO "change_counters" VALUES(5,0);
INSERT INTO "change_counters" VALUES(6,0);
INSERT INTO "change_counters" VALUES(7,0);
INSERT INTO "change_counters" VALUES(8,0);
INSERT INTO "change_counters" VALUES(9,0);
INSERT INTO "change_counters" VALUES(10,0);
INSERT INTO "change_counters" VALUES(11,0);
INSERT INTO "change_counters" VALUES(12,0);
INSERT INTO "change_counters" VALUES(13,0);
INSERT INTO "change_counters" VALUES(14,0);
INSERT INTO "change_counters" VALUES(15,0);
CREATE TABLE checkpoints (
	run_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	step BIGINT NOT NULL, 
	path TEXT NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	sha256 TEXT NOT NULL, 
	recorded_at DOUBLE NOT NULL, 
	val_loss DOUBLE, 
	CONSTRAINT pk_checkpoints PRIMARY KEY (run_id, attempt, step), 
	CONSTRAINT fk_checkpoints_run_id_attempt FOREIGN KEY(run_id, attempt) REFERENCES attempts (run_id, attempt)
);
CREATE TABLE chunks (
	run_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	sequence BIGINT NOT NULL, 
	points INTEGER NOT NULL, 
	last_step BIGINT NOT NULL, 
	data BLOB NOT NULL, 
	checksum BIGINT, 
	CONSTRAINT pk_chunks PRIMARY KEY (run_id, attempt, sequence), 
	CONSTRAINT fk_chunks_run_id_attempt FOREIGN KEY(run_id, attempt) REFERENCES attempts (run_id, attempt)
);
CREATE TABLE events (
	run_id TEXT NOT NULL, 
	sequence INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	from_status VARCHAR(24), 
	to_status VARCHAR(24) NOT NULL, 
	attempt INTEGER NOT NULL, 
	reason TEXT, 
	CONSTRAINT pk_events PRIMARY KEY (run_id, sequence), 
	CONSTRAINT ck_events_begins_with_submit CHECK ((sequence = 1) = (from_status is null)), 
	CONSTRAINT fk_events_run_id FOREIGN KEY(run_id) REFERENCES runs (id), 
	CONSTRAINT ck_events_from_status CHECK (from_status IN ('queued', 'leased', 'running', 'retry_wait', 'pausing', 'paused', 'cancelling', 'cancelled', 'succeeded', 'failed')), 
	CONSTRAINT ck_events_to_status CHECK (to_status IN ('queued', 'leased', 'running', 'retry_wait', 'pausing', 'paused', 'cancelling', 'cancelled', 'succeeded', 'failed'))
);
CREATE TABLE experiments (
	number INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	spec_hash TEXT NOT NULL, 
	idempotency_key TEXT, 
	created_at DOUBLE NOT NULL, 
	growing BOOLEAN DEFAULT 0 NOT NULL, 
	paused BOOLEAN DEFAULT 0 NOT NULL, 
	key_id TEXT, 
	note TEXT, 
	noted_at DOUBLE, 
	noted_by TEXT, 
	cloned_from TEXT, 
	deleted_at DOUBLE, 
	undo_until DOUBLE, 
	revision BIGINT DEFAULT '0' NOT NULL, 
	trace_parent TEXT, news BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_experiments PRIMARY KEY (number), 
	CONSTRAINT uq_experiments_id UNIQUE (id), 
	CONSTRAINT uq_experiments_idempotency_key UNIQUE (idempotency_key)
);
CREATE TABLE external_chunks (
	run_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	first_line BIGINT NOT NULL, 
	lines BIGINT NOT NULL, 
	data BLOB NOT NULL, 
	checksum BIGINT NOT NULL, 
	CONSTRAINT pk_external_chunks PRIMARY KEY (run_id, part, first_line), 
	CONSTRAINT fk_external_chunks_run_id FOREIGN KEY(run_id) REFERENCES external_runs (id)
);
CREATE TABLE external_experiments (
	number INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	key_id TEXT, labels TEXT DEFAULT '[]' NOT NULL, 
	CONSTRAINT pk_external_experiments PRIMARY KEY (number), 
	CONSTRAINT uq_external_experiments_id UNIQUE (id), 
	CONSTRAINT uq_external_experiments_name UNIQUE (name)
);
CREATE TABLE external_runs (
	id TEXT NOT NULL, 
	experiment_number INTEGER NOT NULL, 
	candidate TEXT NOT NULL, 
	lr DOUBLE, 
	seed BIGINT, 
	workload TEXT, 
	config TEXT NOT NULL, 
	tags TEXT NOT NULL, 
	source TEXT NOT NULL, 
	state TEXT NOT NULL, 
	state_at DOUBLE NOT NULL, 
	started_at DOUBLE NOT NULL, 
	created_at DOUBLE NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	lines BIGINT NOT NULL, 
	torn_lines BIGINT NOT NULL, 
	metrics TEXT NOT NULL, 
	CONSTRAINT pk_external_runs PRIMARY KEY (id), 
	CONSTRAINT fk_external_runs_experiment_number FOREIGN KEY(experiment_number) REFERENCES external_experiments (number)
);
CREATE TABLE keys (
	id TEXT NOT NULL, 
	label TEXT NOT NULL, 
	scope VARCHAR(24) NOT NULL, 
	secret_hash TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	last_used_at DOUBLE, 
	runs_at_once INTEGER, 
	device_hours_a_day DOUBLE, 
	CONSTRAINT pk_keys PRIMARY KEY (id), 
	CONSTRAINT ck_keys_scope CHECK (scope IN ('viewer', 'submitter', 'admin'))
);
CREATE TABLE labels (
	experiment_number INTEGER NOT NULL, 
	label TEXT NOT NULL, 
	CONSTRAINT pk_labels PRIMARY KEY (experiment_number, label), 
	CONSTRAINT fk_labels_experiment_number FOREIGN KEY(experiment_number) REFERENCES experiments (number)
);
CREATE TABLE leaders (
	role TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	term BIGINT NOT NULL, 
	expires_at DOUBLE NOT NULL, nodes TEXT, 
	CONSTRAINT pk_leaders PRIMARY KEY (role)
);
CREATE TABLE observations (
	run_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	step BIGINT NOT NULL, 
	probe TEXT NOT NULL, 
	blocks BLOB NOT NULL, 
	checksum BIGINT, 
	CONSTRAINT pk_observations PRIMARY KEY (run_id, attempt, step, probe), 
	CONSTRAINT fk_observations_run_id_attempt FOREIGN KEY(run_id, attempt) REFERENCES attempts (run_id, attempt)
);
CREATE TABLE outbox (
	id INTEGER NOT NULL, 
	kind VARCHAR(24) NOT NULL, 
	experiment_id TEXT NOT NULL, 
	run_id TEXT, 
	created_at DOUBLE NOT NULL, 
	available_at DOUBLE NOT NULL, 
	tries INTEGER DEFAULT '0' NOT NULL, 
	last_error TEXT, 
	CONSTRAINT pk_outbox PRIMARY KEY (id), 
	CONSTRAINT fk_outbox_experiment_id FOREIGN KEY(experiment_id) REFERENCES experiments (id), 
	CONSTRAINT fk_outbox_run_id FOREIGN KEY(run_id) REFERENCES runs (id), 
	CONSTRAINT ck_outbox_kind CHECK (kind IN ('experiment_submitted', 'run_ended'))
);
CREATE TABLE removed (
	what TEXT NOT NULL, 
	count BIGINT NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_removed PRIMARY KEY (what)
);
CREATE TABLE results (
	run_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	recorded_at DOUBLE NOT NULL, 
	verdict TEXT NOT NULL, 
	final_val_loss DOUBLE, 
	result TEXT NOT NULL, 
	checksum BIGINT, 
	CONSTRAINT pk_results PRIMARY KEY (run_id), 
	CONSTRAINT fk_results_run_id_attempt FOREIGN KEY(run_id, attempt) REFERENCES attempts (run_id, attempt)
);
CREATE TABLE run_specs (
	run_id TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	checksum BIGINT, 
	CONSTRAINT pk_run_specs PRIMARY KEY (run_id), 
	CONSTRAINT fk_run_specs_run_id FOREIGN KEY(run_id) REFERENCES runs (id)
);
CREATE TABLE runs (
	id TEXT NOT NULL, 
	experiment_id TEXT NOT NULL, 
	experiment_number BIGINT NOT NULL, 
	position INTEGER NOT NULL, 
	candidate TEXT NOT NULL, 
	optimizer TEXT NOT NULL, 
	lr DOUBLE NOT NULL, 
	seed BIGINT NOT NULL, 
	model TEXT NOT NULL, 
	cpus INTEGER NOT NULL, 
	gpus INTEGER NOT NULL, 
	steps_total BIGINT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	status VARCHAR(24) NOT NULL, 
	reason TEXT, 
	attempt INTEGER DEFAULT '0' NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	available_at DOUBLE NOT NULL, 
	schedulable BOOLEAN DEFAULT 1 NOT NULL, 
	stop_requested_at DOUBLE, 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	last_event INTEGER NOT NULL, 
	step BIGINT DEFAULT '0' NOT NULL, 
	device_seconds DOUBLE DEFAULT '0' NOT NULL, 
	last_train_loss DOUBLE, 
	last_val_loss DOUBLE, 
	tokens_per_second DOUBLE, 
	version BIGINT DEFAULT '0' NOT NULL, 
	rank INTEGER DEFAULT '0' NOT NULL, 
	turn BIGINT DEFAULT '0' NOT NULL, 
	stop_early BOOLEAN, 
	max_seconds DOUBLE, 
	deadline_at DOUBLE, 
	limit_reached VARCHAR(24), 
	micro_batch_sequences INTEGER, 
	trace_parent TEXT, 
	max_seconds_from DOUBLE DEFAULT '0' NOT NULL, 
	processes INTEGER DEFAULT '1' NOT NULL, 
	CONSTRAINT pk_runs PRIMARY KEY (id), 
	CONSTRAINT ck_runs_stop_has_a_moment CHECK ((status in ('cancelling', 'pausing')) = (stop_requested_at is not null)), 
	CONSTRAINT ck_runs_ended_when_terminal CHECK ((status in ('succeeded', 'failed', 'cancelled')) = (ended_at is not null)), 
	CONSTRAINT fk_runs_experiment_id FOREIGN KEY(experiment_id) REFERENCES experiments (id), 
	CONSTRAINT uq_runs_experiment_number_position UNIQUE (experiment_number, position), 
	CONSTRAINT ck_runs_status CHECK (status IN ('queued', 'leased', 'running', 'retry_wait', 'pausing', 'paused', 'cancelling', 'cancelled', 'succeeded', 'failed'))
);
CREATE TABLE samples (
	run_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	step BIGINT NOT NULL, 
	texts BLOB NOT NULL, 
	checksum BIGINT, 
	CONSTRAINT pk_samples PRIMARY KEY (run_id, attempt, step), 
	CONSTRAINT fk_samples_run_id_attempt FOREIGN KEY(run_id, attempt) REFERENCES attempts (run_id, attempt)
);
CREATE TABLE saved_views (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	address TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	key_id TEXT, 
	CONSTRAINT pk_saved_views PRIMARY KEY (id), 
	CONSTRAINT uq_saved_views_name UNIQUE (name)
);
CREATE TABLE sessions (
	token_hash TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	CONSTRAINT pk_sessions PRIMARY KEY (token_hash), 
	CONSTRAINT fk_sessions_key_id FOREIGN KEY(key_id) REFERENCES keys (id)
);
CREATE TABLE webhook_endings (
	id INTEGER NOT NULL, 
	experiment_id TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_webhook_endings PRIMARY KEY (id)
);
CREATE TABLE webhook_messages (
	id TEXT NOT NULL, 
	webhook_id TEXT NOT NULL, 
	kind VARCHAR(24) NOT NULL, 
	experiment_id TEXT, 
	body TEXT NOT NULL, 
	state VARCHAR(24) NOT NULL, 
	tries INTEGER DEFAULT '0' NOT NULL, 
	created_at DOUBLE NOT NULL, 
	available_at DOUBLE NOT NULL, 
	settled_at DOUBLE, 
	last_error TEXT, 
	CONSTRAINT pk_webhook_messages PRIMARY KEY (id), 
	CONSTRAINT ck_webhook_messages_settled_has_a_moment CHECK ((state = 'waiting') = (settled_at is null)), 
	CONSTRAINT fk_webhook_messages_webhook_id FOREIGN KEY(webhook_id) REFERENCES webhooks (id), 
	CONSTRAINT ck_webhook_messages_kind CHECK (kind IN ('experiment.ended', 'webhook.test')), 
	CONSTRAINT ck_webhook_messages_state CHECK (state IN ('waiting', 'delivered', 'given_up'))
);
CREATE TABLE webhooks (
	id TEXT NOT NULL, 
	url TEXT NOT NULL, 
	experiment_id TEXT, 
	key_id TEXT, 
	secret_hash TEXT NOT NULL, 
	idempotency_key TEXT, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_webhooks PRIMARY KEY (id), 
	CONSTRAINT uq_webhooks_idempotency_key UNIQUE (idempotency_key)
);
CREATE INDEX ix_experiments_deleted ON experiments (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX ix_labels_label ON labels (label, experiment_number);
CREATE INDEX ix_runs_queue ON runs (rank, turn, experiment_number, position) WHERE status IN ('queued', 'retry_wait');
CREATE INDEX ix_runs_deadline ON runs (deadline_at) WHERE deadline_at IS NOT NULL AND ended_at IS NULL;
CREATE INDEX ix_runs_stopping ON runs (stop_requested_at) WHERE stop_requested_at IS NOT NULL;
CREATE INDEX ix_attempts_expiry ON attempts (expires_at) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX uq_attempts_live ON attempts (run_id) WHERE ended_at IS NULL;
CREATE INDEX ix_attempts_charged ON attempts (key_id, ended_at) WHERE key_id IS NOT NULL;
CREATE INDEX ix_audit_at ON audit (at);
CREATE INDEX ix_webhook_messages_webhook_id ON webhook_messages (webhook_id, created_at);
CREATE INDEX ix_webhook_messages_waiting ON webhook_messages (available_at) WHERE state = 'waiting';
CREATE INDEX ix_external_runs_experiment_number ON external_runs (experiment_number, created_at);
