-- One statement per line that the gate lets pass and nothing but a limit ends: each ends by its deadline with a typed
-- error, or sooner with an answer. None may end or wedge the process.

-- Rows without end
SELECT count(*) FROM range(1000000000) a, range(1000000000) b
SELECT * FROM range(1000000000000)
SELECT * FROM generate_series(1, 9223372036854775806)
SELECT a.range FROM range(1000000) a, range(1000000) b WHERE a.range + b.range < 0
SELECT count(*) FROM flows a, flows b, flows c, range(1000000000)
SELECT count(*) FROM range(100000000) a POSITIONAL JOIN range(100000000) b, range(1000000) c
SELECT count(*) FROM range(1000000) a ASOF JOIN range(1000000) b ON a.range >= b.range, range(1000000)
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT a.n FROM r AS a, r AS b, range(10)) SELECT count(*) FROM r
WITH RECURSIVE r AS (SELECT 1::HUGEINT AS n UNION SELECT n + 1 FROM r) SELECT count(*) FROM r
SELECT (SELECT count(*) FROM range(1000000000) t(j) WHERE j % 7 = i) FROM range(1000000) t(i)
SELECT i FROM range(1000000) t(i), LATERAL (SELECT count(*) FROM range(1000000) u(j) WHERE j <> i)
SELECT * FROM flows, range(1000000000000) LIMIT 1000000000

-- Memory
SELECT list(i) FROM range(1000000000) t(i)
SELECT string_agg(i::VARCHAR, ',') FROM range(1000000000) t(i)
SELECT histogram(i) FROM range(1000000000) t(i)
SELECT i, count(*) FROM range(1000000000) t(i) GROUP BY i
SELECT count(DISTINCT i) FROM range(1000000000) t(i)
SELECT * FROM range(1000000000) t(i) ORDER BY hash(i)
SELECT i, sum(i) OVER (ORDER BY hash(i) ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) FROM range(1000000000) t(i)
SELECT quantile_cont(i, 0.5) FROM range(1000000000) t(i)
SELECT count(*) FROM range(100000000) a JOIN range(100000000) b ON a.range = b.range
SELECT mode(i) FROM range(1000000000) t(i)
SELECT * FROM range(1000000000) t(i) USING SAMPLE 99%
SELECT i FROM range(1000000000) t(i) UNION SELECT i FROM range(1000000000) u(i)
SELECT json_group_array(i) FROM range(1000000000) t(i)
SELECT map_from_entries(list((i, i))) FROM range(1000000000) t(i)

-- Long texts and lists, row after row
SELECT sum(length(repeat('x', 10000))) FROM range(1000000000)
SELECT max(md5(repeat('x', 10000) || i)) FROM range(1000000000) t(i)
SELECT max(len(range(10000))) FROM range(100000000)
SELECT max(levenshtein(repeat('a', 500), repeat('b', 500))) FROM range(100000000)
SELECT max(len(list_sort(list_transform(range(10000), x -> hash(x + i))))) FROM range(10000000) t(i)
SELECT max(len(string_split(repeat('a,', 5000), ','))) FROM range(10000000)
SELECT count(*) FROM range(10000000) t(i) WHERE regexp_matches(repeat('a', 10000), '(a+)+b')
SELECT regexp_matches(repeat('a', 10000), '((a{0,100}){0,100}){0,100}b')
SELECT regexp_replace(repeat('a', 10000), '(a*)*', 'b', 'g')
SELECT regexp_extract_all(repeat('a', 10000), '(((((a*)*)*)*)*)')
SELECT repeat('a', 10000) LIKE '%a%a%a%a%a%a%a%a%b'
SELECT repeat('a', 10000) ILIKE '%a%_a%a%_a%a%a%a%a%b'
SELECT repeat('a', 10000) SIMILAR TO '(a|aa|aaa)+b'
SELECT list_transform(range(10000), a -> list_transform(range(1000), b -> a + b))
SELECT strftime(TIMESTAMP '2020-01-01', repeat('%A', 5000))
SELECT json_extract(repeat('[', 10000), '$[0]')
SELECT try_cast(repeat('[', 10000) AS INTEGER[][])
