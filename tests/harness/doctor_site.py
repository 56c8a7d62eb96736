"""A configuration file and what ``thermocline doctor`` says of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from thermocline.commands.doctor import command

#: Doctor starts a server to try the lock; tests of anything else go without.
UNLOCKED = '[server]\nlandlock = "off"\n'


@dataclass
class DoctorSite:
    config: Path

    def write(
        self, catalog: dict[str, str], kafka: dict[str, str], more: str = UNLOCKED
    ) -> None:
        sections = {"catalogs.lake": catalog, "kafka": kafka}
        self.config.write_text(
            "".join(
                f"[{name}]\n"
                + "".join(f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in value.items())
                for name, value in sections.items()
            )
            + more
        )

    def findings(self, *, failed: bool | None) -> dict[str, tuple[str, str, str]]:
        """State, what and fix by check; the exit code must tell ``failed``, whichever it is where that is None."""
        result = CliRunner().invoke(command, ["--json"], obj=str(self.config))
        document = json.loads(result.stdout)
        assert document["ok"] is (result.exit_code == 0), result.output
        assert failed in (None, result.exit_code == 1), result.output
        assert "hush" not in result.output
        return {f["check"]: (f["state"], f["what"], f["fix"]) for f in document["findings"]}
