"""Each switch removes one rule from the text of the source; the tests it names must then fail (docs/seam-rules.md)."""

from __future__ import annotations

from dataclasses import dataclass

RESOLVER = "tests/unit/test_resolver.py"
CUT = "tests/unit/test_cut.py"
PUBLISH = "tests/unit/test_publish.py"
TIERING = "tests/contract/test_tiering_target.py"
SCRIPTED = "tests/integration/test_scripted_log.py"
STATEMENTS = "tests/rules/test_statements.py"
RENAMING = "tests/rules/test_renaming.py"
READING = "tests/rules/test_reading.py"
FRESHNESS = "tests/rules/test_freshness.py"
TIME_TRAVEL = "tests/unit/test_time_travel.py"
DECIDING = "tests/unit/test_ways_out.py"
WAYS_OUT = "tests/contract/test_ways_out.py"
EXPIRED = "tests/contract/test_expired_history.py"
HISTORY = "tests/unit/test_tail_history.py"
HERITAGE = "tests/unit/test_tail_heritage.py"
LAST_ENDS = "tests/unit/test_last_ends.py"
SCHEMAS = "tests/rules/test_schemas.py"
SHIPPING = "tests/unit/test_schema_shipping.py"
BOUNDARY = "tests/unit/test_boundary.py"
EXTREMES = "tests/unit/test_extremes.py"
KEYED = "tests/rules/test_keyed.py"
KEYED_TIER_JOB = "tests/unit/test_keyed_tier_job.py"
KEYED_READING = "tests/unit/test_keyed_reading.py"
CHANGES = "tests/unit/test_changes_decoder.py"
CHANGES_TAIL = "tests/unit/test_changes_tail.py"
KEYED_PUBLISH = "tests/unit/test_keyed_publish.py"


@dataclass(frozen=True)
class Switch:
    """``fragment`` occurs exactly once in ``file``, in a function; ``instead`` is the same code without the rule.

    ``tests`` are node ids that must all fail.
    """

    rule: str
    name: str
    file: str
    fragment: str
    instead: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.rule} {self.name}"


SWITCHES = (
    Switch(
        "T29",
        "keep rows of the log that are too old",
        "connectors/decoding/policy.py",
        "expired = None if boundary is None else boundary.expired(rows, self._schema)",
        "expired = None",
        (f"{BOUNDARY}::test_records_before_it_are_an_outcome_of_their_own",),
    ),
    Switch(
        "T29",
        "read the log by no pin's boundary",
        "planner/seam/binding.py",
        "return replace(self, skips=mark.skipped, boundary=mark.boundary)",
        "return replace(self, skips=mark.skipped)",
        (
            f"{BOUNDARY}::test_records_before_it_are_an_outcome_of_their_own",
            f"{BOUNDARY}::test_another_boundary_is_another_decoding_and_another_era",
        ),
    ),
    Switch(
        "T29",
        "publish rows that were decoded by an earlier boundary",
        "planner/seam/watermark.py",
        'attrgetter("shape", "gaps", "accepted", "skips", "boundary")',
        'attrgetter("shape", "gaps", "accepted", "skips")',
        (f"{BOUNDARY}::test_a_publish_that_was_planned_before_it_moved_is_refused",),
    ),
    Switch(
        "T29",
        "answer a cut by a snapshot of another boundary",
        "planner/seam/watermark.py",
        'boundary = "" if mark.boundary is None else mark.boundary.key',
        'boundary = ""',
        (
            f"{BOUNDARY}::test_another_boundary_is_another_decoding_and_another_era",
            f"{BOUNDARY}::test_a_cut_is_answered_by_snapshots_of_its_own_boundary_alone[10]",
        ),
    ),
    Switch(
        "T29",
        "let older programs read a text with a boundary",
        "planner/seam/watermark.py",
        "if watermark.boundary is not None or watermark.key:",
        "if watermark.key:",
        (f"{BOUNDARY}::test_it_makes_version_3_which_older_programs_refuse",),
    ),
    Switch(
        "T29",
        "take NULL for a time before the boundary",
        "planner/seam/boundary.py",
        "is_old = pc.fill_null(pc.less(values, self.limit(column)), fill_value=False)",
        "is_old = pc.fill_null(pc.less(values, self.limit(column)), fill_value=True)",
        (
            f"{BOUNDARY}::test_rows_before_it_are_too_old_and_null_never_is[date32[day]]",
            f"{BOUNDARY}::test_records_before_it_are_an_outcome_of_their_own",
        ),
    ),
    Switch(
        "T29",
        "carry an era on over rows that aged out",
        "planner/maintenance/retention.py",
        "return replace(after, decoding=decoding, era=era_after(after, decoding))",
        "return replace(after, decoding=decoding)",
        ("tests/unit/test_retention.py::test_its_commit_is_no_publish_and_begins_an_era",),
    ),
    Switch(
        "T29",
        "verify rows that aged out as any",
        "connectors/verification/comparing.py",
        "old = None if boundary is None else boundary.expired(rows, self._schema)",
        "old = None",
        (
            "tests/contract/test_verification.py::"
            "test_rows_that_aged_out_are_an_outcome_and_no_fault[fail]",
            "tests/contract/test_verification.py::test_a_row_that_should_have_aged_out_is_a_fault",
        ),
    ),
    Switch(
        "T29",
        "let the boundary go back",
        "planner/verification/chain.py",
        "if mark.boundary != before.boundary and not _is_later(mark, before):",
        "if False:",
        (f"{BOUNDARY}::test_a_boundary_that_goes_back_is_a_fault_of_the_chain",),
    ),
    Switch(
        "S1",
        "read all records by the newest schema",
        "connectors/decoding/avro/decoder.py",
        "schema = self._writers.get(schema_id)\n        if schema is None:",
        "schema = self._writers.get(max(self._writers.fingerprints))\n        if schema is None:",
        (
            f"{SCHEMAS}::test_a_record_is_decoded_with_the_schema_it_was_written_with[exact]",
            f"{SCHEMAS}::test_a_record_is_decoded_with_the_schema_it_was_written_with[fast]",
        ),
    ),
    Switch(
        "S2",
        "give tasks schemas that the ledger lacks",
        "connectors/registry/shipping.py",
        "self.decoders.answers_of(str(table), binding, ids),",
        "self.decoders.answers(str(table), binding, ids),",
        (f"{SCHEMAS}::test_tasks_get_no_schema_that_the_ledger_lacks",),
    ),
    Switch(
        "S2",
        "evolve without the ledger",
        "connectors/registry/table_schemas.py",
        "return Evolving(tuple(changes), more.text)",
        "return Evolving(tuple(changes), ledger.text)",
        (
            f"{SCHEMAS}::test_a_schema_is_in_the_ledger_with_its_columns_also_where_it_brings_none",
        ),
    ),
    Switch(
        "S2",
        "publish rows whose schema the ledger lacks",
        "planner/tiering/publish.py",
        ".check_published(table, schemas)",
        ".check(table, schemas)",
        (f"{SCHEMAS}::test_rows_are_not_published_where_the_ledger_lacks_their_schema",),
    ),
    Switch(
        "S3",
        "compare no fingerprints",
        "planner/evolution/ledger.py",
        "if own[at] not in NO_SCHEMA",
        "if False",
        (
            f"{SCHEMAS}::test_a_registry_that_gives_an_id_to_another_schema_stops_readers_and_tierers",
            f"{SHIPPING}::test_a_ledger_with_another_schema_under_an_id_stops_its_table",
        ),
    ),
    Switch(
        "S3",
        "take every era for one",
        "planner/seam/formats.py",
        '"era": self.era,',
        '"era": 0,',
        (
            f"{SCHEMAS}::test_another_era_is_another_shape",
            "tests/contract/test_accept_schemas.py::test_the_ledger_alone_is_not_enough[memory]",
        ),
    ),
    Switch(
        "S3",
        "keep what a registry answered for every era",
        "connectors/registry/decoders.py",
        'return f"{table} {binding.table_uuid} {avro_of(binding).era}"',
        'return ""',
        (
            "tests/integration/test_registry_memories.py::"
            "test_a_new_era_of_a_table_asks_again_and_other_tables_have_what_they_had",
        ),
    ),
    Switch(
        "S4",
        "bring a dropped column back",
        "planner/evolution/changes.py",
        "if isinstance(item, AddColumn) and item.path in without",
        "if False",
        (
            f"{SCHEMAS}::test_a_dropped_column_stays_dropped_under_a_later_schema",
            "tests/unit/test_evolution.py::test_a_column_that_a_person_dropped_stays_dropped",
        ),
    ),
    Switch(
        "S4",
        "forget a column that was dropped",
        "connectors/registry/table_schemas.py",
        "earlier = self.earlier.union(past)",
        "earlier = self.earlier",
        (f"{SCHEMAS}::test_a_dropped_column_stays_dropped_under_a_later_schema",),
    ),
    Switch(
        "S4",
        "bring a field that was left out",
        "connectors/registry/table_schemas.py",
        "earlier = self.earlier.union(past)",
        "earlier = frozenset(past)",
        (
            f"{SCHEMAS}::test_a_field_without_a_column_from_the_start_has_none_under_a_later_schema",
        ),
    ),
    Switch(
        "S4",
        "evolve by a schema that the ledger has",
        "connectors/registry/table_schemas.py",
        "new = [at for at in self.ids if ledger.fingerprints.get(at) != fingerprints[at]]",
        "new = list(self.ids)",
        (f"{SCHEMAS}::test_a_schema_of_the_ledger_brings_no_column_again",),
    ),
    Switch(
        "S5",
        "take an id for unknown at once",
        "connectors/registry/client.py",
        "is_over = self._clock() - missing.since >= self._grace_s",
        "is_over = True",
        (
            f"{SCHEMAS}::test_an_id_is_asked_for_until_its_grace_is_over",
            "tests/integration/test_schema_registry_faults.py::"
            "test_unknown_ids_wait_together_and_again_after_a_minute_of_silence",
        ),
    ),
    Switch(
        "S5",
        "ask the registry about an id that the ledger has as unknown",
        "connectors/decoding/avro/decoder.py",
        "if schema_id in self._format.unknown:",
        "if False:",
        (
            "tests/integration/test_registry_memories.py::"
            "test_an_id_that_the_ledger_has_as_unknown_is_a_bad_record_on_both_sides",
        ),
    ),
    Switch(
        "T2",
        "accept foreign rows that the tail has too",
        "planner/repairs.py",
        "if following > mark.offset(partition):",
        "if False:",
        (
            f"{DECIDING}::test_rows_that_the_tail_has_too_are_refused",
            f"{WAYS_OUT}::test_foreign_rows_that_the_tail_has_too_are_not_accepted[memory]",
        ),
    ),
    Switch(
        "T2",
        "accept all foreign snapshots by naming one",
        "planner/repairs.py",
        "table=str(table), accepted=frozenset(accepted))",
        "table=str(table), accepted=frozenset(refused))",
        (
            f"{DECIDING}::test_every_foreign_snapshot_must_be_named",
            f"{WAYS_OUT}::TestOverIceberg::"
            "test_a_second_foreign_append_in_between_is_not_accepted_with_the_first",
        ),
    ),
    Switch(
        "T10",
        "give up another gap than the one shown",
        "planner/repairs.py",
        "if lost != tuple(expected):",
        "if False:",
        (
            f"{DECIDING}::test_a_gap_that_is_none_or_another_is_refused",
            f"{WAYS_OUT}::test_a_gap_that_grew_while_it_was_shown_changes_nothing[memory]",
        ),
    ),
    Switch(
        "T14",
        "skip a record without moving the shape",
        "planner/repairs.py",
        "return replace(after, shape=replace(pin.binding, skips=after.skipped).shape)",
        "return after",
        (
            f"{DECIDING}::test_a_skipped_record_moves_the_shape_and_not_the_watermark",
            f"{WAYS_OUT}::TestWithATierer::test_tiering_goes_on_after_a_skip_and_carries_it_on",
        ),
    ),
    Switch(
        "T14",
        "leave a skipped record to the decoder",
        "connectors/table_facts.py",
        "replace(binding.under(mark), table_uuid=facts.table_uuid)",
        "replace(binding, table_uuid=facts.table_uuid)",
        (
            f"{WAYS_OUT}::test_a_poisoned_record_is_skipped_for_good[memory]",
            f"{STATEMENTS}::test_a_skipped_record_is_in_no_answer_after_the_decision",
        ),
    ),
    Switch(
        "T19",
        "publish over a person's decision",
        "planner/tiering/publish.py",
        "if current.same_position(plan.start) and current.same_decisions(plan.start):",
        "if current.same_position(plan.start):",
        (
            f"{WAYS_OUT}::TestWithATierer::"
            "test_a_decision_between_stage_and_publish_is_a_conflict[skip]",
            f"{WAYS_OUT}::TestWithATierer::"
            "test_a_decision_between_stage_and_publish_is_a_conflict[accept]",
        ),
    ),
    Switch(
        "T19",
        "commit a decision on a head it was not made on",
        "connectors/iceberg/repair_commit.py",
        'TableProperties.COMMIT_NUM_RETRIES: "0"',
        'TableProperties.COMMIT_NUM_RETRIES: "4"',
        (
            f"{WAYS_OUT}::TestOverIceberg::test_a_compaction_in_between_is_decided_on_again",
            f"{WAYS_OUT}::TestOverIceberg::test_a_tierer_in_between_wins",
            f"{WAYS_OUT}::TestOverIceberg::test_a_foreign_append_in_between_is_not_laundered",
        ),
    ),
    Switch(
        "T2",
        "believe a watermark that a compaction copied",
        "planner/seam/resolver.py",
        'snapshot.operation != "replace"\n        and text is not None',
        "text is not None",
        (f"{RESOLVER}::test_it_passes[replace with a copied watermark]",),
    ),
    Switch(
        "T2",
        "believe a watermark that an append copied",
        "planner/seam/resolver.py",
        "and not _is_copy(history, snapshot, text)",
        "",
        (
            f"{RESOLVER}::test_it_is_refused_until_accepted[append with a copied watermark]",
            f"{EXPIRED}::test_a_copied_watermark_is_not_believed[memory-newest]",
        ),
    ),
    Switch(
        "T2",
        "believe a copy that has fewer rows",
        "planner/seam/resolver.py",
        'watermark.outcomes.rows > (snapshot.count("added-records") or 0)',
        "False",
        (
            f"{RESOLVER}::"
            "test_a_copy_of_one_that_was_rolled_back_and_expired_is_known_by_its_rows[0]",
        ),
    ),
    Switch(
        "T2",
        "count rows that were deleted before as removed",
        "planner/seam/snapshots.py",
        "+ replaced if before == 0 else None",
        "",
        (
            f"{RESOLVER}::"
            "test_it_is_refused_until_accepted[merge over row deletes that nobody counted]",
        ),
    ),
    Switch(
        "T3",
        "forget what older metadata files tell",
        "connectors/table_facts.py",
        "older = evidence.earlier(oldest)",
        "older: Mapping[int, Snapshot] = {}",
        (
            f"{EXPIRED}::test_a_rollback_that_expiry_hid_takes_the_watermark_back[memory]",
            f"{EXPIRED}::test_an_append_that_expiry_hid_is_refused[memory]",
        ),
    ),
    Switch(
        "T2",
        "pass appends of unknown writers",
        "planner/seam/resolver.py",
        'case "append" if added_nothing(history, snapshot):',
        'case "append":',
        (
            f"{RESOLVER}::test_it_is_refused_until_accepted[append]",
            f"{RESOLVER}::test_a_refused_commit_hides_behind_compaction_in_vain",
            f"{PUBLISH}::test_publishing_never_launders_a_foreign_commit",
            f"{TIERING}::test_rows_of_another_writer_between_stage_and_publish_are_not_laundered[memory]",
        ),
    ),
    Switch(
        "T2",
        "refuse compactions",
        "planner/seam/resolver.py",
        'case "replace" | "delete":',
        'case "delete":',
        (
            f"{RESOLVER}::test_it_passes[replace]",
            f"{PUBLISH}::test_a_compaction_in_between_passes",
            f"{TIERING}::test_a_compaction_between_stage_and_publish_passes[memory]",
        ),
    ),
    Switch(
        "T3",
        "leave the tag behind when publishing",
        "tests/doubles/cold.py",
        "history = replace(history, tagged_id=snapshot.snapshot_id, mirror=text)",
        "history = replace(history, mirror=text)",
        (
            "tests/contract/test_cold_store.py::"
            "test_the_tag_carries_the_watermark_over_two_compactions_and_an_expiry[memory]",
        ),
    ),
    Switch(
        "T3",
        "believe the tag without the mirror",
        "planner/seam/resolver.py",
        "elif text != history.mirror:",
        "elif False:",
        (
            "tests/contract/test_cold_store.py::"
            "test_a_mirror_that_disagrees_with_the_tag_proves_nothing[memory]",
        ),
    ),
    Switch(
        "T3",
        "believe the tag whatever expired",
        "planner/seam/resolver.py",
        "elif _counts_differ(_before(oldest), _totals(tagged), text):",
        "elif False:",
        (f"{RESOLVER}::test_a_new_first_snapshot_is_not_taken_for_a_broken_chain",),
    ),
    Switch(
        "T3",
        "count rows that were deleted",
        "planner/seam/resolver.py",
        "before.records - before.position == tagged.records - tagged.position",
        "before.records == tagged.records",
        (f"{RESOLVER}::test_a_hidden_compaction_that_dropped_deleted_rows_removed_none",),
    ),
    Switch(
        "T3",
        "expire what was the newest snapshot a moment ago",
        "planner/maintenance/expiry.py",
        "if until_ms >= since_ms:",
        "if False:",
        (
            "tests/unit/test_maintenance.py::"
            "test_what_was_current_within_the_grace_is_promised_however_old_it_is",
        ),
    ),
    Switch(
        "T3",
        "expire over commits above the watermark",
        "planner/maintenance/steps.py",
        "return [WatermarkRenewal(), expiry] if facts.needs_watermark else [expiry], None",
        "return [expiry], None",
        (
            "tests/unit/test_maintenance.py::"
            "test_the_watermark_is_renewed_after_rewrites_and_before_an_expiry",
        ),
    ),
    Switch(
        "T3",
        "take a parent id that an expiry removed for the table's first snapshot",
        "planner/seam/resolver.py",
        "if carrier_id is None and history.tagged_id is None:",
        "if carrier_id is None:",
        (f"{RESOLVER}::test_a_chain_is_mended_where_expiry_took_the_parent_id_away_too",),
    ),
    Switch(
        "T4",
        "measure the log before pinning the table",
        "connectors/cuts.py",
        "        return cut_pinned({table: pins.get(table) for table in tables}, log, cold_only)\n"
        "    except (Inconsistent, StalePlan):",
        "        found = log.measure([table.name for table in tables])\n"
        "        pinned = {table: pins.get(table) for table in tables}\n"
        "        return {table: plan_cut(pinned[table], found[table.name]) for table in tables}\n"
        "    except ZeroDivisionError:",
        (
            f"{STATEMENTS}::test_a_tier_commit_before_the_cut_is_made_neither_doubles_nor_drops[pin]",
        ),
    ),
    Switch(
        "T4",
        "redeem a ticket with the newest pin",
        "proxy/query/cut.py",
        "pins.pin_at(table)",
        "pins.get(table.table)",
        (f"{STATEMENTS}::test_a_ticket_stands_on_the_snapshot_it_names",),
    ),
    Switch(
        "T5",
        "end at the high watermark",
        "connectors/kafka/bounds.py",
        "level = IsolationLevel.READ_COMMITTED if committed else",
        "level = IsolationLevel.READ_UNCOMMITTED if committed else",
        (
            f"{SCRIPTED}::test_an_open_transaction_at_the_tail_ends_the_log_at_the_last_stable_offset",
        ),
    ),
    Switch(
        "T5",
        "read what was not committed",
        "connectors/kafka/settings.py",
        "**settings, **OWNED}",
        '**settings, **OWNED, "isolation.level": "read_uncommitted"}',
        (f"{SCRIPTED}::test_aborted_records_are_dropped_and_the_marker_at_the_end_is_passed",),
    ),
    Switch(
        "T6",
        "wait for a last record that never comes",
        "connectors/kafka/fetch.py",
        "reached[partition] = max(reached[partition], offset)",
        "pass",
        (
            f"{SCRIPTED}::test_aborted_records_are_dropped_and_the_marker_at_the_end_is_passed",
            f"{SCRIPTED}::test_an_empty_retained_batch_at_the_end_is_passed",
        ),
    ),
    Switch(
        "T6",
        "wait for the end of the partition",
        "connectors/kafka/fetch.py",
        "reached[stretch.partition] = stretch.last + 1",
        "pass",
        (f"{READING}::test_in_a_growing_log_the_records_alone_end_a_range",),
    ),
    Switch(
        "T8",
        "count records to know where a range ends",
        "connectors/kafka/fetch.py",
        "reached[stretch.partition] = stretch.last + 1",
        "reached[stretch.partition] += stretch.count",
        (f"{READING}::test_a_range_with_holes_ends_at_its_stop_not_after_as_many_records",),
    ),
    Switch(
        "T8",
        "count offsets to know how large a tail is",
        "proxy/tail/fetching.py",
        "self.make_room(rows, size,",
        "self.make_room(sum(map(len, missing)), size,",
        (f"{STATEMENTS}::test_a_compacted_tail_is_measured_by_its_rows_not_by_its_offsets",),
    ),
    Switch(
        "T10",
        "begin the tail where the log begins",
        "planner/seam/cut.py",
        "if bounds.log_start > start:",
        "start = max(start, bounds.log_start)\n    if False:",
        (
            f"{CUT}::test_a_log_that_is_not_the_watermarks_is_refused[gap]",
            f"{STATEMENTS}::test_records_removed_before_they_were_tiered_are_named",
            "tests/unit/test_tiering_plan.py::test_a_gap_is_never_tiered_over",
        ),
    ),
    Switch(
        "T10",
        "fetch over records that are gone",
        "planner/seam/range_check.py",
        "if bounds.log_start > span.start:",
        "if False:",
        (
            f"{STATEMENTS}::test_records_removed_between_plan_and_read_are_an_error",
            f"{STATEMENTS}::test_records_removed_while_they_are_read_are_an_error",
            f"{SCRIPTED}::test_an_expired_start_is_an_error_and_never_a_jump",
        ),
    ),
    Switch(
        "T10",
        "jump to the end where a broker refuses an offset",
        "connectors/kafka/settings.py",
        "**settings, **OWNED}",
        '**settings, **OWNED, "auto.offset.reset": "latest"}',
        (
            f"{SCRIPTED}::"
            "test_a_broker_that_refuses_what_the_log_holds_is_an_error_and_never_a_jump",
        ),
    ),
    Switch(
        "T10",
        "trust what was read without a look at the log afterwards",
        "connectors/kafka/log.py",
        "            raise\n        guard.check_again(budget.left_s)\n",
        "            raise\n",
        (f"{SCRIPTED}::test_later_offsets_than_asked_are_a_gap_when_the_log_start_has_moved",),
    ),
    Switch(
        "T11",
        "know a topic by its name",
        "planner/seam/cut.py",
        "if bounds.topic_id != watermark.topic_id:",
        "if False:",
        (
            f"{CUT}::test_a_log_that_is_not_the_watermarks_is_refused[recreated]",
            f"{STATEMENTS}::test_a_topic_created_again_is_refused_whatever_it_holds[fewer]",
            f"{STATEMENTS}::test_a_topic_created_again_is_refused_whatever_it_holds[more]",
        ),
    ),
    Switch(
        "T11",
        "take a truncated log for a short one",
        "planner/seam/cut.py",
        "elif start > bounds.log_end:",
        "elif start > bounds.log_end:\n"
        "        return OffsetRange(bounds.partition, bounds.log_end, bounds.log_end)\n"
        "    elif False:",
        (
            f"{CUT}::test_a_log_that_is_not_the_watermarks_is_refused[truncated]",
            f"{STATEMENTS}::test_a_log_that_lost_what_is_cold_is_refused",
        ),
    ),
    Switch(
        "T11",
        "forget the cluster",
        "planner/seam/cut.py",
        "if bounds.cluster_id != watermark.cluster_id:",
        "if False:",
        (f"{CUT}::test_a_log_that_is_not_the_watermarks_is_refused[other cluster]",),
    ),
    Switch(
        "T11",
        "forget the leader epoch",
        "planner/seam/cut.py",
        "and epoch < tiered_epoch:",
        "and epoch < 0:",
        (f"{CUT}::test_an_older_leader_epoch_is_a_replaced_log",),
    ),
    Switch(
        "T11",
        "keep what was read whatever the log lost since",
        "proxy/tail/tails.py",
        "if not offsets:",
        "if True:",
        (
            f"{HISTORY}::test_rows_of_two_logs_are_never_in_one_answer[shorter-fetched]",
            f"{HISTORY}::test_rows_of_two_logs_are_never_in_one_answer[as long-fetched]",
        ),
    ),
    Switch(
        "T11",
        "fetch from a watermark whatever the log lost below it",
        "proxy/tail/tails.py",
        "fetch.into(generation, missing, older(below, hot), hot.epochs.as_dict())",
        "fetch.into(generation, missing, {}, hot.epochs.as_dict())",
        (f"{HISTORY}::test_records_that_are_lost_below_the_watermark_are_named",),
    ),
    Switch(
        "T12",
        "read the partitions of the watermark only",
        "planner/seam/cut.py",
        "        for each in bounds.partitions\n    )\n",
        "        for each in bounds.partitions if each.partition in watermark.next.partitions\n    )\n",
        (
            f"{CUT}::test_a_partition_born_after_the_watermark_starts_at_zero",
            f"{STATEMENTS}::test_a_partition_born_after_the_watermark_is_read_from_its_first_record",
        ),
    ),
    Switch(
        "T12",
        "begin a new partition where its log begins",
        "planner/seam/cut.py",
        "start=starts.get(each.partition, 0),",
        "start=starts.get(each.partition, each.log_start),",
        (
            f"{CUT}::test_a_log_that_is_not_the_watermarks_is_refused[gap in a new partition]",
            f"{STATEMENTS}::test_a_loss_in_a_new_partition_is_a_gap",
        ),
    ),
    Switch(
        "T14",
        "fetch the tail otherwise than the tierer does",
        "proxy/tail/reader/readers.py",
        "TopicSource.of(self.decoder, self.source.topic, self.source.topic_id)",
        "TopicSource(self.source.topic, self.source.topic_id)",
        (f"{STATEMENTS}::test_every_value_is_the_same_before_and_after_it_is_tiered[hosts]",),
    ),
    Switch(
        "T14",
        "tier with another shape than before",
        "planner/tiering/plan.py",
        "if not pin.binding.gives_rows_of(pin.watermark.shape, pin.schema):",
        "if False:",
        ("tests/unit/test_tiering_plan.py::test_another_shape_is_refused",),
    ),
    Switch(
        "T14",
        "take skipped records of before for the rows they would be today",
        "planner/seam/binding.py",
        "shape == shape_under(self, 1) and self.format",
        "shape == shape_under(self, 1) or self.format",
        ("tests/unit/test_binding.py::test_a_number_that_is_a_time_is_no_written_time",),
    ),
    Switch(
        "T14",
        "publish rows staged for another schema",
        "tests/doubles/tiering.py",
        "if value != (plan.pin.table_uuid, schema.schema_id, schema.fingerprint, binding):",
        "if False:",
        (
            f"{TIERING}::test_names_changed_between_stage_and_publish_are_a_conflict[memory-mapping]",
            f"{TIERING}::test_names_changed_between_stage_and_publish_are_a_conflict[memory-renames]",
            f"{TIERING}::test_a_column_added_between_stage_and_publish_is_a_conflict[memory]",
            f"{TIERING}::test_a_binding_changed_between_stage_and_publish_is_a_conflict[memory]",
        ),
    ),
    Switch(
        "T14",
        "keep rows decoded with another policy",
        "proxy/tail/followed_table.py",
        "decoding, hot.topic_id)",
        "schema.fingerprint, hot.topic_id)",
        (f"{STATEMENTS}::test_a_changed_error_policy_decodes_the_tail_again",),
    ),
    Switch(
        "T14",
        "know a tail by its schema id",
        "proxy/tail/followed_table.py",
        "decoding, hot.topic_id)",
        "binding.shape, hot.topic_id)",
        (
            f"{RENAMING}::test_a_rename_that_is_taken_back_decodes_the_tail_again",
            f"{RENAMING}::test_an_edited_name_mapping_decodes_the_tail_again",
        ),
    ),
    Switch(
        "T14",
        "keep segments whose records have the new field",
        "proxy/tail/heritage.py",
        "return not segment.is_trimmed and self.heritage.carries(segment.writer_ids)",
        "return not segment.is_trimmed",
        (
            f"{HERITAGE}::test_segments_that_have_the_field_are_fetched_again",
            f"{HERITAGE}::test_records_of_an_unknown_id_are_read_again",
            f"{HERITAGE}::test_what_is_too_much_to_fetch_is_followed",
        ),
    ),
    Switch(
        "T14",
        "keep offsets whose records had no row",
        "proxy/tail/heritage.py",
        "if not is_whole or not self.heritage.carries(loan.rowless_ids):",
        "if not is_whole:",
        (
            f"{HERITAGE}::"
            "test_records_that_were_skipped_for_their_number_are_rows_of_the_wider_column",
        ),
    ),
    Switch(
        "T14",
        "take a column that a record has a value for as NULL",
        "connectors/decoding/avro/carrying.py",
        "if item is not None or field.required:",
        "if field.required:",
        (f"{HERITAGE}::test_segments_that_have_the_field_are_fetched_again",),
    ),
    Switch(
        "T14",
        "publish rows decoded with other names",
        "tests/doubles/tiering.py",
        "value = (facts.table_uuid, schema.schema_id, schema.fingerprint, binding)",
        "value = (facts.table_uuid, schema.schema_id, plan.pin.schema.fingerprint, binding)",
        (
            f"{TIERING}::test_names_changed_between_stage_and_publish_are_a_conflict[memory-mapping]",
            f"{TIERING}::test_names_changed_between_stage_and_publish_are_a_conflict[memory-renames]",
        ),
    ),
    Switch(
        "T21",
        "read a cut with the names of today",
        "connectors/cuts.py",
        "entry.schema_id and decodes_as(entry, pin):",
        "entry.schema_id:",
        (f"{RENAMING}::test_a_cut_is_read_with_the_names_of_then",),
    ),
    Switch(
        "T21",
        "answer a cut with rows tiered otherwise",
        "connectors/cuts.py",
        "                and decodes_as(entry, pin)\n",
        "",
        (
            f"{RENAMING}::test_a_cut_is_not_answered_with_rows_that_were_tiered_under_other_names",
        ),
    ),
    Switch(
        "T21",
        "take eras for one that begin alike over other rows",
        "planner/seam/watermark.py",
        'before = f":{mark.era}" if mark.era else ""',
        'before = ""',
        (
            "tests/unit/test_decoding_key.py::test_an_era_is_known_by_the_one_whose_rows_lie_below_it",
            "tests/properties/test_replayed_cuts.py::"
            "test_a_cut_is_not_answered_by_rows_that_were_tiered_anew_below_its_era",
        ),
    ),
    Switch(
        "T21",
        "carry an era on over another decoding",
        "planner/tiering/publish.py",
        "era=era_after(plan.start, decoding)",
        'era=plan.start.era or "begun"',
        ("tests/unit/test_decoding_key.py::test_a_publish_carries_the_era_on_or_begins_one",),
    ),
    Switch(
        "T19",
        "publish without compare-and-set",
        "planner/tiering/publish.py",
        "if current.same_position(plan.start) and current.same_decisions(plan.start):",
        "if current is not None:",
        (
            f"{TIERING}::test_the_second_of_two_tierers_is_refused_and_carries_on[memory-rows]",
            f"{TIERING}::test_the_second_of_two_tierers_is_refused_and_carries_on[memory-no rows]",
            f"{TIERING}::test_a_rollback_between_stage_and_publish_is_a_conflict[memory]",
        ),
    ),
    Switch(
        "T19",
        "look for a lost commit in the newest snapshot only",
        "tests/doubles/tiering.py",
        "snapshot = snapshots.get(snapshot.parent_id or 0)",
        "snapshot = None",
        (f"{TIERING}::test_publishing_again_after_a_lost_answer_changes_nothing[memory]",),
    ),
    Switch(
        "T20",
        "take the newest watermark for every snapshot",
        "planner/seam/resolver.py",
        "carrier = None if carrier_id is None else history.snapshots.get(carrier_id)",
        "carrier = history.snapshots.get(history.tagged_id or carrier_id or 0)",
        (
            f"{RESOLVER}::test_an_old_pin_and_a_rollback_stand_on_their_own_line",
            f"{STATEMENTS}::test_a_rollback_takes_the_watermark_back_and_the_log_gives_the_rows",
        ),
    ),
    Switch(
        "T21",
        "read all that a newer snapshot holds",
        "planner/seam/cut.py",
        "return stop if self.until is None else min(stop, self.until.get(partition) or 0)",
        "return stop",
        (
            f"{TIME_TRAVEL}::test_every_snapshot_whose_tail_the_log_holds_gives_the_same_past",
            f"{FRESHNESS}::test_a_time_is_the_same_wherever_the_watermark_is",
            f"{FRESHNESS}::test_a_cut_outlives_the_log_and_it_outlives_the_snapshot",
        ),
    ),
    Switch(
        "T21",
        "begin the past where the log begins",
        "planner/seam/time_travel.py",
        "if own.log_start > item.start:",
        "if False:",
        (
            f"{TIME_TRAVEL}::test_a_past_that_nobody_holds_is_refused",
            f"{FRESHNESS}::test_a_cut_is_gone_when_nobody_holds_its_records",
        ),
    ),
    Switch(
        "T21",
        "end before what was tiered since the log was measured",
        "planner/seam/freshness.py",
        "log_end=max(own.log_end, tiered)",
        "log_end=own.log_end",
        (
            "tests/unit/test_freshness.py::test_an_old_measurement_gives_all_that_was_committed_then",
        ),
    ),
    Switch(
        "T21",
        "count the age of a measurement from its answer",
        "connectors/bounds_cache.py",
        "        requested_at = self._clock()\n        bounds = self._log.measure(topics)",
        "        bounds = self._log.measure(topics)\n        requested_at = self._clock()",
        ("tests/unit/test_bounds_cache.py::test_the_age_counts_from_before_the_question",),
    ),
    Switch(
        "T22",
        "make the cut when the ticket is opened",
        "proxy/query/executor.py",
        "cuts = redeem_tables(self.sources.pins, planned.tables)",
        "from proxy.engine.macros import When\n        cuts = self.cutter.cut(\n            parsed, FreshnessContract.of(session), When.at(self._now_us(), session.zone), deadline\n        ).by_key",
        (f"{STATEMENTS}::test_rows_written_after_the_plan_are_not_in_its_answer",),
    ),
    Switch(
        "T22",
        "read all of a shared tail",
        "proxy/tail/segment.py",
        " AND {KAFKA_OFFSET} < {item.stop}",
        "",
        (
            f"{STATEMENTS}::test_rows_another_statement_fetched_meanwhile_are_not_in_the_answer",
            "tests/unit/test_tail.py::test_random_cuts_of_a_growing_log_are_always_exact",
        ),
    ),
    Switch(
        "T14",
        "know the columns of an older snapshot by their names",
        "planner/schema.py",
        "by_id = {column.field_id: column for column in own.columns}",
        "by_id = {c.field_id: o for c in schema.columns for o in own.columns if c.name == o.name}",
        ("tests/unit/test_projection_by_id.py::test_columns_are_known_by_their_ids",),
    ),
    Switch(
        "T11",
        "go on with a stream's offsets on another topic",
        "planner/seam/spark_stream.py",
        "position = TablePosition(cut.table, at.topic_id, at.next)",
        "position = TablePosition(cut.table, cut.hot.topic_id, at.next)",
        ("tests/unit/test_streams.py::test_offsets_of_another_topic_are_refused",),
    ),
    Switch(
        "T22",
        "decode a tail in Spark for each use of it",
        "connectors/spark/lake/cut.py",
        "        if cut.table not in self._tails:\n",
        "        if True:\n",
        ("tests/unit/test_spark_source.py::test_a_tail_is_decoded_once_for_all_of_a_cut",),
    ),
    Switch(
        "T22",
        "take a server's tail wherever its seam is",
        "connectors/spark/remote/load.py",
        "not _is_at(plan, cut) or ",
        "",
        (
            "tests/unit/test_spark_served_tail.py::test_a_tail_of_another_seam_or_end_is_not[snapshot]",
            "tests/unit/test_spark_served_tail.py::test_a_tail_of_another_seam_or_end_is_not[end]",
        ),
    ),
    Switch(
        "T22",
        "take one action's filters for all of a load",
        "connectors/spark/lake/source.py",
        "self._tasks = TaskReader(columns, settings.clusters, settings.secrets, condition)",
        "self._tasks = TaskReader(columns, settings.clusters, settings.secrets, condition)\n"
        "        type(self).pushFilters = lambda self, filters: []",
        ("tests/unit/test_spark_source.py::test_filters_are_not_pushed",),
    ),
    Switch(
        "T23",
        "measure topic by topic",
        "connectors/cuts.py",
        "return log.measure(topics) if topics else {}",
        "return {topic: log.measure([topic])[topic] for topic in topics}",
        (f"{STATEMENTS}::test_all_topics_of_a_statement_are_measured_in_one_round",),
    ),
    Switch(
        "T26",
        "return what arrived in time",
        "connectors/kafka/fetch.py",
        "raise _unreached(topic, reached, stops)",
        "break",
        (
            f"{READING}::test_a_partition_that_ends_short_fails_the_statement",
            f"{SCRIPTED}::"
            "test_no_bytes_before_the_end_fail_at_the_deadline_and_name_where_it_stopped",
        ),
    ),
    Switch(
        "T26",
        "keep rows that were refused after they were written",
        "proxy/engine/segments.py",
        "appender.begin(self._layout)\n                yield appender.append\n                appender.commit()",
        "yield appender.append",
        (
            "tests/unit/test_tail_generations.py::"
            "test_rows_that_were_refused_after_they_were_written_are_never_seen",
        ),
    ),
    Switch(
        "T28",
        "believe an end below one seen earlier",
        "connectors/kafka/last_ends.py",
        "_is_newer(each.leader_epoch, epoch):\n                continue",
        "each.log_end >= 0:\n                continue",
        (f"{SCRIPTED}::test_an_end_that_stays_below_one_seen_before_is_an_error",),
    ),
    Switch(
        "T28",
        "hold a newer leader's lower end for stale",
        "connectors/kafka/last_ends.py",
        "and epoch > earlier",
        "and False",
        (f"{LAST_ENDS}::test_a_lower_end_is_stale_unless_a_newer_leader_tells_it[7-2-None]",),
    ),
    Switch(
        "E1",
        "answer by the files that have bounds",
        "planner/reading/extremes.py",
        "if lower.null_count or upper.null_count:",
        "if not len(bounds.rows):",
        (
            f"{EXTREMES}::test_a_file_without_bounds_is_read[(None, 9, 0)]",
            f"{EXTREMES}::test_a_file_without_bounds_is_read[(None, None, 2)]",
        ),
    ),
    Switch(
        "E1",
        "take a shortened text for a value",
        "planner/reading/extremes.py",
        "if not _is_exact(kind):",
        "if not len(bounds.rows):",
        (f"{EXTREMES}::test_bounds_that_may_be_no_values_are_not_believed",),
    ),
    Switch(
        "E1",
        "tell the extremes of rows that are hidden",
        "planner/reading/plan.py",
        "if is_plain and side.has_cold and (needs.count_only or needs.extremes):",
        "if cut.is_cold_whole and side.has_cold and (needs.count_only or needs.extremes):",
        (
            f"{EXTREMES}::test_statistics_answer_for_a_whole_snapshot_of_which_all_is_shown"
            "[rows or values are hidden]",
        ),
    ),
    Switch(
        "E1",
        "tell the extremes of a snapshot that the cut ends in",
        "planner/reading/plan.py",
        "is_plain = is_open and cut.increment is None and cut.is_cold_whole and",
        "is_plain = is_open and cut.increment is None and",
        (
            f"{EXTREMES}::test_statistics_answer_for_a_whole_snapshot_of_which_all_is_shown[the past]",
        ),
    ),
    Switch(
        "R1",
        "keep the first change of a batch for the newest of its key",
        "proxy/tail/newest_changes.py",
        "adding[key] = offset << _PARTITION_BITS | partition",
        "adding.setdefault(key, offset << _PARTITION_BITS | partition)",
        (f"{CHANGES_TAIL}::test_each_change_supersedes_the_one_before_it",),
    ),
    Switch(
        "R11",
        "take a key's change for new in another partition",
        "proxy/tail/newest_changes.py",
        "if last & _PARTITION != partition:",
        "if False:",
        (
            f"{CHANGES_TAIL}::"
            "test_a_key_in_two_partitions_is_refused_and_nothing_of_its_batch_counts",
        ),
    ),
    Switch(
        "R12",
        "wait for Debezium's own delete",
        "connectors/decoding/changes.py",
        "deletes = set(true_at(values.is_null()))",
        "deletes = set(true_at(values.is_null())) if envelope == 'none' else set()",
        tuple(
            f"{CHANGES}::test_a_null_value_is_a_delete_in_every_envelope[{envelope}]"
            for envelope in ("debezium", "debezium-flat")
        ),
    ),
    Switch(
        "R14",
        "tell keys apart by more than their values",
        "proxy/tail/newest_changes.py",
        "return _hashable(columns[0])",
        "return map(id, _hashable(columns[0]))",
        tuple(
            f"{CHANGES_TAIL}::test_keys_are_the_same_by_their_values[{kind}]"
            for kind in ("uuid", "decimal")
        ),
    ),
    Switch(
        "R15",
        "take the placeholder of a value for the value",
        "connectors/decoding/changes.py",
        "for index, unfit in unavailable(fields, changes.columns):",
        "for index, unfit in ():",
        (f"{CHANGES}::test_a_value_that_its_source_left_out_is_an_error_of_its_own[string]",),
    ),
    Switch(
        "R15",
        "leave a column as it was where a change has NULL",
        "connectors/decoding/envelopes.py",
        "return Opened(after.flatten(),",
        "return Opened([each.fill_null(each.drop_null()[0]) if len(each.drop_null()) else each "
        "for each in after.flatten()],",
        (f"{CHANGES}::test_a_column_that_becomes_null_is_null",),
    ),
    Switch(
        "R16",
        "take the row from before a change",
        "connectors/decoding/envelopes.py",
        '("after",), None, fields)',
        '("before",), None, fields)',
        (f"{CHANGES}::test_before_is_no_part_of_a_change",),
    ),
    Switch(
        "R9",
        "replace rows that another writer changed since their keys were looked up",
        "planner/tiering/keyed.py",
        "if following != base:",
        "if False:",
        (
            f"{KEYED_PUBLISH}::test_rows_that_another_writer_changed_are_a_conflict[between0]",
            f"{KEYED_PUBLISH}::test_rows_that_another_writer_changed_are_a_conflict[between2]",
            f"{KEYED_PUBLISH}::test_what_expiry_hides_is_a_conflict",
        ),
    ),
    Switch(
        "R9",
        "publish any number of rows",
        "planner/tiering/keyed.py",
        "if after != self.before - self.hit + self.appended:",
        "if False:",
        (f"{KEYED_PUBLISH}::test_a_table_with_another_number_of_rows_is_not_published",),
    ),
    Switch(
        "R13",
        "tier on where the log may have lost deletes",
        "planner/tiering/triggers.py",
        "if survey.rows and pin.binding is not None and pin.binding.upsert is not None:",
        "if False:",
        (
            "tests/unit/test_triggers.py::test_deletes_that_a_compacted_log_may_have_lost_are_an_error",
        ),
    ),
    Switch(
        "R13",
        "take a publish that left changes for one of all",
        "planner/tiering/publish.py",
        "if plan.binding.upsert is not None and not plan.reaches_end and before_s is not None:",
        "if False:",
        (
            f"{KEYED}::test_a_publish_that_left_changes_says_nothing_of_their_age",
            f"{KEYED_TIER_JOB}::test_changes_that_a_publish_left_are_as_old_as_they_were",
        ),
    ),
    Switch(
        "R13",
        "publish what was staged, with holes or not",
        "connectors/jobs/tier.py",
        "if self.unproven is not None and staged.outcomes.records < staged.plan.offsets:",
        "if False:",
        (f"{KEYED_TIER_JOB}::test_a_delete_that_is_lost_while_it_is_tiered_is_not_missed",),
    ),
    Switch(
        "R13",
        "answer where the log may have lost deletes",
        "proxy/tail/tails.py",
        "        if generation.has_holes:",
        "        if False:",
        (
            f"{KEYED}::test_a_delete_that_the_log_may_have_lost_is_an_error",
            f"{KEYED}::test_a_server_that_stopped_to_follow_may_have_missed_a_delete",
            f"{KEYED}::test_a_cut_of_the_past_is_as_old_as_its_snapshot",
        ),
    ),
    Switch(
        "R13",
        "take settings that cannot be read for none",
        "planner/seam/range_check.py",
        "limit_s = LEAST_DELETES_S",
        'limit_s = float("inf")',
        (f"{KEYED}::test_settings_that_cannot_be_read_are_taken_for_the_shortest",),
    ),
    Switch(
        "R17",
        "take all positions of a vector for new ones",
        "planner/tiering/keyed.py",
        'return added - (snapshot.count("removed-position-deletes") or 0)',
        "return added",
        (f"{KEYED_PUBLISH}::test_a_table_has_the_rows_before_less_those_hit_and_the_new_ones",),
    ),
    Switch(
        "R17",
        "count deleted rows as rows",
        "planner/seam/snapshots.py",
        'return records - (snapshot.count("total-position-deletes") or 0)',
        "return records",
        (f"{KEYED_PUBLISH}::test_a_table_has_the_rows_before_less_those_hit_and_the_new_ones",),
    ),
    Switch(
        "R10",
        "tier a partition that was added beside a backlog of the others",
        "planner/tiering/plan.py",
        "if chosen != named:",
        "if False:",
        tuple(
            f"tests/unit/test_tiering_plan.py::"
            f"test_partitions_that_were_added_to_a_keyed_table_come_last[{case}]"
            for case in ("10-following0", "96-following1")
        ),
    ),
    Switch(
        "R2",
        "know a row by a part of its key",
        "proxy/engine/relations.py",
        "key = [identifier(name) for name in self.key]",
        "key = [identifier(name) for name in self.key[:1]]",
        (f"{KEYED}::test_a_row_is_known_by_all_columns_of_its_key",),
    ),
    Switch(
        "R3",
        "take changes for rows where any rows do",
        "planner/reading/plan.py",
        "and cut.is_cold_whole and not read.key",
        "and cut.is_cold_whole",
        (f"{KEYED_READING}::test_all_changes_are_read_and_no_number_of_rows_is_known",),
    ),
    Switch(
        "R4",
        "leave out changes by their offsets",
        "planner/reading/plan.py",
        "tail = cut.new_hot if side.has_tail else ()\n    return TableRead(side, cut, cold,",
        "tail = needed_ranges(cut.new_hot, rows) if side.has_tail else ()\n    return TableRead(side, cut, cold,",
        (
            f"{KEYED}::test_a_tail_is_read_whole_by_a_condition_on_offsets",
            f"{KEYED_READING}::test_all_changes_are_read_and_no_number_of_rows_is_known",
        ),
    ),
    Switch(
        "R6",
        "let changes beyond the end supersede",
        "proxy/tail/tail_segments.py",
        "changes = (row for each in leased for row in relations(each, columns, needed))",
        "changes = (row for each in leased for row in relations(each, columns, each.ranges))",
        (f"{KEYED}::test_of_the_changes_below_the_end_the_newest_decides",),
    ),
    Switch(
        "R7",
        "hide rows by newer rows alone",
        "proxy/engine/relations.py",
        "{KAFKA_PARTITION} FROM ({changes})) AS newer ON",
        "{KAFKA_PARTITION} FROM ({changes}) WHERE {KAFKA_OP} = 'u') AS newer ON",
        (f"{KEYED}::test_a_delete_in_the_tail_hides_the_row_in_cold",),
    ),
    Switch(
        "R8",
        "answer an old cut with newer rows",
        "planner/seam/time_travel.py",
        'if mark.mode == "upsert" and not is_at_or_below(mark, end):',
        'if mark.mode == "" and not is_at_or_below(mark, end):',
        (f"{KEYED_READING}::test_a_cut_below_the_watermark_is_expired",),
    ),
    Switch(
        "R9",
        "count superseded changes as rows",
        "planner/seam/watermark.py",
        "return replace(self, rows=rows, deletes=deletes, superseded=superseded)",
        "return self",
        ("tests/unit/test_watermark.py::test_a_fold_leaves_every_record_one_outcome",),
    ),
    Switch(
        "R17",
        "let another writer give a key two rows",
        "planner/seam/resolver.py",
        "and _rewrote(snapshot) and not snapshot.single_keys:",
        "and False:",
        (
            f"{KEYED_READING}::test_rows_that_another_writer_gave_one_key_are_refused[False-a key has two rows since]",
            f"{KEYED}::test_a_key_that_another_writer_gave_two_rows_is_an_error_until_it_is_undone",
        ),
    ),
    Switch(
        "R17",
        "let an expired writer give a key two rows",
        "planner/seam/resolver.py",
        'elif _parsed(text, table).mode == "upsert" and not oldest.single_keys:',
        "elif False:",
        (
            f"{KEYED_READING}::test_an_expired_writer_that_may_have_doubled_a_key_is_not_believed",
        ),
    ),
    Switch(
        "R17",
        "believe a keyed table's tag over a rollback",
        "planner/seam/resolver.py",
        'if mark is not None and mark.mode == "upsert":\n        return before != tagged',
        'if mark is not None and mark.mode == "":\n        return before != tagged',
        (
            f"{KEYED_READING}::test_of_a_broken_chain_the_tag_counts_where_nothing_changed[counts1-False]",
            f"{KEYED_READING}::test_of_a_broken_chain_the_tag_counts_where_nothing_changed[counts2-False]",
        ),
    ),
    Switch(
        "R11",
        "hide a row by a change of another partition",
        "proxy/engine/relations.py",
        "THEN {self._refusal} ELSE",
        "THEN false ELSE",
        (f"{KEYED}::test_a_key_in_two_partitions_is_an_error_also_where_cold_has_it",),
    ),
)
