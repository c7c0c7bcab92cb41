-- Which blocks, steps and samples of one experiment, the one with the number `wanted`, are steady.
-- The tables and `attempts` are in schema.sql, which is executed first.

-- The one definition of "steady": nothing compiled, no warm-up, not the first block of an attempt,
-- and no start that only times compiling with filled caches.
CREATE MACRO judged_blocks(wanted) AS TABLE
WITH placed AS (
    SELECT b.*, coalesce(a.attempt, 1) AS attempt, a.caches IS NOT NULL AS starts_later
    FROM (FROM blocks WHERE experiment = wanted) b
    LEFT JOIN attempts(wanted) a
    ON a.run_id = b.run_id AND b.seq > a.seq AND b.seq <= a.last_seq)
SELECT * EXCLUDE (compiled), coalesce(compiled, false) AS compiled,
    NOT coalesce(compiled, false) AND NOT coalesce(warm_up, false)
    AND NOT starts_later
    AND first_step > min(first_step) OVER (PARTITION BY run_id, attempt) AS steady
FROM placed;

-- A step is steady if its block is. A step whose block has not arrived yet is not.
CREATE MACRO judged_steps(wanted) AS TABLE
SELECT s.* EXCLUDE (compiled), coalesce(s.compiled, false) AS compiled,
    coalesce(a.attempt, 1) AS attempt, coalesce(b.steady, false) AS steady
FROM (FROM steps WHERE experiment = wanted) s
LEFT JOIN attempts(wanted) a
    ON a.run_id = s.run_id AND s.seq > a.seq AND s.seq <= a.last_seq
LEFT JOIN judged_blocks(wanted) b
    ON b.run_id = s.run_id AND b.round = s.round
    AND s.step >= b.first_step AND s.step < b.first_step + b.num_steps;

-- Throttled is a block at whose end a reason to do so holds, or held for a tenth of its time. Of
-- the CPU time on the CPUs that a run may use, others took what was spent and not by the run.
CREATE MACRO judged_device_samples(wanted) AS TABLE
SELECT d.*, coalesce(b.steady, false) AS steady, b.num_steps,
    CASE WHEN throttle_reasons IS NOT NULL OR throttled_seconds IS NOT NULL THEN
        list_sort(list_distinct(coalesce(throttle_reasons, []) || coalesce(list_filter(
            map_keys(throttled_seconds),
            lambda name: throttled_seconds[name] > 0.1 * wall_seconds), [])))
    END AS throttled_by,
    CASE WHEN processes IS NOT NULL AND device_memory_used_bytes IS NOT NULL THEN coalesce(
        list_sum(list_transform(processes, lambda process: process.memory_bytes)), 0)
    END AS others_memory_bytes,
    greatest(0, busy_cpu_seconds - own_cpu_seconds) / (wall_seconds * cpus) AS others_cpu_share,
    stolen_cpu_seconds / (wall_seconds * cpus) AS stolen_cpu_share
FROM (FROM device_samples WHERE experiment = wanted) d
LEFT JOIN judged_blocks(wanted) b USING (run_id, round, first_step);
