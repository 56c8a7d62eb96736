SELECT * FROM flows
FROM flows
TABLE flows
SELECT id, size FROM flows WHERE key = 'k1' ORDER BY id DESC LIMIT 2 OFFSET 1
SELECT flows.id, FLOWS.KEY FROM flows ORDER BY ALL
SELECT f.id FROM flows AS f ORDER BY 1
SELECT f.a, f.b FROM flows AS f(a, b) ORDER BY a
SELECT DISTINCT key FROM flows ORDER BY key
SELECT DISTINCT ON (key) key, id FROM flows ORDER BY key, id
SELECT key, count(*), sum(size) FILTER (WHERE odd), list(id ORDER BY id DESC) FROM flows GROUP BY key ORDER BY key
SELECT key, count(*) AS n FROM flows GROUP BY ALL HAVING n > 2 ORDER BY ALL
SELECT key, odd, count(*) FROM flows GROUP BY CUBE (key, odd) ORDER BY ALL
SELECT key, odd, count(*) FROM flows GROUP BY GROUPING SETS ((key), (odd), ()) ORDER BY ALL
SELECT odd, key, day, count(*) FROM flows GROUP BY CUBE (key, odd), day ORDER BY ALL
SELECT id, row_number() OVER (PARTITION BY key ORDER BY id) AS r FROM flows QUALIFY r = 1 ORDER BY id
SELECT id, sum(id) OVER w, lag(id, 1, -1) OVER w FROM flows WINDOW w AS (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) ORDER BY id
SELECT id, sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) FROM flows ORDER BY 1
SELECT * FROM flows JOIN keys USING (key) ORDER BY id
SELECT f.id, k.name FROM flows f JOIN keys k ON f.key = k.key AND f.id > 2 ORDER BY 1
SELECT flows.id, keys.name FROM flows NATURAL JOIN keys ORDER BY 1
SELECT a.id, b.id FROM flows a LEFT JOIN flows b ON a.id = b.id + 5 ORDER BY ALL
SELECT k.key, f.id FROM flows f RIGHT JOIN keys k ON f.key = k.key ORDER BY ALL
SELECT count(*) FROM flows f FULL JOIN keys k ON f.key = k.key
SELECT count(*) FROM flows CROSS JOIN keys
SELECT count(*) FROM flows, keys, flows AS g
SELECT count(*) FROM flows CROSS JOIN keys k FULL JOIN other.flows o ON k.key = o.key
SELECT count(*) FROM flows, keys k LEFT JOIN other.flows o ON k.key = o.key
SELECT count(*) FROM flows f JOIN (keys k LEFT JOIN other.flows o ON k.key = o.key) ON f.key = k.key
SELECT f.id, o.id FROM flows f ASOF JOIN other.flows o ON f.id >= o.id ORDER BY 1
SELECT f.id FROM flows f SEMI JOIN other.flows o USING (id) ORDER BY 1
SELECT f.id FROM flows f ANTI JOIN other.flows o USING (id) ORDER BY 1
SELECT count(*) FROM flows POSITIONAL JOIN keys
SELECT f.id, e FROM flows f, unnest(f.items) u(e) ORDER BY ALL
SELECT f.id, x.d FROM flows f, LATERAL (SELECT f.id * 2 AS d) x ORDER BY ALL
SELECT f.id, x.d FROM flows f LEFT JOIN LATERAL (SELECT f.id * 2 AS d WHERE f.odd) x ON true ORDER BY ALL
SELECT i, count(f.id) FROM range(10) r(i) LEFT JOIN flows f ON f.id = i GROUP BY i ORDER BY i
SELECT * FROM generate_series(1, 5, 2) g(x)
SELECT * FROM unnest([3, 1]) WITH ORDINALITY AS u(v, n)
SELECT other.flows.id FROM other.flows ORDER BY 1
SELECT other.flows.id, key FROM other.flows WHERE other.flows.key = 'k1' ORDER BY other.flows.id DESC
SELECT memory.other.flows.id, other.flows.size FROM memory.other.flows ORDER BY 1
SELECT flows.id FROM memory.other.flows ORDER BY 1
SELECT main.flows.id, other.flows.size FROM main.flows JOIN other.flows ON main.flows.id = other.flows.id ORDER BY 1
SELECT OTHER.KEYS.NAME FROM other.keys
SELECT main.flows.pos.x FROM main.flows ORDER BY 1
SELECT other.flows.key, count(*) FROM other.flows GROUP BY other.flows.key HAVING max(other.flows.id) > 1
SELECT id FROM main.flows WHERE EXISTS (SELECT 1 FROM other.flows WHERE other.flows.id = main.flows.id) ORDER BY id
SELECT * EXCLUDE (size, items) FROM flows ORDER BY id
SELECT * EXCLUDE (other.flows.size) FROM other.flows ORDER BY id
SELECT * EXCLUDE (flows.size) RENAME (key AS k) FROM other.flows ORDER BY id
SELECT * RENAME (other.flows.key AS k) FROM other.flows ORDER BY id
SELECT * REPLACE (id + 1 AS id) FROM other.flows ORDER BY id
SELECT f.* FROM other.flows f ORDER BY id
SELECT COLUMNS('i.*') FROM other.flows ORDER BY 1
SELECT min(COLUMNS(* EXCLUDE (key))) FROM other.flows
SELECT flows FROM other.flows ORDER BY id
SELECT other.flows FROM other.flows ORDER BY other.flows.id
SELECT pos.x, pos['y'], flows.pos.x, items[1], items[1:1], tags['a'] FROM flows ORDER BY id
SELECT id FROM flows WHERE id IN (SELECT id FROM other.flows) ORDER BY id
SELECT id FROM flows WHERE (id, key) IN (SELECT id, key FROM other.flows) ORDER BY id
SELECT id FROM flows WHERE id NOT IN (SELECT id FROM other.flows) AND id > ANY (SELECT 1) AND id <= ALL (SELECT id + 9 FROM flows) ORDER BY id
SELECT (SELECT max(id) FROM other.flows) AS m, id FROM flows ORDER BY id
SELECT id, (SELECT count(*) FROM keys WHERE keys.key = flows.key) FROM flows ORDER BY id
SELECT array(SELECT id FROM other.flows ORDER BY id)
SELECT id FROM flows UNION SELECT id FROM other.flows ORDER BY id
SELECT id FROM flows UNION ALL SELECT id FROM other.flows ORDER BY id LIMIT 5
SELECT id FROM flows INTERSECT SELECT id FROM other.flows ORDER BY id
SELECT id FROM flows EXCEPT SELECT id FROM other.flows ORDER BY id
(SELECT id FROM flows ORDER BY id LIMIT 2) UNION ALL (SELECT id FROM other.flows ORDER BY id DESC LIMIT 1)
SELECT id, key FROM flows UNION BY NAME SELECT key, name FROM keys ORDER BY ALL
WITH flows AS (SELECT 42 AS id) SELECT id FROM flows
WITH flows AS (SELECT id + 100 AS id FROM flows) SELECT id FROM flows ORDER BY id
WITH flows AS (SELECT 42 AS id) SELECT main.flows.id FROM main.flows ORDER BY 1
WITH a AS (SELECT * FROM keys), keys AS (SELECT 'x' AS key) SELECT key FROM a ORDER BY key
WITH a AS (SELECT 1 AS id), b AS (SELECT id + 1 AS id FROM a) SELECT * FROM a, b, flows WHERE flows.id = b.id
WITH keys AS (SELECT 1 AS id) SELECT * FROM (WITH keys AS (SELECT id + 1 AS id FROM keys) SELECT * FROM keys)
WITH a AS (WITH keys AS (SELECT 1 AS key) SELECT * FROM keys) SELECT a.key, keys.key FROM a, keys ORDER BY ALL
WITH keys AS (SELECT 'k' AS key) SELECT id FROM flows WHERE EXISTS (SELECT 1 FROM keys WHERE key = 'k') ORDER BY id
WITH keys AS (SELECT 'a' AS key) (SELECT key FROM keys) UNION ALL (WITH keys AS (SELECT 'b' AS key) SELECT key FROM keys) UNION ALL SELECT key FROM keys ORDER BY key
WITH a(x) AS (SELECT id FROM flows) SELECT x FROM a ORDER BY x
WITH a AS MATERIALIZED (SELECT id FROM flows) SELECT count(*) FROM a, a AS b
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT * FROM r ORDER BY n
WITH RECURSIVE flows AS (SELECT id FROM flows WHERE id = 0 UNION ALL SELECT id + 1 FROM flows WHERE id < 3) SELECT id FROM flows ORDER BY id
WITH RECURSIVE r AS (SELECT id, 0 AS depth FROM flows WHERE id = 0 UNION ALL SELECT f.id, depth + 1 FROM r JOIN flows f ON f.id = r.id + 2) SELECT * FROM r ORDER BY id
WITH RECURSIVE r(k, n) USING KEY (k) AS (SELECT 1, 1 UNION SELECT k, n + 1 FROM (SELECT * FROM recurring.r) t WHERE n < 3) SELECT * FROM r
WITH RECURSIVE keys AS (SELECT key FROM keys) SELECT * FROM keys ORDER BY key
DESCRIBE flows
DESCRIBE SELECT id FROM other.flows
SUMMARIZE other.flows
SELECT column_name FROM (DESCRIBE flows) ORDER BY 1
PIVOT flows ON odd IN (true, false) USING sum(id) GROUP BY key ORDER BY key
SELECT * FROM (SELECT key, odd, id FROM flows) PIVOT (sum(id) FOR odd IN (true, false)) ORDER BY key
SELECT * FROM other.flows PIVOT (count(*) FOR key IN ('k1', 'k2')) ORDER BY ALL
UNPIVOT (SELECT id, size FROM other.flows) ON id, size INTO NAME n VALUE v ORDER BY ALL
VALUES (1, 'a'), (2, 'b')
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) v(x, y) WHERE x = 2
SELECT v.x, f.id FROM flows f, (VALUES (f.id + 1)) v(x) ORDER BY ALL
SELECT CASE WHEN odd THEN 'o' ELSE 'e' END, CASE id WHEN 1 THEN 'one' END, coalesce(NULL, id), nullif(id, 1) FROM flows ORDER BY id
SELECT id BETWEEN 1 AND 3, id NOT BETWEEN 1 AND 3, odd IS TRUE, odd IS NOT TRUE, odd IS NULL, id IS DISTINCT FROM 3, NOT odd FROM flows ORDER BY id
SELECT 1e3, 1.5, 1., 12345678901234567890123456789., 170141183460469231731687303715884105727, .5, -5, 1e-320, 0x1F, 'a''b', NULL, true
SELECT typeof(1e3), typeof(1.), typeof(1.5), typeof(12345678901234567890123456789.), typeof(1e3 + 1)
SELECT size * 1e3, size > 2e0 FROM flows ORDER BY id
SELECT date '2026-01-01' + INTERVAL 1 MONTH, INTERVAL '3' DAY, extract(year FROM day), day + 1, date_trunc('month', day) FROM flows ORDER BY id
SELECT CAST(id AS VARCHAR), TRY_CAST(key AS INT), id::DECIMAL(10, 2), [1, 2]::INT[2], 'a'::ENUM('a', 'b') FROM flows ORDER BY id
SELECT key || '-' || id, upper(key), key.upper().lower(), length(key), substring(key FROM 1 FOR 1), trim(BOTH ' ' FROM ' a '), position('1' IN key) FROM flows ORDER BY id
SELECT key LIKE 'k%', key NOT LIKE '_1', key ILIKE 'K_', key LIKE '%k%1%', key GLOB 'k*', key SIMILAR TO 'k[0-1]', key ~ '.*1', key LIKE key, key ILIKE upper(key) FROM flows ORDER BY id
SELECT repeat(key, 2), lpad(key, 5, '.'), replace(key, 'k', 'kk'), range(2), regexp_replace(key, '[0-9]', 'n'), levenshtein(key, 'k0'), list_resize(items, 3) FROM flows ORDER BY id
SELECT list_transform(items, x -> x * 2), [x + 1 FOR x IN items IF x > 1], list_filter(items, lambda x: x > 2), list_aggregate(items, 'sum') FROM flows ORDER BY id
SELECT {'a': id, 'b': {'c': key}}, [id, 1], MAP {'k': id}, row(id, key), struct_pack(a := id) FROM flows ORDER BY id
SELECT format('{}-{:03d}', key, id), printf('%s-%03d', key, id), strftime(day, '%Y-%m') FROM flows ORDER BY id
SELECT count(*), approx_count_distinct(key), string_agg(key, ',' ORDER BY id), max_by(key, id), quantile_cont(size, 0.5), bool_or(odd), any_value('x') FROM flows
SELECT to_json(pos), json_extract('{"a": [1]}', '$.a[0]'), '{"a": 1}'::JSON ->> 'a' FROM flows ORDER BY id
SELECT unnest(items) AS item, id FROM flows ORDER BY ALL
SELECT unnest({'a': id, 'b': key}) FROM flows ORDER BY ALL
SELECT grouping(key), key FROM flows GROUP BY ROLLUP (key) ORDER BY ALL
SELECT #1, #2 FROM other.flows ORDER BY 1
SELECT key COLLATE nocase, id FROM flows ORDER BY key COLLATE nocase, id
SELECT "flows"."id" AS "the id", id "Ünï ""quoted""" FROM "flows" ORDER BY "the id"
SELECT count(*) FROM flows USING SAMPLE 100 PERCENT (bernoulli)
SELECT count(*) FROM flows TABLESAMPLE RESERVOIR(3 ROWS)
SELECT id FROM flows ORDER BY id LIMIT 50%
SELECT TRY(key::INT) FROM flows ORDER BY id
SELECT id FROM other.flows WHERE EXISTS (SELECT 1 FROM main.flows WHERE other.flows.id = main.flows.id AND flows.id > 3) ORDER BY flows.id
SELECT flows FROM other.flows WHERE EXISTS (SELECT flows.* FROM main.flows WHERE flows.id = other.flows.id) ORDER BY flows.id
SELECT flows.*, (SELECT max(flows.id) FROM main.flows WHERE flows.key = other.flows.key) AS m FROM other.flows ORDER BY flows.id
SELECT id FROM other.flows WHERE id IN (SELECT flows.id FROM flows WHERE flows.id < 5) ORDER BY other.flows.id
SELECT id FROM other.flows WHERE id IN (WITH flows AS (SELECT 4 AS id) SELECT other.flows.id FROM flows WHERE flows.id = other.flows.id)
SELECT "a b".*, "a b".id FROM flows AS "a b" ORDER BY "a b".id
SELECT "select"."key" FROM keys AS "select" ORDER BY ALL
SELECT COLUMNS("a""b".*) FROM keys AS "a""b" ORDER BY ALL
