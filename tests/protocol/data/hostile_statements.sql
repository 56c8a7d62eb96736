-- One statement per line, each refused with a typed error; none may end or wedge the process.
-- {outside}, {root} and {spill} stand for a file outside the storage roots, a root, and the spill directory.

-- Files by name
SELECT * FROM '{outside}'
SELECT * FROM '{root}/warehouse.parquet'
SELECT * FROM 'warehouse.parquet'
SELECT * FROM "x.csv"
SELECT * FROM './x.json'
SELECT * FROM '../x.parquet'
SELECT * FROM '*.parquet'
SELECT * FROM '{root}/**/*.parquet'
SELECT * FROM 'file://{outside}'
SELECT * FROM 'http://127.0.0.1/x.parquet'
SELECT * FROM 'https://127.0.0.1/x.csv'
SELECT * FROM 's3://bucket/key.parquet'
SELECT * FROM 'gcs://bucket/key.parquet'
SELECT * FROM '/proc/self/environ'
SELECT * FROM '/dev/stdin'
SELECT * FROM "C:\Windows\win.ini"
SELECT * FROM flows JOIN '/etc/passwd' USING (bytes)
SELECT * FROM flows NATURAL JOIN 'x.parquet'
SELECT * FROM flows WHERE bytes IN (SELECT bytes FROM 'x.parquet')
SELECT (SELECT count(*) FROM 'x.parquet')
SELECT * FROM flows, LATERAL (SELECT * FROM 'x.parquet')
SELECT * FROM flows UNION ALL SELECT * FROM 'x.parquet'
WITH a AS (SELECT * FROM 'x.parquet') SELECT * FROM a
WITH "/etc/passwd" AS (SELECT 1) SELECT * FROM "/etc/passwd"
WITH "x.parquet" AS (SELECT 1) SELECT 2
WITH a AS (WITH "x.parquet" AS (SELECT 1) SELECT 1) SELECT * FROM a, "x.parquet"
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r, '/etc/passwd' WHERE n < 3) SELECT * FROM r
DESCRIBE '{outside}'
DESCRIBE SELECT * FROM 'x.parquet'
SUMMARIZE 'x.parquet'
FROM 'x.parquet'
TABLE "x.parquet"
PIVOT 'x.parquet' ON a IN (1) USING sum(b)
SELECT * FROM 'x.parquet' PIVOT (sum(b) FOR a IN (1))
UNPIVOT 'x.parquet' ON a INTO NAME n VALUE v

-- Functions that read files or list them
SELECT * FROM read_csv('{outside}')
SELECT * FROM read_csv_auto('{outside}')
SELECT * FROM READ_CSV('{outside}')
SELECT * FROM "read_csv"('{outside}')
SELECT * FROM main.read_csv('{outside}')
SELECT * FROM system.main.read_csv('{outside}')
SELECT * FROM read_parquet('{root}/x.parquet')
SELECT * FROM read_parquet(['{root}/x.parquet', '{outside}'])
SELECT * FROM parquet_scan('{root}/x.parquet')
SELECT * FROM parquet_metadata('{root}/x.parquet')
SELECT * FROM parquet_schema('{root}/x.parquet')
SELECT * FROM parquet_file_metadata('{root}/x.parquet')
SELECT * FROM parquet_kv_metadata('{root}/x.parquet')
SELECT * FROM parquet_bloom_probe('{root}/x.parquet', 'a', 1)
SELECT * FROM read_json('{outside}')
SELECT * FROM read_json_auto('{outside}')
SELECT * FROM read_ndjson('{outside}')
SELECT * FROM read_text('{outside}')
SELECT * FROM read_blob('{outside}')
SELECT * FROM read_duckdb('{outside}')
SELECT * FROM sniff_csv('{outside}')
SELECT * FROM glob('{root}/*')
SELECT * FROM glob('/*')
SELECT * FROM iceberg_scan('{root}/metadata.json')
SELECT * FROM iceberg_metadata('{root}/metadata.json')
SELECT * FROM iceberg_snapshots('{root}/metadata.json')
SELECT * FROM read_avro('{root}/x.avro')
SELECT * FROM flows WHERE EXISTS (SELECT * FROM read_text('{outside}'))
SELECT * FROM flows, LATERAL read_text('{outside}')
SELECT count(*) FROM flows ORDER BY (SELECT content FROM read_text('{outside}'))
SELECT sum(bytes) FILTER (WHERE EXISTS (FROM read_text('{outside}'))) FROM flows
SELECT * FROM flows LIMIT (SELECT count(*) FROM read_text('{outside}'))
SELECT * FROM seq_scan('flows')

-- Text that becomes statements or plans
SELECT * FROM query('SELECT 1')
SELECT * FROM query_table('flows')
SELECT * FROM query_table(['flows', 'x.parquet'])
SELECT * FROM json_execute_serialized_sql('x')
SELECT json_execute_serialized_sql('x')
SELECT json_serialize_sql('SELECT 1')
SELECT json_deserialize_sql('x')
SELECT json_serialize_plan('SELECT 1')
PRAGMA json_execute_serialized_sql('x')
SELECT create_sort_key(bytes, 'ASC') FROM flows
SELECT sum(bytes) EXPORT_STATE FROM flows
SELECT from_json('[1]', '"INTEGER[100000]"')
SELECT json_transform('[1]', '"INTEGER[100000]"')
SELECT cast_to_type('1', NULL::INTEGER[100000])
SELECT remap_struct({'a': 1}, NULL::STRUCT(a INT), NULL, NULL)
SELECT parse_duckdb_log_message('x', 'y')

-- The server's own state
SELECT * FROM duckdb_settings()
SELECT * FROM duckdb_views()
SELECT * FROM duckdb_tables()
SELECT * FROM duckdb_databases()
SELECT * FROM duckdb_functions()
SELECT * FROM duckdb_secrets()
SELECT * FROM duckdb_variables()
SELECT * FROM duckdb_extensions()
SELECT * FROM duckdb_temporary_files()
SELECT * FROM duckdb_external_file_cache()
SELECT * FROM duckdb_prepared_statements()
SELECT * FROM duckdb_logs
SELECT * FROM duckdb_memory()
SELECT * FROM which_secret('s3://x', 's3')
SELECT * FROM pragma_database_size()
SELECT * FROM pragma_table_info('flows')
SELECT * FROM pragma_storage_info('flows')
SELECT * FROM pragma_user_agent()
SELECT * FROM sqlite_master
SELECT * FROM information_schema.tables
SELECT * FROM pg_catalog.pg_class
SELECT * FROM system.information_schema.columns
SELECT * FROM temp.main.part_0_0
SELECT * FROM temp.information_schema.tables
SELECT current_setting('temp_directory')
SELECT current_setting('allowed_directories')
SELECT getvariable('thermocline_statement_time')
SELECT current_query()
SELECT getenv('HOME')
SELECT current_database()
SELECT nextval('s')
SELECT currval('s')
SELECT txid_current()
SELECT write_log('x')
SELECT pg_sleep(100)
SELECT sleep_ms(100000)
SELECT setseed(0.5)
SELECT stats(bytes) FROM flows
SELECT in_search_path('a', 'b')
SHOW TABLES
SHOW ALL TABLES
SHOW DATABASES
SELECT * FROM (SHOW TABLES)
SELECT * FROM (SHOW ALL TABLES)

-- Statements that are not queries
INSERT INTO flows VALUES (1)
UPDATE flows SET bytes = 1
DELETE FROM flows
TRUNCATE flows
MERGE INTO flows USING flows AS f ON true WHEN MATCHED THEN DELETE
CREATE TABLE x AS SELECT * FROM range(3)
CREATE TEMP TABLE x (a INT)
CREATE OR REPLACE VIEW flows AS SELECT 1
CREATE OR REPLACE FUNCTION sum(x) AS 42
CREATE TEMP MACRO now() AS 1
CREATE TYPE t AS ENUM ('a')
CREATE SCHEMA s
CREATE SEQUENCE s
CREATE INDEX i ON flows (bytes)
CREATE SECRET (TYPE http, BEARER_TOKEN 'x')
DROP TABLE flows
ALTER TABLE flows ADD COLUMN x INT
COPY flows TO '{root}/x.parquet'
COPY (SELECT 1) TO '{outside}'
COPY flows FROM '{outside}'
EXPORT DATABASE '{root}'
IMPORT DATABASE '{root}'
ATTACH ':memory:' AS x
ATTACH '{root}/x.db'
DETACH memory
USE memory.main
INSTALL httpfs
LOAD httpfs
LOAD '{root}/x.duckdb_extension'
SET memory_limit = '1TB'
SET enable_external_access = true
SET allowed_directories = ['/']
SET TimeZone = 'Europe/Paris'
RESET memory_limit
SET VARIABLE thermocline_statement_time = '2000-01-01'
PRAGMA database_size
PRAGMA disable_optimizer
CALL enable_logging()
CALL pragma_version()
CALL duckdb_settings()
CHECKPOINT
FORCE CHECKPOINT
VACUUM
ANALYZE
BEGIN
COMMIT
ROLLBACK
PREPARE p AS SELECT 1
EXECUTE p
DEALLOCATE p
EXPLAIN SELECT 1
EXPLAIN ANALYZE INSERT INTO flows VALUES (1)
COMMENT ON TABLE flows IS 'x'
WITH a AS (INSERT INTO flows VALUES (1) RETURNING *) SELECT * FROM a
WITH a AS (DELETE FROM flows RETURNING *) SELECT * FROM a
WITH a AS (COPY (SELECT 1) TO '{root}/x.parquet') SELECT * FROM a
SELECT 1; SELECT 2
SELECT 1; DROP TABLE flows
SELECT * FROM (SELECT 1); COPY flows TO 'x' --
SELECT 1) UNION ALL (SELECT 2
SELECT 1 \n) ; COPY (SELECT 1) TO 'x'; SELECT * FROM (SELECT 1
PIVOT flows ON bytes USING sum(bytes)

-- Python's variables, and names nobody registered
SELECT * FROM con
SELECT * FROM self
SELECT * FROM arrow_rows
SELECT * FROM relations
SELECT * FROM values
SELECT * FROM pandas.DataFrame
SELECT * FROM python.flows

-- One row that would be larger than any may be: by one element, or what may make it so at all; no engine that takes one comes to harm
SELECT length(repeat('x', 10001))
SELECT repeat('x', 10001)
SELECT repeat([1], 10001)
SELECT repeat('x'::BLOB, 10001)
SELECT repeat(s, 10001) FROM (SELECT 'x'::BLOB AS s)
SELECT 'x'.repeat(10001)
SELECT repeat(s, 10001) FROM (SELECT 'x' AS s)
SELECT s.repeat(10001) FROM (SELECT 'x' AS s)
SELECT main.repeat('x', 10001)
SELECT system.main.repeat('x', 10001)
SELECT memory.main.repeat('x', 10001)
SELECT lpad('x', 10001, 'y')
SELECT rpad('x', 10001, 'y')
SELECT length(range(10001))
SELECT range(0, 10001)
SELECT range(0, 10001, 1)
SELECT range(-5000, 5001)
SELECT generate_series(1, 10002)
SELECT generate_series(TIMESTAMP '2000-01-01', TIMESTAMP '2000-01-02', INTERVAL 1 SECOND)
SELECT unnest(range(10001))
SELECT unnest(generate_series(1, 10002))
SELECT list_resize([1], 10001)
SELECT array_resize([1], 10001, 2)
SELECT bar(1, 0, 1, 10001)
SELECT bitstring('1', 10001)
SELECT to_base(1, 2, 10001)
SELECT equi_width_bins(0, 10001, 10001, false)
SELECT format('{:>10001}', 'x')
SELECT format('{:>{}}', 'x', 10001)
SELECT format(s, 1) FROM (SELECT '{:>10001}' AS s)
SELECT printf('%10001d', 1)
SELECT printf('%*d', 10001, 1)
SELECT printf('%.10001f', 1.0)
SELECT replace(repeat('x', 10000), 'x', repeat('y', 10000))
SELECT regexp_replace(repeat('x', 10000), 'x', repeat('y', 10000), 'g')
SELECT regexp_replace(repeat('x', 10000), '', repeat('y', 10000), 'g')
SELECT levenshtein(repeat('a', 10000), repeat('b', 10000))
SELECT damerau_levenshtein(repeat('a', 10000), repeat('b', 10000))
SELECT jaro_similarity(repeat('a', 10000), repeat('b', 10000))
SELECT list_reduce(['x', 'x', 'x'], (a, b) -> a || a || b)
SELECT array_reduce([1, 2], (a, b) -> a + b)
SELECT reduce([1, 2], lambda a, b: a + b)
SELECT list_transform(range(100), x -> range(100))
SELECT list_transform(range(100), x -> repeat('x', 100))
SELECT [repeat('x', 100) FOR x IN range(100)]
SELECT list_transform(range(9), a -> list_transform(range(9), b -> list_transform(range(9), c -> a + b + c)))
SELECT array_to_string(range(100), repeat('x', 100))
SELECT list_aggregate(range(100)::VARCHAR[], 'string_agg', repeat('x', 100))
SELECT NULL::INTEGER[100000]
SELECT NULL::INTEGER[1000][1000]
SELECT NULL::STRUCT(a INTEGER[100000])
SELECT NULL::INTEGER[]::INTEGER[100000]
SELECT * FROM flows USING SAMPLE 100001 ROWS
SELECT * FROM flows TABLESAMPLE RESERVOIR(100001 ROWS)
SELECT repeat('a', 100) LIKE '%a%a%a%a%b' ESCAPE '!'
SELECT repeat('a', 100) GLOB '*a*a*a*a*b'
SELECT sum(bytes) FROM flows GROUP BY CUBE (bytes, bytes+1, bytes+2, bytes+3, bytes+4, bytes+5, bytes+6, bytes+7, bytes+8, bytes+9, bytes+10, bytes+11)

-- Syntax the gate has no rule for
SELECT * FROM flows AT (VERSION => (SELECT 1))
SELECT * FROM flows AT (TIMESTAMP => random())
SELECT DEFAULT
SELECT 1::"no such type"
SELECT 1::main.whatever
SELECT NULL::GEOMETRY
SELECT NULL::VARIANT
SELECT row_number() FROM flows
SELECT read_csv('x') OVER () FROM flows
SELECT nosuchfunction(1)
SELECT nosuchaggregate(bytes) OVER () FROM flows
SELECT * FROM nosuchtablefunction(1)
SELECT * FROM test_all_types()
SELECT * FROM test_vector_types(NULL::INT)
SELECT * FROM repeat(1, 3)
SELECT * FROM repeat_row(1, num_rows = 3)
SELECT * FROM summary((SELECT 1))
SELECT * FROM json_each('[1]')
SELECT * FROM icu_calendar_names()
SELECT * FROM histogram_values('flows', bytes)
SELECT * FROM nosuchtable
SELECT nosuchcolumn FROM flows
SELECT 'unterminated
SELEC 1
SELECT
;
