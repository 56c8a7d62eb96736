"""What a broker does while nobody asks it anything: some of it is there for crashes and crowds that tests have not."""

from __future__ import annotations

#: Of a broker that stands by for a whole run of tests: a core's thirtieth, for each worker's, else.
IDLE = {
    # An empty record in the log of metadata, twice a second by default.
    "metadata.max.idle.interval.ms": "0",
    # Each thread of them looks three times a second whether there is work, and by default there are two dozen.
    "num.network.threads": "1",
    "num.io.threads": "2",
}
#: Nor does it tell the controller, which is itself, so often that it lives. Of one that nobody kills: it would be let in
#: again when its session is over.
CALM = {
    **IDLE,
    "broker.heartbeat.interval.ms": "5000",
    # A test that pauses the broker for seconds must not leave it fenced to the next one.
    "broker.session.timeout.ms": "60000",
}
