"""What the server says of its SQL to drivers: words that need quotes, and functions that can be called."""

from __future__ import annotations

from importlib.metadata import version

from proxy.flightsql.metadata.sqlinfo import Product


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Reserved by the engine's grammar.
KEYWORDS = _names("""
    ALL ANALYSE ANALYZE AND ANY ARRAY AS ASC ASYMMETRIC BOTH CASE CAST CHECK COLLATE COLUMN
    CONSTRAINT CREATE DEFAULT DEFERRABLE DESC DESCRIBE DISTINCT DO ELSE END EXCEPT FALSE FETCH FOR
    FOREIGN FROM GROUP HAVING IN INITIALLY INTERSECT INTO LAMBDA LATERAL LEADING LIMIT NOT NULL
    OFFSET ON ONLY OR ORDER PIVOT PIVOT_LONGER PIVOT_WIDER PLACING PRIMARY QUALIFY REFERENCES
    RETURNING SELECT SHOW SOME SUMMARIZE SYMMETRIC TABLE THEN TO TRAILING TRUE UNION UNIQUE
    UNPIVOT USING VARIADIC WHEN WHERE WINDOW WITH
    """)
#: More words of statements, not reserved: a prompt completes both.
COMMON_WORDS = _names("""
    BETWEEN BY COUNT CROSS EXPLAIN FULL INNER IS JOIN LEFT LIKE OUTER OVER PARTITION RIGHT VALUES
    """)

#: Of the statement gate's functions those that tools generate; nested and JSON functions have no list in SqlInfo.
NUMERIC = _names("""
    abs acos acosh add asin asinh atan atan2 atanh bit_count bit_length bit_position cbrt ceil
    ceiling cos cosh cot degrees divide even exp factorial fdiv floor fmod gamma gcd get_bit
    greatest greatest_common_divisor isfinite isinf isnan lcm least least_common_multiple lgamma
    ln log log10 log2 mod multiply nextafter pi pow power radians random round round_even
    roundbankers set_bit sign signbit sin sinh sqrt subtract tan tanh trunc
    """)
STRING = _names("""
    ascii base64 bin char_length character_length chr concat concat_ws contains decode encode
    ends_with format format_bytes formatreadabledecimalsize formatreadablesize from_base64
    from_binary from_hex hamming hex instr jaccard lcase left left_grapheme len length
    length_grapheme levenshtein lower lpad ltrim md5 md5_number md5_number_lower md5_number_upper
    mismatches nfc_normalize octet_length ord parse_dirname parse_dirpath parse_filename
    parse_formatted_bytes parse_path pg_size_pretty position prefix printf regexp_escape
    regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
    regexp_split_to_array repeat replace reverse right right_grapheme rpad rtrim sha1 sha256 split
    split_part starts_with str_split str_split_regex string_split string_split_regex
    string_to_array strip_accents strlen strpos substr substring substring_grapheme suffix to_base
    to_base64 to_binary to_hex translate trim ucase unbin unhex unicode upper url_decode
    url_encode
    """)
DATETIME = _names("""
    age ago century current_date current_localtime current_localtimestamp current_time
    current_timestamp date_add date_diff date_part date_sub date_trunc datediff datepart datesub
    datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms
    epoch_ns epoch_us era get_current_time get_current_timestamp hour isodow isoyear julian
    last_day localtime localtimestamp make_date make_time make_timestamp make_timestamp_ms
    make_timestamp_ns make_timestamptz microsecond millennium millisecond minute month monthname
    nanosecond normalized_interval now quarter second strftime strptime time_bucket timezone
    timezone_hour timezone_minute to_centuries to_days to_decades to_hours to_microseconds
    to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks
    to_years today transaction_timestamp try_strptime week weekday weekofyear year yearweek
    """)
SYSTEM = _names("alias constant_or_null hash nullif pg_typeof typeof uuid version")


def product() -> Product:
    return Product(
        "Thermocline",
        version("thermocline"),
        keywords=KEYWORDS,
        numeric_functions=NUMERIC,
        string_functions=STRING,
        system_functions=SYSTEM,
        datetime_functions=DATETIME,
    )
