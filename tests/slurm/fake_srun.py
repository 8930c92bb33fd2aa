"""What srun does with a step, on this machine: ``fake_srun.py SCRIPT TASKS OUT ERR COMMAND…``.

SCRIPT is a folder; what lies in it happens once, to the next step: ``refuse`` holds srun's complaint,
``broken`` what every task says before it exits, ``kill`` the rank that is killed as it starts, and
``says`` a line of the step daemon's that comes with the death of a task.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

script, tasks, out, err, *command = sys.argv[1:]


def once(name):
    path = Path(script) / name
    if not path.exists():
        return ""
    text = path.read_text()
    path.unlink()
    return text


number = Path(script) / "steps"
step = int(number.read_text()) if number.exists() else 0
number.write_text(str(step + 1))

if refusal := once("refuse"):
    sys.exit(f"srun: error: {refusal}")
broken, kill, says = once("broken"), once("kill"), once("says")
processes = []
for rank in range(int(tasks)):
    names = {"PROCID": rank, "NTASKS": tasks, "LOCALID": rank, "NODEID": 0, "JOB_ID": 5, "STEP_ID": step}
    variables = {f"SLURM_{name}": str(value) for name, value in names.items()}
    run = ["sh", "-c", f"echo '{broken}' >&2; exit 2"] if broken else command
    with open(out.replace("%t", str(rank)), "w") as o, open(err.replace("%t", str(rank)), "w") as e:
        environment = {**os.environ, **variables, "SLURMD_NODENAME": "localhost"}
        processes.append(subprocess.Popen(run, stdout=o, stderr=e, env=environment))


def end(*_):
    for process in processes:
        process.terminate()
    for rank in range(int(tasks)):
        with open(err.replace("%t", str(rank)), "a") as e:
            e.write(f"slurmstepd: error: *** STEP 5.{step} ON localhost CANCELLED ***\n")
    time.sleep(0.2)
    os._exit(1)


signal.signal(signal.SIGTERM, end)
if kill:
    processes[int(kill)].kill()
left = dict(enumerate(processes))
while left:
    for rank, process in list(left.items()):
        if process.poll() is None:
            continue
        del left[rank]
        if process.returncode:
            if says:
                with open(err.replace("%t", str(rank)), "a") as e:
                    e.write(f"slurmstepd: error: {says.format(step=step)}\n")
            how = "Killed" if process.returncode < 0 else f"Exited with exit code {process.returncode}"
            print(f"srun: error: localhost: task {rank}: {how}", file=sys.stderr, flush=True)
            time.sleep(0.5)
            for other in left.values():
                other.kill()
    time.sleep(0.02)
