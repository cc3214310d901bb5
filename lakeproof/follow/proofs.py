"""Proves what changed, again and again, beside the cycles of a follower, in a thread of its own.

The proof does not belong here (`lakeproof.proof`), nor whole proofs, which have a schedule. It runs in this process since a
process of its own would cost more to start than the proof costs. Like any other proof it takes the lease for the cycle that
ends at its position, and the follower goes on while the sides are compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from lakeproof.config.model import Config
from lakeproof.errors import LakeproofError
from lakeproof.events import Event, RunControl
from lakeproof.follow.worker import Worker
from lakeproof.lake.spark.driver import DriverLostError
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.proof.run import ProofRequest, Proving, prove_once

# A proof that takes long is followed by a pause of so many times as long, whatever is configured.
_PAUSE_TIMES = 10


class ContinuousProofs(Worker):
    """Proves what changed in each of the sources every `proof_changed_s` seconds while the block runs.

    Nothing that goes wrong with a proof ends the follower, but for the end of its driver (`check`): the next proof comes.
    """

    def __init__(self, config: Config, sources: Sequence[str], spark: SparkOnDemand, control: RunControl) -> None:
        super().__init__("lakeproof proofs")
        self._config, self._spark, self._control = config, spark, control
        every_s = {name: config.source(name).compaction.proof_changed_s for name in sources}
        self._every_s = {name: seconds for name, seconds in every_s.items() if seconds}

    def _work(self) -> None:
        now_s = time.monotonic()
        due_s = {name: now_s + every_s for name, every_s in self._every_s.items()}
        while due_s and not self._is_over():
            name = min(due_s, key=due_s.__getitem__)
            if self._ended.wait(min(1.0, max(0.0, due_s[name] - time.monotonic()))):
                return
            if time.monotonic() >= due_s[name] and not self._is_over():
                took_s = self._prove(name)
                due_s[name] = time.monotonic() + max(self._every_s[name] - took_s, _PAUSE_TIMES * took_s)

    def _is_over(self) -> bool:
        return self._ended.is_set() or self._control.stop.requested

    def _prove(self, name: str) -> float:
        """Prove a source; return the seconds that it took."""
        began_s = time.monotonic()
        try:
            with self._spark.in_use():
                prove_once(self._config, name, None, self._spark, self._control, Proving(ProofRequest(changed=True)))
        except DriverLostError:
            raise
        except LakeproofError as error:
            message = f"what changed in {name} was not proven: {error}"
            self._control.report(Event("follow.proof", message, {"source": name, "error": str(error)}))
        return time.monotonic() - began_s
