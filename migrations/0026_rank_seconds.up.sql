-- Rank-seconds: where the time of each rank went, in microseconds, as booked from its records up to `sequence`.
-- service/store/report_seconds.h defines the causes. Times are microseconds since 1970 by the clock of the rank's host;
-- 0: not yet.
ALTER TABLE rank_sequence
  ADD COLUMN joined_us     bigint NOT NULL DEFAULT 0,
  ADD COLUMN begun_us      bigint NOT NULL DEFAULT 0,
  ADD COLUMN until_us      bigint NOT NULL DEFAULT 0,
  ADD COLUMN data_us       bigint NOT NULL DEFAULT 0,
  ADD COLUMN compute_us    bigint NOT NULL DEFAULT 0,
  ADD COLUMN waiting_us    bigint NOT NULL DEFAULT 0,
  ADD COLUMN checkpoint_us bigint NOT NULL DEFAULT 0,
  ADD COLUMN repeated_us   bigint NOT NULL DEFAULT 0,
  ADD CONSTRAINT rank_sequence_seconds
    CHECK (least(data_us, compute_us, waiting_us, checkpoint_us, repeated_us) >= 0);
-- The highest step that an earlier attempt had reported: up to it the attempt repeats steps. -1: none.
ALTER TABLE attempt ADD COLUMN repeats_until bigint NOT NULL DEFAULT -1;

-- One row for each rank of each attempt: seconds by cause, which add up to `wall`. service/store/rank_seconds.h defines
-- the causes. `undivided` is the part of compute that the next report may move to other causes. Of an imported run
-- there is no row.
--
--   t  times as microseconds: `wall` of the attempt; `ended` of the rank by the clock of its host (now, if the rank runs;
--      NULL, if its end was not reported); `begun`, the end of its start (NULL: not yet). Ranks of a program take the
--      reports of rank 0
--   k  `reported`, the sum of its reports, and `kept`, what of it fits into the life of the rank: less only if a clock
--      was changed, or if a rank of a program ended before rank 0
--   s  `start`, which fits into what is left
--   l  `last`: the step in progress, from the last report to the end of the rank
--
-- OFFSET 0 keeps the planner from writing each expression into all that use it. A condition on job or attempt still
-- reaches the tables.
CREATE VIEW rank_seconds AS
SELECT a.job, a.number AS attempt, p.rank, t.wall / 1e6::float8 AS wall, s.start / 1e6::float8 AS start,
       coalesce(m.data_us * l.scale, 0) AS data,
       coalesce(m.compute_us * l.scale, 0) + l.last / 1e6::float8 AS compute,
       coalesce(m.waiting_us * l.scale, 0) AS waiting, coalesce(m.checkpoint_us * l.scale, 0) AS checkpoint,
       coalesce(m.repeated_us * l.scale, 0) AS repeated, (t.wall - k.kept - s.start - l.last) / 1e6::float8 AS idle,
       CASE WHEN p.end_time IS NULL AND (j.steps > 0 OR j.step <= a.repeats_until) THEN l.last / 1e6::float8
            ELSE 0 END AS undivided
  FROM attempt a
  JOIN job j ON j.id = a.job
  JOIN placement p ON p.job = a.job AND p.attempt = a.number
  LEFT JOIN rank_sequence m
    ON m.job = a.job AND m.attempt = a.number AND m.rank = CASE WHEN j.steps > 0 THEN p.rank ELSE 0 END
 CROSS JOIN LATERAL (
   SELECT (date_part('epoch', a.create_time) * 1e6)::bigint AS created,
          greatest((date_part('epoch', coalesce(a.end_time, now()) - a.create_time) * 1e6)::bigint, 0) AS wall,
          CASE WHEN p.end_time IS NULL THEN (date_part('epoch', now()) * 1e6)::bigint
               WHEN p.exit_code IS NOT NULL THEN (date_part('epoch', p.end_time) * 1e6)::bigint END AS ended,
          CASE WHEN m.begun_us > 0 THEN m.begun_us
               WHEN a.end_time IS NOT NULL AND m.joined_us > 0 THEN m.joined_us END AS begun
   OFFSET 0) t
 CROSS JOIN LATERAL (
   SELECT reported,
          least(reported, t.wall, CASE WHEN p.exit_code IS NOT NULL AND t.begun IS NOT NULL
                                       THEN greatest(t.ended - t.begun, 0) END) AS kept
     FROM (SELECT coalesce(m.data_us + m.compute_us + m.waiting_us + m.checkpoint_us + m.repeated_us, 0) AS reported) r
   OFFSET 0) k
 CROSS JOIN LATERAL (
   SELECT greatest(least(coalesce(t.begun, t.ended, t.created + t.wall) - t.created, t.wall - k.kept), 0) AS start
   OFFSET 0) s
 CROSS JOIN LATERAL (
   SELECT CASE WHEN t.begun IS NULL OR t.ended IS NULL OR (j.steps > 0 AND p.word_cause IS NOT NULL) THEN 0
               ELSE greatest(least(t.ended - greatest(m.until_us, t.begun), t.wall - k.kept - s.start), 0) END AS last,
          CASE WHEN k.reported > 0 THEN k.kept::float8 / k.reported / 1e6 ELSE 0 END AS scale
   OFFSET 0) l
 WHERE NOT EXISTS (SELECT 1 FROM imported_run i WHERE i.job = a.job);
