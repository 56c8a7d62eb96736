"""Certificates of one's own authorities for the driver's JVM, which talks to catalogs and stores.

Java reads no PEM. Its own authorities and ours go into a store that it does read, in Spark's temporary folder, before
its first connection over TLS. Executors on other machines talk to object stores only, and trust what those machines do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from planner.errors import BadConfig

_STORE = "javax.net.ssl.trustStore"
#: Java's own: it protects nothing, certificates are public.
_PASSWORD = "changeit"  # noqa: S105


def trust(session: SparkSession, bundles: Sequence[str]) -> None:
    """Trust what the PEM files sign, beside Java's own authorities. Whoever set Java's store has chosen himself.

    Raises:
        BadConfig: a file cannot be read, or holds no certificates.
    """
    gateway = session.sparkContext._gateway
    if not bundles or gateway is None:
        return
    jvm = gateway.jvm
    if jvm.java.lang.System.getProperty(_STORE) is not None:
        return
    password = gateway.new_array(jvm.char, len(_PASSWORD))
    for index, letter in enumerate(_PASSWORD):
        password[index] = letter
    home = jvm.java.lang.System.getProperty("java.home")
    authorities = jvm.java.io.File(f"{home}/lib/security/cacerts")
    store = jvm.java.security.KeyStore.getInstance(authorities, password)
    factory = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    for bundle in dict.fromkeys(bundles):
        try:
            content = Path(bundle).read_bytes()
            certificates = factory.generateCertificates(
                jvm.java.io.ByteArrayInputStream(content)
            )
        except (OSError, Py4JError) as error:
            raise BadConfig(
                f"ssl.cabundle or s3.cabundle: {bundle} cannot be read, or holds no certificates as PEM.",
                key="ssl.cabundle",
            ) from error
        for number, certificate in enumerate(certificates):
            store.setCertificateEntry(f"thermocline-{bundle}-{number}", certificate)
    file = Path(session.sparkContext._temp_dir, "authorities.p12")
    stream = jvm.java.io.FileOutputStream(str(file))
    store.store(stream, password)
    stream.close()
    jvm.java.lang.System.setProperty(_STORE, str(file))
    jvm.java.lang.System.setProperty(f"{_STORE}Password", _PASSWORD)
