BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0016');
CREATE TABLE audit (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	at DATETIME NOT NULL,
	user VARCHAR(64),
	address VARCHAR(200) NOT NULL,
	action VARCHAR(200) NOT NULL,
	campaign_id INTEGER,
	status INTEGER NOT NULL
);
CREATE TABLE calibrations (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name VARCHAR(100) NOT NULL,
	machine TEXT NOT NULL,
	figures JSON NOT NULL,
	software TEXT NOT NULL,
	simulated BOOLEAN NOT NULL,
	created_at DATETIME NOT NULL,
	observations INTEGER NOT NULL,
	timed INTEGER NOT NULL,
	out_of_memory INTEGER NOT NULL,
	models JSON NOT NULL,
	document JSON NOT NULL,
	CONSTRAINT uq_calibrations_name UNIQUE (name)
);
CREATE TABLE campaigns (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name VARCHAR(200) NOT NULL,
	state VARCHAR(16) NOT NULL,
	reason TEXT NOT NULL,
	evaluator VARCHAR(32) NOT NULL,
	objective VARCHAR(32) NOT NULL,
	simulated BOOLEAN NOT NULL,
	request JSON NOT NULL,
	model JSON NOT NULL,
	machine JSON NOT NULL,
	profile JSON,
	machine_digest VARCHAR(64) DEFAULT '' NOT NULL,
	program VARCHAR(64) DEFAULT '' NOT NULL,
	started_from JSON,
	start_worth JSON,
	screening JSON,
	created_at DATETIME NOT NULL,
	started_at DATETIME,
	finished_at DATETIME,
	lease_owner VARCHAR(200),
	lease_until FLOAT,
	lease_epoch INTEGER NOT NULL,
	owner VARCHAR(64),
	private BOOLEAN DEFAULT 0 NOT NULL,
	own_runner BOOLEAN DEFAULT 0 NOT NULL,
	idempotency_key VARCHAR(200),
	idempotency_hash VARCHAR(64),
	CONSTRAINT uq_campaigns_idempotency_key UNIQUE (idempotency_key)
);
INSERT INTO "campaigns" VALUES(1,'22B on Frontier','done','all 2 layouts of the space are known','local','tokens_per_s',0,'{"name": "22B on Frontier", "model": {"name": "tiny", "num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "num_query_groups": 4, "head_dim": null, "ffn_hidden_size": 256, "gated_mlp": false, "seq_length": 32, "vocab_size": 512, "tied_embeddings": true}, "machine": {"name": "local", "description": "two ranks a node", "gpu": "CPU", "gpus_per_node": 1, "max_nodes": 2, "memory_gib": 2.0, "peak_tflops": null, "memory_bandwidth_gb_per_s": 20.0, "intra_node_gb_per_s": 5.0, "inter_node_gb_per_s": 5.0, "gpu_idle_watt": null, "gpu_max_watt": null, "host_watt": null, "sources": []}, "nodes": 1, "pool_nodes": 1, "evaluator": "local", "slurm": null, "ray": null, "adapter": "own", "objective": "tokens_per_s", "min_headroom_gib": 0.0, "space": {"preset": null, "tensor_parallel": null, "pipeline_parallel": null, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "zero_stage": null, "num_nodes": null, "activation_checkpointing": null, "sequence_parallel": null, "flash_attention": null, "virtual_stages": null, "precision": null, "context_parallel": null, "settings": {"expert_parallel": [1, 2]}, "global_batch_size": null}, "baseline": null, "budget": {"max_trials": 4, "max_node_hours": null, "deadline": null, "stop_early": false, "train_tokens": null}, "protocol": {"warmup_iterations": 1, "measured_iterations": 3, "most_iterations": 10, "target_spread": 0.01, "give_up_below": 0.8, "time_limit_s": 1200.0, "confirmations": 0}, "tokens": null, "seed": 0, "search": "calibrated", "surrogate": "forest", "screen_nodes": "auto", "screen_layers": "off", "fresh": false, "private": false, "own_runner": false, "notify": false, "study": null, "time_scale": 0.0}','{"name": "tiny", "num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "num_query_groups": 4, "head_dim": null, "ffn_hidden_size": 256, "gated_mlp": false, "seq_length": 32, "vocab_size": 512, "tied_embeddings": true}','{"name": "local", "description": "two ranks a node", "gpu": "CPU", "gpus_per_node": 1, "max_nodes": 2, "memory_gib": 2.0, "peak_tflops": null, "memory_bandwidth_gb_per_s": 20.0, "intra_node_gb_per_s": 5.0, "inter_node_gb_per_s": 5.0, "gpu_idle_watt": null, "gpu_max_watt": null, "host_watt": null, "sources": []}','{"name": "local", "description": "", "machine": "", "program": "adapter", "python": "", "slurm": {"account": "", "partition": "", "qos": "", "reservation": "", "constraint": "", "gpu_request": "gpus-per-node", "exclusive": true, "directives": []}, "tasks": {"srun": []}, "environment": {"modules": [], "virtual_environment": "", "variables": {}, "prologue": ""}, "polling": {"interval_s": 5.0, "command_limit_s": 30.0, "settle_s": 3.0, "accounting_limit_s": 60.0, "full_queue_pause_s": 10.0}, "retries": {"attempts": 3, "node_failures": 2}, "pilot": {"time_limit_h": 2.0, "idle_release_s": 120.0}, "ray": {"address": "", "folder": "/tmp"}, "adapter": {"name": "own", "command": ["{python}", "train.py", "{micro_batch_size}"], "description": "", "folder": "folder", "warmup_iterations": 3, "base": {}, "places": {"--gas=": "{gradient_accumulation_steps}", "--bucket": "{expert_parallel}", "--steps": "{iterations}"}, "fixed": {}, "dimensions": [{"name": "expert_parallel", "values": [1, 2], "searched": true}], "refuse": [], "read": [{"log": "step (?P<step>\\d+) (?P<iteration_time_s>\\S+) s", "json_lines": "", "csv": "", "tensorboard": "", "step": "", "iteration_time_s": "", "loss": "", "peak_memory_gib": "", "parameters": "", "arrival": false, "at_end": false, "echo": {}}], "versions": {}, "evidence": "unchecked", "tuning": "usual", "checked": ""}}','d6b41e9bba8a0952bdaa8cf2b683f0590cbada1b4c4919f344cbd31825bfb927','adapter own','[]',NULL,'{"nodes": null, "layers": null, "reason": "All trials run in full: no confirmation would measure the best there.", "outcome": ""}','2026-11-24 14:31:10.217879','2026-11-24 14:31:10.290811','2026-11-24 14:31:14.576380','vm/4026531836/10665/1795530667.26',1.79553070457499957084e+09,1,NULL,0,0,NULL,NULL);
CREATE TABLE earlier_trials (
	campaign_id INTEGER NOT NULL,
	observations JSON NOT NULL,
	CONSTRAINT pk_earlier_trials PRIMARY KEY (campaign_id),
	CONSTRAINT fk_earlier_trials_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaigns (id) ON DELETE CASCADE
);
CREATE TABLE events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	campaign_id INTEGER NOT NULL,
	kind VARCHAR(16) NOT NULL,
	trial_number INTEGER,
	CONSTRAINT fk_events_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaigns (id) ON DELETE CASCADE
);
CREATE TABLE listings (
	campaign_id INTEGER NOT NULL,
	event INTEGER NOT NULL,
	name TEXT,
	outcome TEXT,
	model TEXT,
	machine TEXT,
	evaluator TEXT,
	owner TEXT,
	nodes INTEGER,
	best_strategy TEXT,
	best_objective FLOAT,
	best_mfu FLOAT,
	trials INTEGER NOT NULL,
	failures INTEGER NOT NULL,
	node_hours FLOAT NOT NULL,
	text TEXT NOT NULL,
	CONSTRAINT pk_listings PRIMARY KEY (campaign_id),
	CONSTRAINT fk_listings_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaigns (id) ON DELETE CASCADE
);
CREATE TABLE node_hours_of_deleted (
	owner VARCHAR(64) NOT NULL,
	month VARCHAR(7) NOT NULL,
	node_hours FLOAT NOT NULL,
	CONSTRAINT pk_node_hours_of_deleted PRIMARY KEY (owner, month)
);
CREATE TABLE notices (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	"key" VARCHAR(32) NOT NULL,
	campaign_id INTEGER NOT NULL,
	state VARCHAR(16) NOT NULL,
	reason TEXT NOT NULL,
	at DATETIME NOT NULL,
	"left" JSON NOT NULL,
	attempts INTEGER NOT NULL,
	next_at DATETIME NOT NULL,
	CONSTRAINT fk_notices_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaigns (id) ON DELETE CASCADE,
	CONSTRAINT uq_notices_key UNIQUE ("key")
);
CREATE TABLE outcomes (
	campaign_id INTEGER NOT NULL,
	part VARCHAR(16) NOT NULL,
	ended INTEGER NOT NULL,
	version VARCHAR(32) NOT NULL,
	document JSON,
	CONSTRAINT pk_outcomes PRIMARY KEY (campaign_id, part),
	CONSTRAINT fk_outcomes_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaigns (id) ON DELETE CASCADE
);
CREATE TABLE runners (
	owner VARCHAR(200) NOT NULL,
	version VARCHAR(32) NOT NULL,
	started_at DATETIME NOT NULL,
	seen_at FLOAT NOT NULL,
	figures JSON NOT NULL,
	evaluators JSON DEFAULT '[]' NOT NULL,
	only_for VARCHAR(64),
	"full" BOOLEAN DEFAULT 0 NOT NULL,
	CONSTRAINT pk_runners PRIMARY KEY (owner)
);
CREATE TABLE trials (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	campaign_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	token VARCHAR(64) NOT NULL,
	purpose VARCHAR(16) NOT NULL,
	strategy JSON NOT NULL,
	stands_for_nodes INTEGER,
	num_layers INTEGER,
	state VARCHAR(16) NOT NULL,
	phase VARCHAR(16),
	phase_reason TEXT DEFAULT '' NOT NULL,
	job_id VARCHAR(255),
	simulated BOOLEAN NOT NULL,
	created_at DATETIME NOT NULL,
	started_at DATETIME,
	finished_at DATETIME,
	duration_s FLOAT,
	node_hours FLOAT,
	predicted_iteration_time_s FLOAT,
	predicted_memory_gib FLOAT,
	expected JSON,
	objective FLOAT,
	metrics JSON,
	measurements JSON NOT NULL,
	peak_memory_gib JSON NOT NULL,
	gpu_joules_per_token FLOAT,
	energy_note TEXT DEFAULT '' NOT NULL,
	error TEXT,
	log_path TEXT,
	host VARCHAR(255),
	versions JSON NOT NULL,
	power JSON,
	CONSTRAINT fk_trials_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaigns (id) ON DELETE CASCADE,
	CONSTRAINT uq_trials_campaign_id_number UNIQUE (campaign_id, number),
	CONSTRAINT uq_trials_token UNIQUE (token)
);
INSERT INTO "trials" VALUES(1,1,1,'c1-t1-60f19328e887','baseline','{"tensor_parallel": 1, "pipeline_parallel": 1, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "zero_stage": 0, "num_nodes": 1, "activation_checkpointing": "none", "sequence_parallel": false, "flash_attention": true, "virtual_stages": 1, "precision": "fp32", "context_parallel": 1, "settings": {"expert_parallel": 1}}',NULL,NULL,'ok',NULL,'',NULL,0,'2026-11-24 14:31:10.470936','2026-11-24 14:31:11.056657','2026-11-24 14:31:11.316251',2.59593583003152161836e-01,7.21093286119867127054e-05,1.2757557788006076288e-02,2.53262710571289066663e-02,'{"objective": 2508.317072260065, "iteration_time_low_s": 0.006247102202413857, "iteration_time_high_s": 0.026052924290469657, "fit_probability": 1.0, "node_hours": 0.0008475083975422289, "best_so_far": null, "probability_better": null}',3200.0,'{"gradient_accumulation_steps": 1, "global_batch_size": 1, "iteration_time_s": 0.01, "iteration_time_spread_s": 0.0, "measured": true, "tokens_per_s": 3200.0, "tokens_per_s_per_gpu": 3200.0, "tokens_per_node_hour": 11520000.0, "tokens_per_joule": null, "energy_sampled": false, "model_tflops_per_gpu": 0.004718592, "hardware_tflops_per_gpu": 0.004718592, "mfu": null, "hfu": null, "peak_memory_gib": null, "loss": null, "trainer_parameters": null, "model_parameters": null}','[{"gradient_accumulation_steps": 1, "global_batch_size": 1, "iteration_time_s": 0.01, "tokens_per_s": 3200.0, "measured": true, "iteration_times_s": [0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01]}]','[]',NULL,'no power was sampled: neither nvidia-smi nor rocm-smi is on its PATH',NULL,'folder','vm','{"python": "3.11.7", "adapter": "own f2798257cf10"}',NULL);
INSERT INTO "trials" VALUES(2,1,2,'c1-t2-d62a48fe66c4','search','{"tensor_parallel": 1, "pipeline_parallel": 1, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "zero_stage": 0, "num_nodes": 1, "activation_checkpointing": "none", "sequence_parallel": false, "flash_attention": true, "virtual_stages": 1, "precision": "fp32", "context_parallel": 1, "settings": {"expert_parallel": 2}}',NULL,NULL,'ok',NULL,'',NULL,0,'2026-11-24 14:31:13.288506','2026-11-24 14:31:13.963893','2026-11-24 14:31:14.274880',3.1098711500089848414e-01,8.63853097224718e-05,1.01069242691826169378e-02,2.53262710571289066663e-02,'{"objective": 3166.146213004912, "iteration_time_low_s": 0.008211258970961264, "iteration_time_high_s": 0.012440226102262883, "fit_probability": 1.0, "node_hours": 0.0008642156019336136, "best_so_far": 3199.9999999999973, "probability_better": 0.47269774052030966}',3.55555555555555520184e+03,'{"gradient_accumulation_steps": 1, "global_batch_size": 1, "iteration_time_s": 0.009000000000000001, "iteration_time_spread_s": 0.0, "measured": true, "tokens_per_s": 3555.555555555555, "tokens_per_s_per_gpu": 3555.555555555555, "tokens_per_node_hour": 12799999.999999998, "tokens_per_joule": null, "energy_sampled": false, "model_tflops_per_gpu": 0.005242879999999999, "hardware_tflops_per_gpu": 0.005242879999999999, "mfu": null, "hfu": null, "peak_memory_gib": null, "loss": null, "trainer_parameters": null, "model_parameters": null}','[{"gradient_accumulation_steps": 1, "global_batch_size": 1, "iteration_time_s": 0.009000000000000001, "tokens_per_s": 3555.555555555555, "measured": true, "iteration_times_s": [0.009000000000000001, 0.009000000000000001, 0.009000000000000001, 0.009000000000000001, 0.009000000000000001, 0.009000000000000001, 0.009000000000000001, 0.009000000000000001, 0.009000000000000001, 0.009000000000000001]}]','[]',NULL,'no power was sampled: neither nvidia-smi nor rocm-smi is on its PATH',NULL,'folder','vm','{"python": "3.11.7", "adapter": "own f2798257cf10"}',NULL);
CREATE TABLE users (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name VARCHAR(64) NOT NULL,
	scope VARCHAR(16) NOT NULL,
	token_hash VARCHAR(64),
	most_campaigns INTEGER,
	most_trials INTEGER,
	node_hours_a_month FLOAT,
	email VARCHAR(254),
	created_at DATETIME NOT NULL,
	revoked_at DATETIME,
	last_used_at DATETIME,
	CONSTRAINT uq_users_name UNIQUE (name)
);
CREATE INDEX ix_audit_at ON audit (at);
CREATE INDEX ix_audit_campaign_id ON audit (campaign_id);
CREATE INDEX ix_campaigns_machine_digest_campaigns_program ON campaigns (machine_digest, program);
CREATE INDEX ix_campaigns_owner ON campaigns (owner);
CREATE INDEX ix_campaigns_state ON campaigns (state);
CREATE INDEX ix_events_campaign_id_events_id ON events (campaign_id, id);
CREATE INDEX ix_notices_next_at ON notices (next_at);
CREATE INDEX ix_trials_counted ON trials (campaign_id, state, phase, node_hours);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('campaigns',1);
INSERT INTO "sqlite_sequence" VALUES('events',11);
INSERT INTO "sqlite_sequence" VALUES('trials',2);
INSERT INTO "sqlite_sequence" VALUES('notices',1);
COMMIT;
