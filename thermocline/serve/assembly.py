"""Puts a server together from settings: the one place where parts meet."""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from connectors.bounds_cache import BoundsCache
from connectors.iceberg.file_access import EngineCalls
from connectors.iceberg.pin_cache import PinCache
from connectors.iceberg.store import IcebergStore
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.decoders import Decoders
from connectors.registry.facts import SchemaReports
from connectors.registry.registries import SchemaRegistries
from connectors.table_standings import BrokerFacts
from connectors.table_survey import TableSurvey
from proxy.access.limits import Blame, ServerPolicy
from proxy.engine.engine import Engine, StoreAccess
from proxy.flightsql.server import Address, FlightSqlServer, ServerOptions, start
from proxy.ops.metrics import ServerMetrics
from proxy.ops.schema_registries import SchemaRegistryStates
from proxy.ops.states import ProcessState, States, degraded, reading
from proxy.ops.table_list import TableList
from proxy.process.landlock import FileSystemLock
from proxy.process.memory import memory_limits, total_memory
from proxy.process.watchdog import Watchdog
from proxy.query.executor import Statements
from proxy.query.relations import Sources
from proxy.tail.reader.child import Ingestion
from thermocline.catalog_access import catalog_roots, engine_ca_file, engine_secrets
from thermocline.config.settings import Settings
from thermocline.serve.access import access, admins, limits_of, tls
from thermocline.serve.auditing import open_journal
from thermocline.serve.components import Components, running_tails
from thermocline.serve.permissions import policy
from thermocline.serve.reloading import Reloader
from thermocline.serve.sandbox import scratch_folder
from thermocline.serve.sql_info import product

#: How long a statement's interrupt has to work before the watchdog ends the process.
WATCHDOG_GRACE_S = 10.0
#: Interrupts take effect in milliseconds; a call that they do not reach is abandoned.
STOP_DEADLINE_S = 5.0
#: An engine that is silent this long is reported; the watchdog ends the process later.
UNHEALTHY_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A started server. The ports are the ones it listens on; ``http_port`` is None without an HTTP port, ``rest_port``
    without the Iceberg REST catalog.

    ``drain`` sends load balancers and clients elsewhere and waits for running statements, ``server.drain_s`` at most.
    ``reload`` reads the settings again. ``is_stuck`` says afterwards whether a thread is still writing to a client that
    does not read: the interpreter would wait for it.
    """

    server: FlightSqlServer
    pins: PinCache
    port: int
    http_port: int | None
    rest_port: int | None
    drain: Callable[[], None]
    reload: Callable[[], None]
    is_stuck: Callable[[], bool]


@contextlib.contextmanager
def running_components(
    settings: Settings,
    *,
    ingestion: Ingestion | None = None,
    blame: Blame | None = None,
) -> Iterator[Components]:
    """Start all parts that answer statements; stop them in the opposite order.

    ``ingestion`` reads topics; None: this process does.

    Raises:
        BadConfig: no catalog is configured, or one of its properties is wrong.
    """
    settings.require_catalogs()
    server, cold = settings.server, settings.cold
    with contextlib.ExitStack() as stack:
        spill = stack.enter_context(scratch_folder())
        engine_bytes, process_bytes = memory_limits(
            server.memory_limit_bytes, server.max_process_bytes, total_memory()
        )
        engine = Engine(
            storage_roots=settings.storage_roots,
            stores=StoreAccess(engine_secrets(settings), engine_ca_file(settings, spill)),
            memory_limit_bytes=engine_bytes,
            threads=server.threads,
            spill_dir=spill,
        )
        stack.callback(engine.close)
        store = IcebergStore(
            settings.catalogs,
            max_cache_memory_bytes=cold.max_memory_bytes,
            roots=catalog_roots(settings),
            engine=EngineCalls(engine.take_secret, engine.open_file, engine.try_manifests),
        )
        stack.callback(store.close)
        # A topic of another cluster is refused by name; plain tables work without any.
        log = stack.enter_context(KafkaClusters(settings.clusters))
        pins = stack.enter_context(
            PinCache(store, refresh_s=server.pin_refresh_s, patience_s=cold.catalog_timeout_s)
        )
        watchdog = Watchdog(
            grace_s=WATCHDOG_GRACE_S,
            max_process_bytes=process_bytes,
            healthy=engine.healthy,
            statements=engine.watch,
            blame=blame,
        )
        engine.watch.expecting = watchdog.expecting
        watchdog.start()
        stack.callback(watchdog.stop)
        registries = stack.enter_context(SchemaRegistries(settings.registries))
        decoders = Decoders(registries.of)
        tails, keeper = stack.enter_context(
            running_tails(settings, log, pins, engine, ingestion, decoders)
        )
        statements = Statements(
            Sources(
                *(pins, store, BoundsCache(log), tails, engine),
                schema_facts=SchemaReports(registries.of, decoders),
            ),
            ticket_ttl_s=server.ticket_ttl_s,
            secrets=[secrets.token_bytes(32) if server.secret is None else server.secret],
            now_us=lambda: time.time_ns() // 1000,
            default_path=(next(iter(settings.catalogs)), "default"),
        )
        stack.callback(statements.close)
        survey = TableSurvey(
            *(store, pins, statements.sources.bounds),
            lambda: BrokerFacts(settings.clusters),
        )
        stack.callback(survey.stop)
        lists = TableList(survey, pins, tails, statements.access)
        statements.system.makers.update(lists.makers())
        statements.access.policy = policy(settings, statements.access.expression)
        yield Components(
            *(statements, pins, tails, keeper, watchdog, store, engine, registries, decoders)
        )


@contextlib.contextmanager
def running_server(
    settings: Settings,
    *,
    read: Callable[[], Settings] | None = None,
    lock: FileSystemLock = FileSystemLock(),  # noqa: B008  a value
    ingestion: Ingestion | None = None,
    blame: Blame | None = None,
) -> Iterator[RunningServer]:
    """Serve the parts over Flight SQL, and their state over HTTP where a port is given.

    ``read`` reads the settings anew; without it a reload changes nothing. ``lock`` is the state of the sandbox.
    ``ingestion`` as for ``running_components``. ``blame`` are users whose statements ended earlier processes.

    Raises:
        BadConfig: as ``running_components``; or the server cannot listen on an address.
    """
    server = settings.server
    with contextlib.ExitStack() as stack:
        blame = blame or Blame()
        components = stack.enter_context(
            running_components(settings, ingestion=ingestion, blame=blame)
        )
        pins, tails, watchdog = components.pins, components.tails, components.watchdog
        metrics = ServerMetrics()
        metrics.registry.register(
            States(
                pins.status,
                tails.states,
                lambda: ProcessState(
                    watchdog.silent_s,
                    0 if ingestion is None else ingestion.lost,
                    0 if ingestion is None else ingestion.peak_bytes,
                    lock.holds,
                ),
            )
        )
        metrics.registry.register(
            SchemaRegistryStates(components.registries.states, components.decoders.counts)
        )
        ops = None
        if server.http_port is not None:
            # The HTTP stack takes a tenth of a second to load.
            from proxy.ops.http import OpsServer

            ready_when_read = settings.tail.ready_when_read
            ops = OpsServer(
                address=(server.host, server.http_port),
                registry=metrics.registry,
                healthy=lambda: watchdog.silent_s < UNHEALTHY_AFTER_S,
                is_warm=lambda: not ready_when_read or components.keeper.has_read_all(),
                state=lambda: {
                    "degraded": degraded(pins.status, tails.states),
                    "reading": reading(tails.states),
                    "file_system": str(lock),
                    "file_system_locked": lock.holds,
                },
            )
            stack.callback(ops.stop)
        audit = stack.enter_context(open_journal(settings))
        flight = start(
            components.statements,
            Address(server.host, server.port, tls(settings)),
            ServerPolicy(access(settings), limits_of(settings), admins(settings)),
            ServerOptions(
                product(),
                max_streams=server.max_streams,
                max_queued=server.max_queued,
                stream_wait_s=server.queue_wait_s,
                idle_timeout_s=settings.access.session_idle_s,
                session_secret=server.secret,
                journals=(metrics.read, audit),
                audit_text=server.audit_text,
            ),
            blame,
        )
        components.statements.system.makers.update(flight.statements.makers())
        watchdog.farewell = flight.give_up
        metrics.running.set_function(lambda: flight.streaming)
        metrics.count_waiting(flight.gate.calls.waiting_for)
        stuck = threading.Event()

        def stop() -> None:
            if not flight.stop(STOP_DEADLINE_S):
                stuck.set()

        stack.callback(stop)
        rest = None
        renew: Callable[[Settings], None] = lambda _: None  # noqa: E731
        if settings.iceberg_rest.port is not None:
            from thermocline.serve.iceberg_rest import renew_certificate, serving_live_tables

            rest = stack.enter_context(
                serving_live_tables(
                    settings,
                    components,
                    flight.gate,
                    (metrics.read, audit),
                    metrics.live_metadata,
                )
            )
            renew = functools.partial(renew_certificate, rest)
        reloader = Reloader(
            settings,
            flight,
            components.statements,
            read=read or (lambda: settings),
            renew=renew,
        )
        stack.callback(reloader.stop)
        if ops is not None:
            ops.accept()
            stack.callback(ops.drain)

        def drain() -> None:
            if ops is not None:
                ops.drain()
            flight.drain(server.drain_s)

        yield RunningServer(
            flight,
            pins,
            flight.port,
            None if ops is None else ops.port,
            None if rest is None else rest.port,
            drain,
            reloader.reload,
            stuck.is_set,
        )
