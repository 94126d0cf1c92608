CREATE FUNCTION public.json_number_at(document text, path text[]) RETURNS double precision
    LANGUAGE plpgsql IMMUTABLE
    AS $$
DECLARE found json;
BEGIN
    found := replace(document, '\u0000', '\ufffd')::json #> path;
    RETURN CASE WHEN json_typeof(found) IN ('number') THEN found::text::double precision END;
EXCEPTION WHEN data_exception OR statement_too_complex THEN
    RETURN NULL;
END $$;
CREATE FUNCTION public.json_text_at(document text, path text[]) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
DECLARE found json;
BEGIN
    found := replace(document, '\u0000', '\ufffd')::json #> path;
    RETURN CASE WHEN json_typeof(found) IN ('string', 'boolean') THEN found #>> '{}' END;
EXCEPTION WHEN data_exception OR statement_too_complex THEN
    RETURN NULL;
END $$;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.attempts (
    run_id text NOT NULL,
    attempt integer NOT NULL,
    token_hash text NOT NULL,
    expires_at double precision NOT NULL,
    leased_at double precision NOT NULL,
    started_at double precision,
    heartbeat_at double precision,
    ended_at double precision,
    outcome character varying(24),
    message text,
    step bigint DEFAULT '0'::bigint NOT NULL,
    device_seconds double precision DEFAULT '0'::double precision NOT NULL,
    last_batch bigint DEFAULT '-1'::bigint NOT NULL,
    node text,
    key_id text,
    note text,
    CONSTRAINT ck_attempts_counts_from_one CHECK ((attempt >= 1)),
    CONSTRAINT ck_attempts_ends_with_an_outcome CHECK (((outcome IS NULL) = (ended_at IS NULL))),
    CONSTRAINT ck_attempts_outcome CHECK (((outcome)::text = ANY ((ARRAY['succeeded'::character varying, 'lost'::character varying, 'broken'::character varying, 'interrupted'::character varying, 'stopped'::character varying])::text[])))
);
CREATE TABLE public.audit (
    number bigint NOT NULL,
    at double precision NOT NULL,
    key_id text,
    address text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    outcome integer NOT NULL
);
CREATE SEQUENCE public.audit_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.audit_number_seq OWNED BY public.audit.number;
CREATE TABLE public.campaign_entries (
    campaign_number bigint NOT NULL,
    number integer NOT NULL,
    body text NOT NULL,
    hash text NOT NULL,
    idempotency_key text
);
CREATE TABLE public.campaign_experiments (
    campaign_number bigint NOT NULL,
    place integer NOT NULL,
    workload integer NOT NULL,
    spec text NOT NULL,
    experiment_number bigint
);
CREATE TABLE public.campaigns (
    number bigint NOT NULL,
    id text NOT NULL,
    name text NOT NULL,
    spec text NOT NULL,
    created_at double precision NOT NULL,
    key_id text
);
CREATE SEQUENCE public.campaigns_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.campaigns_number_seq OWNED BY public.campaigns.number;
CREATE TABLE public.change_counters (
    shard integer NOT NULL,
    value bigint NOT NULL
);
CREATE TABLE public.checkpoints (
    run_id text NOT NULL,
    attempt integer NOT NULL,
    step bigint NOT NULL,
    path text NOT NULL,
    size_bytes bigint NOT NULL,
    sha256 text NOT NULL,
    recorded_at double precision NOT NULL,
    val_loss double precision
);
CREATE TABLE public.chunks (
    run_id text NOT NULL,
    attempt integer NOT NULL,
    sequence bigint NOT NULL,
    points integer NOT NULL,
    last_step bigint NOT NULL,
    data bytea NOT NULL,
    checksum bigint
);
CREATE TABLE public.events (
    run_id text NOT NULL,
    sequence integer NOT NULL,
    at double precision NOT NULL,
    from_status character varying(24),
    to_status character varying(24) NOT NULL,
    attempt integer NOT NULL,
    reason text,
    CONSTRAINT ck_events_begins_with_submit CHECK (((sequence = 1) = (from_status IS NULL))),
    CONSTRAINT ck_events_from_status CHECK (((from_status)::text = ANY ((ARRAY['queued'::character varying, 'leased'::character varying, 'running'::character varying, 'retry_wait'::character varying, 'pausing'::character varying, 'paused'::character varying, 'cancelling'::character varying, 'cancelled'::character varying, 'succeeded'::character varying, 'failed'::character varying])::text[]))),
    CONSTRAINT ck_events_to_status CHECK (((to_status)::text = ANY ((ARRAY['queued'::character varying, 'leased'::character varying, 'running'::character varying, 'retry_wait'::character varying, 'pausing'::character varying, 'paused'::character varying, 'cancelling'::character varying, 'cancelled'::character varying, 'succeeded'::character varying, 'failed'::character varying])::text[])))
);
CREATE TABLE public.experiments (
    number bigint NOT NULL,
    id text NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    spec text NOT NULL,
    spec_hash text NOT NULL,
    idempotency_key text,
    created_at double precision NOT NULL,
    growing boolean DEFAULT false NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    key_id text,
    note text,
    noted_at double precision,
    noted_by text,
    cloned_from text,
    deleted_at double precision,
    undo_until double precision,
    revision bigint DEFAULT '0'::bigint NOT NULL,
    trace_parent text,
    news bigint DEFAULT '0'::bigint NOT NULL
);
CREATE SEQUENCE public.experiments_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.experiments_number_seq OWNED BY public.experiments.number;
CREATE TABLE public.external_chunks (
    run_id text NOT NULL,
    part text NOT NULL,
    first_line bigint NOT NULL,
    lines bigint NOT NULL,
    data bytea NOT NULL,
    checksum bigint NOT NULL
);
CREATE TABLE public.external_experiments (
    number bigint NOT NULL,
    id text NOT NULL,
    name text NOT NULL,
    created_at double precision NOT NULL,
    key_id text,
    labels text DEFAULT '[]'::text NOT NULL
);
CREATE SEQUENCE public.external_experiments_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.external_experiments_number_seq OWNED BY public.external_experiments.number;
CREATE TABLE public.external_runs (
    id text NOT NULL,
    experiment_number bigint NOT NULL,
    candidate text NOT NULL,
    lr double precision,
    seed bigint,
    workload text,
    config text NOT NULL,
    tags text NOT NULL,
    source text NOT NULL,
    state text NOT NULL,
    state_at double precision NOT NULL,
    started_at double precision NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    lines bigint NOT NULL,
    torn_lines bigint NOT NULL,
    metrics text NOT NULL
);
CREATE TABLE public.keys (
    id text NOT NULL,
    label text NOT NULL,
    scope character varying(24) NOT NULL,
    secret_hash text NOT NULL,
    created_at double precision NOT NULL,
    expires_at double precision,
    revoked_at double precision,
    last_used_at double precision,
    runs_at_once integer,
    device_hours_a_day double precision,
    CONSTRAINT ck_keys_scope CHECK (((scope)::text = ANY ((ARRAY['viewer'::character varying, 'submitter'::character varying, 'admin'::character varying])::text[])))
);
CREATE TABLE public.labels (
    experiment_number bigint NOT NULL,
    label text NOT NULL
);
CREATE TABLE public.leaders (
    role text NOT NULL,
    holder text NOT NULL,
    term bigint NOT NULL,
    expires_at double precision NOT NULL,
    nodes text
);
CREATE TABLE public.observations (
    run_id text NOT NULL,
    attempt integer NOT NULL,
    step bigint NOT NULL,
    probe text NOT NULL,
    blocks bytea NOT NULL,
    checksum bigint
);
CREATE TABLE public.outbox (
    id bigint NOT NULL,
    kind character varying(24) NOT NULL,
    experiment_id text NOT NULL,
    run_id text,
    created_at double precision NOT NULL,
    available_at double precision NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    last_error text,
    CONSTRAINT ck_outbox_kind CHECK (((kind)::text = ANY ((ARRAY['experiment_submitted'::character varying, 'run_ended'::character varying])::text[])))
);
CREATE SEQUENCE public.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.outbox_id_seq OWNED BY public.outbox.id;
CREATE TABLE public.removed (
    what text NOT NULL,
    count bigint NOT NULL,
    seconds double precision NOT NULL
);
CREATE TABLE public.results (
    run_id text NOT NULL,
    attempt integer NOT NULL,
    recorded_at double precision NOT NULL,
    verdict text NOT NULL,
    final_val_loss double precision,
    result text NOT NULL,
    checksum bigint
);
CREATE TABLE public.run_specs (
    run_id text NOT NULL,
    spec text NOT NULL,
    checksum bigint
);
CREATE TABLE public.runs (
    id text NOT NULL,
    experiment_id text NOT NULL,
    experiment_number bigint NOT NULL,
    "position" integer NOT NULL,
    candidate text NOT NULL,
    optimizer text NOT NULL,
    lr double precision NOT NULL,
    seed bigint NOT NULL,
    model text NOT NULL,
    cpus integer NOT NULL,
    gpus integer NOT NULL,
    steps_total bigint NOT NULL,
    created_at double precision NOT NULL,
    status character varying(24) NOT NULL,
    reason text,
    attempt integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    available_at double precision NOT NULL,
    schedulable boolean DEFAULT true NOT NULL,
    stop_requested_at double precision,
    started_at double precision,
    ended_at double precision,
    last_event integer NOT NULL,
    step bigint DEFAULT '0'::bigint NOT NULL,
    device_seconds double precision DEFAULT '0'::double precision NOT NULL,
    last_train_loss double precision,
    last_val_loss double precision,
    tokens_per_second double precision,
    version bigint DEFAULT '0'::bigint NOT NULL,
    rank integer DEFAULT 0 NOT NULL,
    turn bigint DEFAULT '0'::bigint NOT NULL,
    stop_early boolean,
    max_seconds double precision,
    deadline_at double precision,
    limit_reached character varying(24),
    micro_batch_sequences integer,
    trace_parent text,
    max_seconds_from double precision DEFAULT '0'::double precision NOT NULL,
    processes integer DEFAULT 1 NOT NULL,
    CONSTRAINT ck_runs_ended_when_terminal CHECK ((((status)::text = ANY ((ARRAY['succeeded'::character varying, 'failed'::character varying, 'cancelled'::character varying])::text[])) = (ended_at IS NOT NULL))),
    CONSTRAINT ck_runs_status CHECK (((status)::text = ANY ((ARRAY['queued'::character varying, 'leased'::character varying, 'running'::character varying, 'retry_wait'::character varying, 'pausing'::character varying, 'paused'::character varying, 'cancelling'::character varying, 'cancelled'::character varying, 'succeeded'::character varying, 'failed'::character varying])::text[]))),
    CONSTRAINT ck_runs_stop_has_a_moment CHECK ((((status)::text = ANY ((ARRAY['cancelling'::character varying, 'pausing'::character varying])::text[])) = (stop_requested_at IS NOT NULL)))
);
CREATE TABLE public.samples (
    run_id text NOT NULL,
    attempt integer NOT NULL,
    step bigint NOT NULL,
    texts bytea NOT NULL,
    checksum bigint
);
CREATE TABLE public.saved_views (
    id text NOT NULL,
    name text NOT NULL,
    address text NOT NULL,
    created_at double precision NOT NULL,
    key_id text
);
CREATE TABLE public.sessions (
    token_hash text NOT NULL,
    key_id text NOT NULL,
    expires_at double precision NOT NULL
);
CREATE TABLE public.webhook_endings (
    id bigint NOT NULL,
    experiment_id text NOT NULL,
    created_at double precision NOT NULL
);
CREATE SEQUENCE public.webhook_endings_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.webhook_endings_id_seq OWNED BY public.webhook_endings.id;
CREATE TABLE public.webhook_messages (
    id text NOT NULL,
    webhook_id text NOT NULL,
    kind character varying(24) NOT NULL,
    experiment_id text,
    body text NOT NULL,
    state character varying(24) NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    created_at double precision NOT NULL,
    available_at double precision NOT NULL,
    settled_at double precision,
    last_error text,
    CONSTRAINT ck_webhook_messages_kind CHECK (((kind)::text = ANY ((ARRAY['experiment.ended'::character varying, 'webhook.test'::character varying])::text[]))),
    CONSTRAINT ck_webhook_messages_settled_has_a_moment CHECK ((((state)::text = 'waiting'::text) = (settled_at IS NULL))),
    CONSTRAINT ck_webhook_messages_state CHECK (((state)::text = ANY ((ARRAY['waiting'::character varying, 'delivered'::character varying, 'given_up'::character varying])::text[])))
);
CREATE TABLE public.webhooks (
    id text NOT NULL,
    url text NOT NULL,
    experiment_id text,
    key_id text,
    secret_hash text NOT NULL,
    idempotency_key text,
    created_at double precision NOT NULL
);
ALTER TABLE ONLY public.audit ALTER COLUMN number SET DEFAULT nextval('public.audit_number_seq'::regclass);
ALTER TABLE ONLY public.campaigns ALTER COLUMN number SET DEFAULT nextval('public.campaigns_number_seq'::regclass);
ALTER TABLE ONLY public.experiments ALTER COLUMN number SET DEFAULT nextval('public.experiments_number_seq'::regclass);
ALTER TABLE ONLY public.external_experiments ALTER COLUMN number SET DEFAULT nextval('public.external_experiments_number_seq'::regclass);
ALTER TABLE ONLY public.outbox ALTER COLUMN id SET DEFAULT nextval('public.outbox_id_seq'::regclass);
ALTER TABLE ONLY public.webhook_endings ALTER COLUMN id SET DEFAULT nextval('public.webhook_endings_id_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0025');
INSERT INTO public.change_counters VALUES (0, 0);
INSERT INTO public.change_counters VALUES (1, 0);
INSERT INTO public.change_counters VALUES (2, 0);
INSERT INTO public.change_counters VALUES (3, 0);
INSERT INTO public.change_counters VALUES (4, 0);
INSERT INTO public.change_counters VALUES (5, 0);
INSERT INTO public.change_counters VALUES (6, 0);
INSERT INTO public.change_counters VALUES (7, 0);
INSERT INTO public.change_counters VALUES (8, 0);
INSERT INTO public.change_counters VALUES (9, 0);
INSERT INTO public.change_counters VALUES (10, 0);
INSERT INTO public.change_counters VALUES (11, 0);
INSERT INTO public.change_counters VALUES (12, 0);
INSERT INTO public.change_counters VALUES (13, 0);
INSERT INTO public.change_counters VALUES (14, 0);
INSERT INTO public.change_counters VALUES (15, 0);
SELECT pg_catalog.setval('public.audit_number_seq', 1, false);
SELECT pg_catalog.setval('public.campaigns_number_seq', 1, false);
SELECT pg_catalog.setval('public.experiments_number_seq', 1, false);
SELECT pg_catalog.setval('public.external_experiments_number_seq', 1, false);
SELECT pg_catalog.setval('public.outbox_id_seq', 1, false);
SELECT pg_catalog.setval('public.webhook_endings_id_seq', 1, false);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT pk_attempts PRIMARY KEY (run_id, attempt);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT pk_audit PRIMARY KEY (number);
ALTER TABLE ONLY public.campaign_entries
    ADD CONSTRAINT pk_campaign_entries PRIMARY KEY (campaign_number, number);
ALTER TABLE ONLY public.campaign_experiments
    ADD CONSTRAINT pk_campaign_experiments PRIMARY KEY (campaign_number, place, workload);
ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT pk_campaigns PRIMARY KEY (number);
ALTER TABLE ONLY public.change_counters
    ADD CONSTRAINT pk_change_counters PRIMARY KEY (shard);
ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT pk_checkpoints PRIMARY KEY (run_id, attempt, step);
ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT pk_chunks PRIMARY KEY (run_id, attempt, sequence);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT pk_events PRIMARY KEY (run_id, sequence);
ALTER TABLE ONLY public.experiments
    ADD CONSTRAINT pk_experiments PRIMARY KEY (number);
ALTER TABLE ONLY public.external_chunks
    ADD CONSTRAINT pk_external_chunks PRIMARY KEY (run_id, part, first_line);
ALTER TABLE ONLY public.external_experiments
    ADD CONSTRAINT pk_external_experiments PRIMARY KEY (number);
ALTER TABLE ONLY public.external_runs
    ADD CONSTRAINT pk_external_runs PRIMARY KEY (id);
ALTER TABLE ONLY public.keys
    ADD CONSTRAINT pk_keys PRIMARY KEY (id);
ALTER TABLE ONLY public.labels
    ADD CONSTRAINT pk_labels PRIMARY KEY (experiment_number, label);
ALTER TABLE ONLY public.leaders
    ADD CONSTRAINT pk_leaders PRIMARY KEY (role);
ALTER TABLE ONLY public.observations
    ADD CONSTRAINT pk_observations PRIMARY KEY (run_id, attempt, step, probe);
ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT pk_outbox PRIMARY KEY (id);
ALTER TABLE ONLY public.removed
    ADD CONSTRAINT pk_removed PRIMARY KEY (what);
ALTER TABLE ONLY public.results
    ADD CONSTRAINT pk_results PRIMARY KEY (run_id);
ALTER TABLE ONLY public.run_specs
    ADD CONSTRAINT pk_run_specs PRIMARY KEY (run_id);
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT pk_runs PRIMARY KEY (id);
ALTER TABLE ONLY public.samples
    ADD CONSTRAINT pk_samples PRIMARY KEY (run_id, attempt, step);
ALTER TABLE ONLY public.saved_views
    ADD CONSTRAINT pk_saved_views PRIMARY KEY (id);
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT pk_sessions PRIMARY KEY (token_hash);
ALTER TABLE ONLY public.webhook_endings
    ADD CONSTRAINT pk_webhook_endings PRIMARY KEY (id);
ALTER TABLE ONLY public.webhook_messages
    ADD CONSTRAINT pk_webhook_messages PRIMARY KEY (id);
ALTER TABLE ONLY public.webhooks
    ADD CONSTRAINT pk_webhooks PRIMARY KEY (id);
ALTER TABLE ONLY public.campaign_entries
    ADD CONSTRAINT uq_campaign_entries_idempotency_key UNIQUE (idempotency_key);
ALTER TABLE ONLY public.campaign_experiments
    ADD CONSTRAINT uq_campaign_experiments_experiment_number UNIQUE (experiment_number);
ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT uq_campaigns_id UNIQUE (id);
ALTER TABLE ONLY public.experiments
    ADD CONSTRAINT uq_experiments_id UNIQUE (id);
ALTER TABLE ONLY public.experiments
    ADD CONSTRAINT uq_experiments_idempotency_key UNIQUE (idempotency_key);
ALTER TABLE ONLY public.external_experiments
    ADD CONSTRAINT uq_external_experiments_id UNIQUE (id);
ALTER TABLE ONLY public.external_experiments
    ADD CONSTRAINT uq_external_experiments_name UNIQUE (name);
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT uq_runs_experiment_number_position UNIQUE (experiment_number, "position");
ALTER TABLE ONLY public.saved_views
    ADD CONSTRAINT uq_saved_views_name UNIQUE (name);
ALTER TABLE ONLY public.webhooks
    ADD CONSTRAINT uq_webhooks_idempotency_key UNIQUE (idempotency_key);
CREATE INDEX ix_attempts_charged ON public.attempts USING btree (key_id, ended_at) WHERE (key_id IS NOT NULL);
CREATE INDEX ix_attempts_expiry ON public.attempts USING btree (expires_at) WHERE (ended_at IS NULL);
CREATE INDEX ix_audit_at ON public.audit USING btree (at);
CREATE INDEX ix_experiments_deleted ON public.experiments USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);
CREATE INDEX ix_external_runs_experiment_number ON public.external_runs USING btree (experiment_number, created_at);
CREATE INDEX ix_labels_label ON public.labels USING btree (label, experiment_number);
CREATE INDEX ix_runs_deadline ON public.runs USING btree (deadline_at) WHERE ((deadline_at IS NOT NULL) AND (ended_at IS NULL));
CREATE INDEX ix_runs_queue ON public.runs USING btree (rank, turn, experiment_number, "position") WHERE ((status)::text = ANY ((ARRAY['queued'::character varying, 'retry_wait'::character varying])::text[]));
CREATE INDEX ix_runs_stopping ON public.runs USING btree (stop_requested_at) WHERE (stop_requested_at IS NOT NULL);
CREATE INDEX ix_webhook_messages_waiting ON public.webhook_messages USING btree (available_at) WHERE ((state)::text = 'waiting'::text);
CREATE INDEX ix_webhook_messages_webhook_id ON public.webhook_messages USING btree (webhook_id, created_at);
CREATE UNIQUE INDEX uq_attempts_live ON public.attempts USING btree (run_id) WHERE (ended_at IS NULL);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT fk_attempts_run_id FOREIGN KEY (run_id) REFERENCES public.runs(id);
ALTER TABLE ONLY public.campaign_entries
    ADD CONSTRAINT fk_campaign_entries_campaign_number FOREIGN KEY (campaign_number) REFERENCES public.campaigns(number);
ALTER TABLE ONLY public.campaign_experiments
    ADD CONSTRAINT fk_campaign_experiments_campaign_number FOREIGN KEY (campaign_number) REFERENCES public.campaigns(number);
ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT fk_checkpoints_run_id_attempt FOREIGN KEY (run_id, attempt) REFERENCES public.attempts(run_id, attempt);
ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT fk_chunks_run_id_attempt FOREIGN KEY (run_id, attempt) REFERENCES public.attempts(run_id, attempt);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT fk_events_run_id FOREIGN KEY (run_id) REFERENCES public.runs(id);
ALTER TABLE ONLY public.external_chunks
    ADD CONSTRAINT fk_external_chunks_run_id FOREIGN KEY (run_id) REFERENCES public.external_runs(id);
ALTER TABLE ONLY public.external_runs
    ADD CONSTRAINT fk_external_runs_experiment_number FOREIGN KEY (experiment_number) REFERENCES public.external_experiments(number);
ALTER TABLE ONLY public.labels
    ADD CONSTRAINT fk_labels_experiment_number FOREIGN KEY (experiment_number) REFERENCES public.experiments(number);
ALTER TABLE ONLY public.observations
    ADD CONSTRAINT fk_observations_run_id_attempt FOREIGN KEY (run_id, attempt) REFERENCES public.attempts(run_id, attempt);
ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT fk_outbox_experiment_id FOREIGN KEY (experiment_id) REFERENCES public.experiments(id);
ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT fk_outbox_run_id FOREIGN KEY (run_id) REFERENCES public.runs(id);
ALTER TABLE ONLY public.results
    ADD CONSTRAINT fk_results_run_id_attempt FOREIGN KEY (run_id, attempt) REFERENCES public.attempts(run_id, attempt);
ALTER TABLE ONLY public.run_specs
    ADD CONSTRAINT fk_run_specs_run_id FOREIGN KEY (run_id) REFERENCES public.runs(id);
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT fk_runs_experiment_id FOREIGN KEY (experiment_id) REFERENCES public.experiments(id);
ALTER TABLE ONLY public.samples
    ADD CONSTRAINT fk_samples_run_id_attempt FOREIGN KEY (run_id, attempt) REFERENCES public.attempts(run_id, attempt);
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT fk_sessions_key_id FOREIGN KEY (key_id) REFERENCES public.keys(id);
ALTER TABLE ONLY public.webhook_messages
    ADD CONSTRAINT fk_webhook_messages_webhook_id FOREIGN KEY (webhook_id) REFERENCES public.webhooks(id);
