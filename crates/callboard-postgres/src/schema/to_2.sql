-- Retention deletes rows for as long as boards work. By default their space is free for others when a fifth of a table is dead, which is
-- much of a large one.
ALTER TABLE callboard.streams SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE callboard.journal SET (autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE callboard.entries SET (autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_scale_factor = 0.02);
