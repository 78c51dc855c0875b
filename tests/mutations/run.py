"""Checks that the engine's tests notice faults: puts each of a list of faults into a copy of the code and runs them.

    python tests/mutations/run.py            # all faults, a few minutes
    python tests/mutations/run.py promotion  # those whose name contains the word

Exits with 1 if a fault goes unnoticed, or if the code no longer has the line that a fault replaces.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POLICY = ("tests/unit/engine/policy",)
SCHEDULER = (
    *(f"tests/integration/engine/test_scheduler_{part}.py" for part in ("order", "requests", "accounting")),
    "tests/integration/engine/test_kv_loads.py",
)


@dataclass(frozen=True)
class Fault:
    """One line of the code replaced by a wrong one."""

    name: str
    file: str
    line: str
    wrong: str
    tests: tuple[str, ...] = POLICY


FAULTS = (
    Fault(
        "no demotion",
        "policy/core.py",
        "            if call.total_service >= call.quantum_end:",
        "            if False:",
    ),
    Fault(
        "a quantum lasts one charge too long",
        "policy/core.py",
        "            if call.total_service >= call.quantum_end:",
        "            if call.total_service > call.quantum_end:",
    ),
    Fault(
        "a bound belongs to the lower level",
        "policy/levels.py",
        "bisect_right(self.bounds, service_ms)",
        "__import__('bisect').bisect_left(self.bounds, service_ms)",
    ),
    Fault(
        "no floor under the service",
        "policy/starvation.py",
        "max(self._floor_ms, self._policy.service_ms(program))",
        "self._policy.service_ms(program)",
    ),
    Fault("no promotion", "policy/core.py", "starving is None or starving[0] > now:", "True:"),
    Fault("promotion a moment late", "policy/core.py", "starving[0] > now:", "starving[0] >= now:"),
    Fault(
        "a whole crowd is promoted at once",
        "policy/core.py",
        "for _ in range(PROMOTIONS_PER_DECISION):",
        "while True:",
    ),
    Fault(
        "promotion loses accounting",
        "policy/core.py",
        "call.wait_mark, call.service_mark = call.total_wait, call.total_service",
        "call.total_wait = call.total_service = 0.0",
    ),
    Fault(
        "promotion resets nothing",
        "policy/core.py",
        "            call.wait_mark, call.service_mark = call.total_wait, call.total_service\n",
        "",
    ),
    Fault(
        "promoted calls stand last",
        "policy/core.py",
        "self._board.next_order() + _PROMOTED_FIRST",
        "self._board.next_order()",
    ),
    Fault(
        "the program's wait does not count",
        "policy/starvation.py",
        " - self._policy.wait_ms(program)",
        "",
    ),
    Fault(
        "a program's figures change and nobody takes note",
        "policy/core.py",
        "        self._programs.leave(program, now)\n        self._watch.refresh(program)\n",
        "        self._programs.leave(program, now)\n",
    ),
    Fault(
        "an equal level makes calls give way",
        "policy/plan.py",
        "candidate.level <= call.level:",
        "candidate.level < call.level:",
    ),
    Fault("the best give way first", "policy/core.py", "reversed(self._board.running)", "self._board.running"),
    Fault(
        "no minimum run",
        "policy/calls.py",
        "(self.preemptions > 0 and self.total_service - self.turn_mark < self.min_run)",
        "False",
    ),
    Fault(
        "no limit on preemptions",
        "policy/plan.py",
        "if not call.keeps_slot), most_victims)",
        "if not call.keeps_slot), None)",
    ),
    Fault(
        "somebody gives way in vain",
        "policy/plan.py",
        "                return Plan(tuple(admissions), tuple(victims))",
        "                return Plan(tuple(admissions), tuple([*victims, *leaving]))",
    ),
    Fault(
        "a call that is not ready is admitted",
        "policy/plan.py",
        "        if not call.ready:\n",
        "        if False:\n",
    ),
    Fault(
        "a preempted call loses its place",
        "policy/core.py",
        "        self._board.calls[key].preemptions += 1\n",
        "        self._board.calls[key].preemptions += 1\n"
        "        call = self._board.calls[key]\n"
        "        self._board.move(call, call.level, self._board.next_order(), promoted=call.promoted)\n",
    ),
    Fault(
        "a path is a sum",
        "policy/core.py",
        "path_ms=call.path_before + call.total_service,",
        "path_ms=program.path_ms + call.total_service,",
    ),
    Fault(
        "only service since the promotion counts",
        "policy/core.py",
        "            service_ms=call.total_service,\n            path_ms",
        "            service_ms=call.service,\n            path_ms",
    ),
    Fault(
        "service is counted twice",
        "policy/programs.py",
        "max(self.elsewhere_ms, service_ms - self.own_ms)",
        "max(self.elsewhere_ms, service_ms)",
    ),
    Fault(
        "brought service hides the newest of our own",
        "policy/programs.py",
        "return self.own_ms + self.elsewhere_ms",
        "return max(self.own_ms, self.elsewhere_ms)",
    ),
    Fault(
        "the table forgets the newest",
        "policy/programs.py",
        "            self._idle.popitem(last=False)\n            self.evicted += 1",
        "            self._idle.popitem(last=True)\n            self.evicted += 1",
    ),
    Fault(
        "levels change for calls that are here",
        "policy/core.py",
        "call.quantum_end += call.quanta[level]",
        "call.quantum_end += self._levels.now.quanta[level]",
    ),
    Fault("the top bound jumps", "policy/levels.py", "min(low, top * LARGEST_CHANGE)", "low"),
    Fault(
        "the top bound goes past its band",
        "policy/levels.py",
        "max(high, top / LARGEST_CHANGE)",
        "top / LARGEST_CHANGE",
    ),
    Fault("the top bound follows every program", "policy/levels.py", "% PROGRAMS_PER_CHANGE == 0", "% 1 == 0"),
    Fault(
        "a breach of the bound goes unseen",
        "policy/bound.py",
        "return now - call.promoted_at > limit",
        "return False",
    ),
    Fault("promoted calls in front are not counted", "policy/bound.py", "call.promoted_behind // self._slots + 1", "1"),
    Fault(
        "the worst ratio looks at one level",
        "policy/view.py",
        "self._board.waiting.heads(_RATIO_CALLS)",
        "list(self._board.waiting)[:1]",
    ),
    Fault("the table has no limit", "policy/programs.py", "> self._limit:", "> 10**9:"),
    Fault(
        "plas orders by the path",
        "policy/policies.py",
        "        return program.service_ms\n",
        "        return program.path_ms\n",
    ),
    Fault(
        "memory takes from the latest, whatever its level",
        "scheduler/program_scheduler.py",
        "        self.policy = SchedulingPolicy.PRIORITY\n",
        "",
        SCHEDULER,
    ),
    Fault(
        "a victim may take its slot back",
        "scheduler/program_scheduler.py",
        "frozenset(call.key for call in plan.victims)",
        "frozenset()",
        SCHEDULER,
    ),
    Fault(
        "a loaded call goes before a better one",
        "scheduler/program_scheduler.py",
        "        other = self.waiting.first()\n",
        "        other = None\n",
        SCHEDULER,
    ),
    Fault(
        "a step in flight is not charged on abort",
        "scheduler/program_scheduler.py",
        "        if request.num_in_flight_tokens > 0:",
        "        if False:",
        SCHEDULER,
    ),
    Fault(
        "an aborted call is charged for a step that it is not in",
        "scheduler/steps.py",
        " if call in calls else 0.0",
        "",
        SCHEDULER,
    ),
    Fault(
        "a call that comes right after its program ended joins the old one",
        "scheduler/program_scheduler.py",
        "            return\n        self._forget_ended_programs()\n",
        "            return\n",
        SCHEDULER,
    ),
    Fault(
        "overlapping steps are charged twice",
        "scheduler/steps.py",
        "                elapsed = max(0.0, now - max(since, self._last_end))",
        "                elapsed = max(0.0, now - since)",
        SCHEDULER,
    ),
    Fault(
        "a grammar that is not ready counts as ready",
        "scheduler/program_scheduler.py",
        "return grammar is not None and not isinstance(grammar, Exception)",
        "return True",
        SCHEDULER,
    ),
    Fault(
        "a session gives way while the end of its turn is in flight",
        "scheduler/program_scheduler.py",
        "gives_way=not request.resumable",
        "gives_way=True",
        SCHEDULER,
    ),
    Fault(
        "an idle engine forgets no ended program",
        "scheduler/program_scheduler.py",
        "        if not busy and self._forget_ended_programs():\n            self._report(self._now(), changed=True)\n",
        "",
        SCHEDULER,
    ),
    Fault(
        "a session's turn ends without a pause",
        "scheduler/program_scheduler.py",
        "RUNNING:\n            self.core.pause(key, now)",
        "WAITING and False:\n            self.core.pause(key, now)",
        SCHEDULER,
    ),
)


def noticed(fault: Fault) -> bool:
    """Whether a test fails once the fault is in. Raises LookupError if the code has not got the line."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "autellix_engine"
        shutil.copytree(
            ROOT / "engine_image" / "autellix_engine", package, ignore=shutil.ignore_patterns("__pycache__")
        )
        file = package / fault.file
        text = file.read_text()
        if fault.line not in text:
            raise LookupError(f"{fault.file} no longer has the line of {fault.name!r}")
        file.write_text(text.replace(fault.line, fault.wrong, 1))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
        result = subprocess.run(
            [*command, *fault.tests],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": folder, "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis"},
            capture_output=True,
            text=True,
        )
    if result.returncode not in (0, 1):  # neither passed nor failed: the tests did not run
        raise RuntimeError(f"{fault.name}: pytest ended with {result.returncode}\n{result.stdout}{result.stderr}")
    return result.returncode == 1


def main() -> int:
    for tests in (POLICY, SCHEDULER):
        if noticed(Fault("nothing at all", "__init__.py", "", "", tests)):
            print(f"{' '.join(tests)}: red without any fault")
            return 1
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    faults = [fault for fault in FAULTS if word in fault.name]
    unnoticed = 0
    for fault in faults:
        begin = time.monotonic()
        seen = noticed(fault)
        unnoticed += not seen
        print(f"{'noticed  ' if seen else 'UNNOTICED'} {time.monotonic() - begin:5.1f} s  {fault.name}", flush=True)
    print(f"{len(faults) - unnoticed} of {len(faults)} faults noticed")
    return 1 if unnoticed or not faults else 0


if __name__ == "__main__":
    sys.exit(main())
