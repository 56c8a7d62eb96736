"""What a statement may call. A function that is not listed here is refused.

Principle: one call on one row must cost no more than a constant times the size of its arguments, because the engine
looks for cancellation and limits between vectors, not inside one (``repeat`` ran 32 s under a 1.5 s limit). Functions
that break it are either left out, or listed in ``BOUNDED``: the engine shadows those with macros that refuse costly
arguments (``proxy.engine.macros``). Values still can grow by doubling (``s || s``, nested); the watchdog bounds that.

Left out besides: anything that reads files, the network, settings, variables or the catalog; that executes text; that
takes or gives internal states (``finalize``, ``create_sort_key``); that has effects (``nextval``, ``setseed``,
``write_log``, ``sleep_ms``); and that names types in text (``cast_to_type``, ``from_json``).
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Operators the parser turns into functions.
OPERATORS = words("""
    + - * / // % ** ^ & | << >> ~ @ ! !__postfix xor
    || ^@ ~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape not_ilike_escape
    -> ->> && @> <@ <-> <=>
    """)

SCALARS = OPERATORS | words("""
    abs acos acosh add asin asinh atan atan2 atanh cbrt ceil ceiling cos cosh cot degrees divide even exp
    fdiv floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least
    least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians round
    round_even roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc factorial
    bit_count bit_length bit_position get_bit set_bit hash random uuid uuidv4 uuidv7 gen_random_uuid
    uuid_extract_timestamp uuid_extract_version

    ascii base64 bin char_length character_length chr concat concat_ws contains decode encode ends_with
    format_bytes formatreadabledecimalsize formatreadablesize from_base64 from_binary from_hex hex instr
    lcase left left_grapheme len length length_grapheme lower ltrim md5 md5_number md5_number_lower
    md5_number_upper nfc_normalize octet_length ord parse_dirname parse_dirpath parse_filename
    parse_formatted_bytes parse_path position prefix regexp_escape regexp_extract regexp_extract_all
    regexp_full_match regexp_matches regexp_split_to_array reverse right right_grapheme rtrim sha1 sha256
    split split_part starts_with str_split str_split_regex string_split string_split_regex string_to_array
    strip_accents strlen strpos substr substring substring_grapheme suffix to_base to_base64 to_binary to_hex
    translate trim ucase unbin unhex unicode upper url_decode url_encode hamming mismatches jaccard
    pg_size_pretty

    age ago century date_add date_bin date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day
    dayname dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour
    isodow isoyear julian last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns
    make_timestamptz microsecond millennium millisecond minute month monthname nanosecond
    normalized_interval quarter second strftime strptime time_bucket timezone timezone_hour timezone_minute
    to_centuries to_days to_decades to_hours to_microseconds to_millennia to_milliseconds to_minutes
    to_months to_quarters to_seconds to_timestamp to_weeks to_years try_strptime week weekday weekofyear
    year yearweek
    now today current_date current_time current_timestamp current_localtime current_localtimestamp
    get_current_time get_current_timestamp localtime localtimestamp transaction_timestamp

    aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat
    array_contains array_cosine_distance array_cosine_similarity array_cross_product array_distance
    array_distinct array_dot_product array_extract array_filter array_grade_up array_has array_has_all
    array_has_any array_indexof array_inner_product array_intersect array_length
    array_negative_dot_product array_negative_inner_product array_pop_back array_pop_front array_position
    array_prepend array_push_back array_push_front array_reverse array_reverse_sort array_select
    array_slice array_sort array_to_string array_transform array_unique array_value array_where array_zip cardinality
    element_at filter flatten grade_up list_aggr list_aggregate list_any_value list_append list_apply
    list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or
    list_cat list_concat list_contains list_cosine_distance list_cosine_similarity list_count
    list_distance list_distinct list_dot_product list_element list_entropy list_extract list_filter
    list_first list_grade_up list_has list_has_all list_has_any list_histogram list_indexof
    list_inner_product list_intersect list_kurtosis list_kurtosis_pop list_last list_mad list_max
    list_median list_min list_mode list_negative_dot_product list_negative_inner_product list_pack
    list_position list_prepend list_product list_reverse list_reverse_sort list_select list_sem
    list_skewness list_slice list_sort list_stddev_pop list_stddev_samp list_sum list_transform
    list_unique list_value list_var_pop list_var_samp list_where list_zip map map_concat map_contains
    map_contains_entry map_contains_value map_entries map_extract map_extract_value map_from_entries
    map_keys map_values row struct_concat struct_contains struct_extract struct_extract_at struct_has
    struct_indexof struct_insert struct_keys struct_pack struct_position struct_update struct_values
    union_extract union_tag union_value unnest unpivot_list

    array_to_json json json_array json_array_length json_contains json_exists json_extract
    json_extract_path json_extract_path_text json_extract_string json_keys json_merge_patch json_object
    json_pretty json_quote json_structure json_type json_valid json_value row_to_json to_json

    thermocline_cut
    alias constant_or_null error enum_code enum_first enum_last enum_range enum_range_boundary nullif
    pg_typeof typeof version
    """)

#: Scalars whose cost depends on the values of their arguments. The engine bounds each by a macro.
BOUNDED = words("""
    array_resize bar bitstring damerau_levenshtein editdist3 generate_series
    jaro_similarity jaro_winkler_similarity levenshtein list_resize lpad range regexp_replace repeat
    replace rpad
    """)

#: Those whose result is larger than their arguments: not inside a lambda, which would multiply it.
BUILDERS = words("""
    array_resize array_to_string bar bitstring generate_series list_resize lpad range regexp_replace repeat
    replace rpad
    """)

#: Scalars whose first argument is a format, which must be a literal without large widths.
FORMATTED = frozenset(("format", "printf"))

#: Scalars whose arguments after the first, a separator among them, must be short literals.
JOINERS = words("aggregate array_aggr array_aggregate array_to_string list_aggr list_aggregate")

#: Pattern matchers that try every position for every wildcard: the second argument must be a tame literal.
MATCHERS = words("~~~ like_escape not_like_escape ilike_escape not_ilike_escape")

AGGREGATES = words("""
    any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null
    arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or
    bit_xor bool_and bool_or corr count count_if count_star countif covar_pop covar_samp entropy favg first
    first_value fsum geomean geometric_mean group_concat histogram histogram_exact json_group_array
    json_group_object json_group_structure kahan_sum kurtosis kurtosis_pop last last_value list listagg mad
    max max_by mean median min min_by mode nth_value product quantile quantile_cont quantile_disc
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    reservoir_quantile sem skewness stddev stddev_pop stddev_samp string_agg sum sum_no_overflow sumkahan
    var_pop var_samp variance wavg weighted_avg
    """)

WINDOWS = AGGREGATES | words(
    "cume_dist dense_rank fill lag lead ntile percent_rank rank rank_dense row_number"
)

FUNCTIONS = SCALARS | BOUNDED | FORMATTED | AGGREGATES

#: In FROM they stream: the engine can stop them between vectors, for any number of rows.
TABLE_FUNCTIONS = frozenset(("generate_series", "range", "unnest"))

#: Expression types, beside the class (``EXPRESSIONS`` of planner.statement.ast).
OPERATOR_TYPES = words("""
    ARRAY_CONSTRUCTOR ARRAY_EXTRACT ARRAY_SLICE ARROW COMPARE_IN COMPARE_NOT_IN GROUPING_FUNCTION
    OPERATOR_COALESCE OPERATOR_IS_NOT_NULL OPERATOR_IS_NULL OPERATOR_NOT OPERATOR_NULLIF OPERATOR_TRY
    OPERATOR_UNPACK STRUCT_EXTRACT
    """)

#: Names of types a cast may go to.
TYPES = words("""
    BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT FLOAT DOUBLE
    DECIMAL VARCHAR BLOB BIT DATE TIME TIME_NS TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS
    INTERVAL UUID LIST STRUCT MAP ARRAY ENUM UNION JSON BIGNUM
    """)

#: Type ids of the tree that are spelled differently from their SQL name.
TYPE_IDS = TYPES | {"TIME WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE", "UNBOUND", "NULL"}
